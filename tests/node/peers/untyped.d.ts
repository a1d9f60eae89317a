// Peers whose types are missing, or are not found under Node's own module resolution.
declare module 'redlock'
declare module 'redlock4'
