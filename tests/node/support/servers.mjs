// Real servers and fault proxies for the Node tests: drives `python -m tests.support`, which owns
// the processes. When this process ends, its servers do too.
//
//   const cluster = await startServers(5)
//   await cluster.servers[0].pause()
//   const proxy = await cluster.servers[1].proxy()
//   const swallowed = await proxy.swallowReply('invoice:42')
//   ...
//   await swallowed.wait()
//   await cluster.close()
import { Harness } from './harness.mjs'

/** @typedef {'both' | 'to_server' | 'to_client'} Direction */
/**
 * As `Options` in tests/support/options.py.
 * @typedef {object} Options
 * @property {string} [password]
 * @property {Record<string, string | string[]>} [users] ACL rules by user name
 * @property {boolean} [unix_socket]
 * @property {boolean} [appendonly]
 * @property {number} [replica_of] number of a server that runs already
 * @property {string[]} [flags]
 * @property {boolean} [clock] `setClock()` works; see `hasClocks()`
 */
/** @typedef {{server: number, host: string, port: number, pid: number | null, url: string, unix_url: string | null}} Place */
/** @typedef {{proxy: number, port: number, url: string}} ProxyPlace */
/** @typedef {{ca: string, server: string, server_key: string, client: string, client_key: string, other_ca: string}} Certificates */

/** One server; methods as in tests/support/servers.py. */
export class Server {
  #harness
  /**
   * @param {Harness} harness
   * @param {Place} place
   */
  constructor(harness, place) {
    this.#harness = harness
    this.index = place.server
    this.host = place.host
    this.port = place.port
    this.pid = place.pid
    this.url = place.url
    this.unixUrl = place.unix_url
  }
  get address() {
    return `${this.host}:${this.port}`
  }
  /** SIGSTOP: connections stay open and nothing is answered. */
  pause() {
    return this.#ask('server.pause')
  }
  /** SIGCONT, until it answers again. */
  resume() {
    return this.#ask('server.resume')
  }
  /** SIGKILL. */
  kill() {
    return this.#ask('server.kill')
  }
  /** An orderly end. */
  stop() {
    return this.#ask('server.stop')
  }
  /** Same port, same data directory. */
  async restart() {
    await this.#ask('server.restart')
    this.pid = (await this.#ask('describe')).pid
  }
  /** Deletes every key: for clients, the node has forgotten its locks. */
  flush() {
    return this.#ask('server.flush')
  }
  /**
   * Sets its wall clock ahead of the true one; only with the option `clock`.
   * @param {number} seconds
   */
  setClock(seconds) {
    return this.#ask('server.set_clock', { ahead: seconds })
  }
  /**
   * Runs a command as an administrator.
   * @param {...(string | number)} words
   */
  command(...words) {
    return this.#ask('server.command', { words })
  }
  /**
   * Remaining milliseconds by key (-1: for ever).
   * @returns {Promise<Record<string, number>>}
   */
  keys(pattern = '*') {
    return this.#ask('server.keys', { pattern })
  }
  /** @returns {Promise<string>} what the server has written */
  log() {
    return this.#ask('log')
  }
  /**
   * A fault proxy before this server; with `tls` its clients speak TLS.
   * @param {{tls?: boolean, ask_client?: boolean}} [options]
   */
  async proxy(options = {}) {
    return new FaultProxy(this.#harness, await this.#ask('proxy', options))
  }
  /**
   * @param {string} name
   * @param {object} [fields]
   */
  #ask(name, fields) {
    return this.#harness.ask(name, { server: this.index, ...fields })
  }
}

/** Breaks the network before one server; methods as in tests/support/proxy.py. */
export class FaultProxy {
  #harness
  /**
   * @param {Harness} harness
   * @param {ProxyPlace} place
   */
  constructor(harness, place) {
    this.#harness = harness
    this.index = place.proxy
    this.port = place.port
    this.url = place.url
  }
  /**
   * @param {number} ms
   * @param {Direction} [direction]
   */
  delay(ms, direction = 'both') {
    return this.#ask('proxy.delay', { seconds: ms / 1000, direction })
  }
  /** @param {Direction} [direction] */
  stall(direction = 'both') {
    return this.#ask('proxy.stall', { direction })
  }
  /**
   * @param {number} count
   * @param {Direction} [direction]
   */
  cutAfter(count, direction = 'to_client') {
    return this.#ask('proxy.cut_after', { count, direction })
  }
  /** RST on all open connections. */
  reset() {
    return this.#ask('proxy.reset')
  }
  /** @param {Direction} [direction] */
  halfClose(direction = 'to_client') {
    return this.#ask('proxy.half_close', { direction })
  }
  /** Cuts all connections and refuses new ones. */
  refuse() {
    return this.#ask('proxy.refuse')
  }
  /** Ends all faults. */
  heal() {
    return this.#ask('proxy.heal')
  }
  close() {
    return this.#ask('proxy.close')
  }
  /** @returns {Promise<number>} connections accepted so far */
  connections() {
    return this.#ask('connections')
  }
  /**
   * The next command that contains `text` reaches the server; its reply never arrives.
   * @param {string} text
   */
  swallowReply(text) {
    return this.#look('proxy.swallow_reply', text)
  }
  /**
   * Tells when the next command that contains `text` has come by.
   * @param {string} text
   */
  expect(text) {
    return this.#look('proxy.expect', text)
  }
  /**
   * @param {string} name
   * @param {string} text
   */
  async #look(name, text) {
    const expectation = await this.#ask(name, { text })
    return {
      /** @returns {Promise<boolean>} whether it has passed */
      came: () => this.#harness.ask('came', { expectation }),
      /** @returns {Promise<void>} when it has passed */
      wait: (ms = 10_000) => this.#harness.ask('wait', { expectation, timeout: ms / 1000 }),
    }
  }
  /**
   * @param {string} name
   * @param {object} [fields]
   */
  #ask(name, fields) {
    return this.#harness.ask(name, { proxy: this.index, ...fields })
  }
}

