// Libraries whose types are missing, or are not found under Node's own module resolution.
declare module 'ioredis4'
declare module 'redlock'
declare module 'redlock4'
