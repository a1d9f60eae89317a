// How often tests repeat: rarely in an ordinary run, often with `make torture`. The same as counts.py.
const full = Boolean(process.env.QUORLOCK_TORTURE)

/** A number of rounds. */
export const times = (/** @type {number} */ short, /** @type {number} */ long) =>
  full ? long : short
