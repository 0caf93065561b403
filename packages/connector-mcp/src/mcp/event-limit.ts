/** Bounds the events of a stream, which the SDK gathers in memory whatever their size. */

const NEWLINE = 0x0a;
const RETURN = 0x0d;
const BLANK_LINE = Buffer.from("\n\n");

/**
 * Passes an event stream on. Of an event of more than `maxBytes` the rest is dropped as it comes, and what `replacement` gives is
 * put in its place; what had gone out of it ends there, as an event that holds no JSON.
 */
export function limitEvents(
  body: ReadableStream<Uint8Array>,
  maxBytes: number,
  replacement: () => Record<string, unknown> | undefined,
): ReadableStream<Uint8Array> {
  let eventBytes = 0;
  let lineBytes = 0;
  let dropping = false;

  /** What goes out for a piece of one line, with its newline or without. */
  function pass(piece: Uint8Array): Uint8Array[] {
    const isEnd = piece.at(-1) === NEWLINE;
    lineBytes += piece.length - (isEnd ? 1 : 0);
    const isBlank = isEnd && (lineBytes === 0 || (lineBytes === 1 && (piece.length === 1 || piece[0] === RETURN)));
    if (isEnd) lineBytes = 0;
    if (dropping) {
      dropping = !isBlank;
      return [];
    }
    eventBytes += piece.length;
    if (isBlank) eventBytes = 0;
    if (eventBytes <= maxBytes) return [piece];
    eventBytes = 0;
    dropping = true;
    const message = replacement();
    return [BLANK_LINE, ...(message ? [Buffer.from(`event: message\ndata: ${JSON.stringify(message)}\n\n`)] : [])];
  }

  return body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const out: Uint8Array[] = [];
        let from = 0;
        for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
          out.push(...pass(chunk.subarray(from, end + 1)));
          from = end + 1;
        }
        if (from < chunk.length) out.push(...pass(chunk.subarray(from)));
        if (out.length > 0) controller.enqueue(out.length === 1 ? (out[0] as Uint8Array) : Buffer.concat(out));
      },
    }),
  );
}
