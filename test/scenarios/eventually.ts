/**
 * Looks again until `condition` holds.
 *
 * @throws when it does not within `timeoutMs`, naming what was awaited and what was seen last
 */
export async function eventually<Seen>(
  what: string,
  look: () => Promise<Seen> | Seen,
  condition: (seen: Seen) => boolean,
  timeoutMs = 20_000,
): Promise<Seen> {
  const deadline = performance.now() + timeoutMs;
  while (true) {
    const seen = await look();
    if (condition(seen)) return seen;
    if (performance.now() > deadline)
      throw new Error(`${what}: not within ${timeoutMs} ms; last ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
