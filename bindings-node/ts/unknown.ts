// Warns about settings that do not exist. Owns the warning; the caller says which settings exist.

const warned = new Set<string>()

/**
 * Warns of every setting that is not `known`, once per name and process. It is no error: node-redlock ignores
 * such settings, and code that was written for it must keep running.
 */
export function warnOfUnknown(settings: object, known: readonly string[]): void {
  for (const [name, value] of Object.entries(settings)) {
    if (value === undefined || known.includes(name) || warned.has(name)) continue
    warned.add(name)
    const meant = nearest(name, known)
    const hint = meant === undefined ? `known are ${known.join(', ')}` : `did you mean '${meant}'?`
    process.emitWarning(`quorlock has no setting '${name}', which is ignored; ${hint}`, {
      code: 'QUORLOCK_UNKNOWN_SETTING',
    })
  }
}

/** The known name that a typing mistake, or another way to join words, turns into `name`. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const plain = (text: string): string => text.replace(/[_-]/g, '').toLowerCase()
  const distances = known.map((each) => distance(plain(name), plain(each)))
  const least = Math.min(...distances)
  // A third of the letters may be wrong.
  return least * 3 <= plain(name).length ? known[distances.indexOf(least)] : undefined
}

/** How many letters must be inserted, removed, replaced or swapped to turn one text into the other. */
function distance(from: string, to: string): number {
  const rows = [Array.from({ length: to.length + 1 }, (_, index) => index)]
  const at = (row: number, column: number): number => rows[row]?.[column] ?? Infinity
  for (let row = 1; row <= from.length; row += 1) {
    rows.push([row])
    for (let column = 1; column <= to.length; column += 1) {
      const isSame = from[row - 1] === to[column - 1]
      const isSwap = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]
      const replaced = at(row - 1, column - 1) + (isSame ? 0 : 1)
      const swapped = isSwap ? at(row - 2, column - 2) + 1 : Infinity
      rows[row]?.push(Math.min(replaced, swapped, at(row - 1, column) + 1, at(row, column - 1) + 1))
    }
  }
  return at(from.length, to.length)
}
