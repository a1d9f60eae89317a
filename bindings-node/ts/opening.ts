// Makes the native half of a Redlock. Owns that it does not keep the Redlock from being collected.

import { bridge } from './bridge'
import type { NamedNode } from './clients'
import { native, type NativeRedlock, type NodeSpec, type Notice } from './native'
import type { GivenSettings } from './options'
import type { Redlock } from './redlock'

/** The native half of `redlock`, with its `nodes` as the native half takes them. It tells the Redlock what a person should know. */
export function open(
  redlock: Redlock,
  named: readonly NamedNode[],
  nodes: readonly (string | NodeSpec)[],
  { given, owner }: GivenSettings,
): NativeRedlock {
  const self = new WeakRef(redlock)
  const onNotice = (notice: Notice): void => self.deref()?._warn(notice)
  const mayLeaveOut = named.some(({ object }) => object !== undefined)
  const opened = native.open(bridge(), [...nodes], given, onNotice, owner, mayLeaveOut)
  if ('message' in opened) throw redlock._failure(opened, 'other')
  return opened
}
