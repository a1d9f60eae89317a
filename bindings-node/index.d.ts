export * from './dist/api.js'
export { Redlock as default } from './dist/api.js'
