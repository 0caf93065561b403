/** Line and column, from 1, at which a text stops to be JSON; its end where it is only cut off. */
export function jsonFaultAt(text: string): { line: number; column: number } {
  const before = text.slice(0, longestBeginning(text)).split("\n");
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}

/**
 * Length of the longest beginning that could be continued to JSON. The parser's own message does not always say where
 * the fault is, and quotes the text around it, which may be a credential.
 */
function longestBeginning(text: string): number {
  if (canBeContinued(text)) return text.length;
  let [fits, fails] = [0, text.length];
  while (fails - fits > 1) {
    const middle = Math.floor((fits + fails) / 2);
    if (canBeContinued(text.slice(0, middle))) fits = middle;
    else fails = middle;
  }
  return fits;
}

function canBeContinued(beginning: string): boolean {
  try {
    JSON.parse(beginning);
    return true;
  } catch (error) {
    const { message } = error as SyntaxError;
    const position = /at position (\d+)/.exec(message)?.[1];
    return /^Un(expected end|terminated)/.test(message) || Number(position) === beginning.length;
  }
}
