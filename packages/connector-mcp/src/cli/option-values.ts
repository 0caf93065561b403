import { InvalidArgumentError } from "commander";

/** Timers of Node end at 2³¹ ms, a little later; beyond, they would fire at once. */
const MAX_SECONDS = 2_000_000;

/** A count of at least one. */
export function parseCount(value: string): number {
  const count = Number(value);
  if (!/^\d+$/.test(value) || count < 1 || !Number.isSafeInteger(count)) {
    throw new InvalidArgumentError("Give a whole number above 0.");
  }
  return count;
}

/** Seconds as they are typed, as milliseconds. */
export function parseSeconds(value: string): number {
  const seconds = Number(value);
  if (!/^\d+(\.\d+)?$/.test(value) || seconds <= 0 || seconds > MAX_SECONDS) {
    throw new InvalidArgumentError(`Give seconds, above 0 and at most ${MAX_SECONDS}.`);
  }
  return seconds * 1_000;
}

/** A text with something in it. */
export function parseText(value: string): string {
  if (value.trim() === "") throw new InvalidArgumentError("It is empty.");
  return value;
}

/** A subject or another name: without blanks around it, which would make it another one. */
export function parseName(value: string): string {
  if (parseText(value) !== value.trim()) throw new InvalidArgumentError("There are blanks around it.");
  return value;
}
