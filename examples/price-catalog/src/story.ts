import { isDeepStrictEqual } from "node:util";

/** One step: what was expected, what was seen, and whether they are equal. */
export interface Step {
  readonly name: string;
  readonly expected: unknown;
  readonly seen: unknown;
  readonly ok: boolean;
}

/** Runs steps in turn, tells each, and keeps what was seen. */
export class Story {
  readonly steps: Step[] = [];
  readonly #tell: (line: string) => void;

  /** @param tell takes each line for a person to read */
  constructor(tell: (line: string) => void) {
    this.#tell = tell;
  }

  get ok(): boolean {
    return this.steps.length > 0 && this.steps.every((step) => step.ok);
  }

  /** A remark between steps. */
  say(line: string): void {
    this.#tell(line);
  }

  /** Runs one step. A step that throws is one that was not as expected; the story goes on. */
  async step(name: string, expected: unknown, see: () => Promise<unknown>): Promise<void> {
    let seen: unknown;
    try {
      seen = await see();
    } catch (error) {
      seen = { error: error instanceof Error ? error.message : String(error) };
    }
    const ok = isDeepStrictEqual(seen, expected);
    this.steps.push({ name, expected, seen, ok });
    this.#tell(`${ok ? "✓" : "✗"} ${name}`);
    this.#tell(`    expected ${JSON.stringify(expected)}`);
    this.#tell(`    seen     ${JSON.stringify(seen)}`);
  }
}

/**
 * Looks again until `condition` holds, and answers with what it saw last.
 *
 * @param look asked every few milliseconds
 * @param timeoutMs after this long, what was seen last is the answer, whatever it is
 */
export async function until<Seen>(
  look: () => Promise<Seen>,
  condition: (seen: Seen) => boolean,
  timeoutMs = 10_000,
): Promise<Seen> {
  const end = performance.now() + timeoutMs;
  let seen = await look();
  while (!condition(seen) && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    seen = await look();
  }
  return seen;
}