/** N independent servers. */
export class Cluster {
  #harness
  /**
   * @param {Harness} harness
   * @param {{servers: Place[], name: string, version: string}} told
   */
  constructor(harness, told) {
    this.#harness = harness
    this.servers = told.servers.map((place) => new Server(harness, place))
    this.name = told.name
    this.version = told.version
  }
  get urls() {
    return this.servers.map((server) => server.url)
  }
  get addresses() {
    return this.servers.map((server) => server.address)
  }
  /**
   * More servers, also with other options; they close with this cluster.
   * @param {number} count
   * @param {Options} [options]
   */
  async start(count, options = {}) {
    /** @type {Place[]} */
    const places = await this.#harness.ask('start', { count, ...options })
    const added = places.map((place) => new Server(this.#harness, place))
    this.servers.push(...added)
    return added
  }
  /**
   * What each server holds under a name. All servers must answer.
   * @param {string} key
   * @returns {Promise<(string | null)[]>}
   */
  values(key) {
    return Promise.all(this.servers.map((server) => server.command('GET', key)))
  }
  /** @returns {Promise<boolean>} whether servers with the option `clock` can be started */
  hasClocks() {
    return this.#harness.ask('has_clocks')
  }
  /** All servers run, answer and are empty but for their canaries. */
  reset() {
    return this.#harness.ask('reset')
  }
  /** @returns {Promise<Certificates>} paths of what `proxy({tls: true})` uses */
  certificates() {
    return this.#harness.ask('certificates')
  }
  close() {
    return this.#harness.end()
  }
  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    return this.close()
  }
}

/**
 * Starts servers; resolves when each answers.
 * @param {number} count
 * @param {Options} [options]
 */
export async function startServers(count, options = {}) {
  const harness = new Harness(count, options)
  return new Cluster(harness, await harness.started())
}
