// Makes the native half of a Redlock. Owns that it does not keep the Redlock from being collected.

import { bridge } from './bridge'
import { native, type NativeRedlock, type NodeSpec, type Settings } from './native'
import type { Redlock } from './redlock'

/** The native half of `redlock`, which tells it what a person should know. */
export function open(
  redlock: Redlock,
  nodes: readonly (string | NodeSpec)[],
  settings: Settings,
): NativeRedlock {
  const self = new WeakRef(redlock)
  const opened = native.open(bridge(), [...nodes], settings, (notice) =>
    self.deref()?._warn(notice),
  )
  if ('message' in opened) throw redlock._failure(opened, 'other')
  return opened
}
