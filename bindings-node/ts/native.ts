// Finds and loads the native half. Owns the list of places to look in; knows nothing of what the native half
// does.

import type * as natives from '../native'

export type {
  Failure,
  HolderParts,
  NodeSpec,
  NodeStatus,
  NodeVote,
  Notice,
  Settings,
  TlsSpec,
} from '../native'
/** A lease, a Redlock and the results of this environment, as handles of the native half. */
export type NativeLease = natives.ExternalObject<natives.LeaseHandle>
export type NativeRedlock = natives.ExternalObject<natives.Manager>
export type Bridge = natives.ExternalObject<natives.Bridge>

/** A {@link Failure} as results carry it. */
export type FailureFields = readonly [
  name: natives.Failure['class'],
  code: natives.Failure['code'],
  message: natives.Failure['message'],
  resources: natives.Failure['resources'],
  attempts: natives.Failure['attempts'],
  elapsed: natives.Failure['elapsed'],
  rounds: natives.Failure['rounds'],
]

/** The native half for this platform. */
export const native = load()

function load(): typeof natives {
  const tried: string[] = []
  for (const place of places()) {
    try {
      return require(place) as typeof natives
    } catch (error) {
      const reason = error instanceof Error ? error.message.split('\n')[0] : String(error)
      tried.push(`  ${place}: ${reason}`)
    }
  }
  throw new Error(
    `quorlock has no native addon that can be loaded on ${process.platform} ${process.arch}. ` +
      'Installed with optional dependencies left out, it lacks the one for your platform: install it again ' +
      `without --omit=optional.\n${tried.join('\n')}`,
  )
}

/**
 * In order: an explicit path, the addon beside this package (a local build), the platform's package. npm
 * installs only platform packages that fit, and a foreign one fails to load.
 */
function places(): string[] {
  const own = process.env['QUORLOCK_NATIVE_PATH']
  const names = targets().map((abi) => `${process.platform}-${process.arch}${abi}`)
  const beside = names.map((name) => `../quorlock.${name}.node`)
  const packages = names.map((name) => `quorlock-${name}`)
  return [...(own ? [own] : []), ...beside, ...packages]
}

function targets(): string[] {
  switch (process.platform) {
    case 'linux':
      return process.arch === 'arm' ? ['-gnueabihf', '-musleabihf'] : ['-gnu', '-musl']
    case 'win32':
      return ['-msvc']
    default:
      return ['']
  }
}
