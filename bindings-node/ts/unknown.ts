// Settings that do not exist. Owns the warning about them; which ones exist is for the caller to say.

const warned = new Set<string>()

/**
 * Warns of every setting that is not `known`, once a name and process. It is no error: node-redlock
 * does not mind, and code that was written for it runs on.
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

/** The one that a slip of the hand, or another way to join words, turns into `name`. */
function nearest(name: string, known: readonly string[]): string | undefined {
  const plain = (text: string): string => text.replace(/[_-]/g, '').toLowerCase()
  const distances = known.map((each) => distance(plain(name), plain(each)))
  const least = Math.min(...distances)
  // A third of the letters may be wrong.
  return least * 3 <= plain(name).length ? known[distances.indexOf(least)] : undefined
}

/** How many letters must be put in, taken out or replaced to make one text of the other. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1]
    for (const [place, other] of [...to].entries()) {
      const replaced = (row[place] as number) + (letter === other ? 0 : 1)
      next.push(Math.min(replaced, (row[place + 1] as number) + 1, (next[place] as number) + 1))
    }
    row = next
  }
  return row[to.length] as number
}
