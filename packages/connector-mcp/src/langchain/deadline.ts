import { setTimeout as delay } from "node:timers/promises";
import { connectorError } from "../errors.js";

/** The promise's own outcome, or the error of `late` when it takes longer than `ms`. What it waits for is not stopped. */
export async function within<T>(ms: number, promise: Promise<T>, late: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), ms);
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The promise's own outcome, or `request_aborted` as soon as the signal says so. What it waits for is not stopped.
 *
 * @throws {FencelineError} `request_aborted`
 */
export async function unlessAborted<T>(signal: AbortSignal | undefined, start: () => Promise<T>): Promise<T> {
  throwIfAborted(signal);
  if (signal === undefined) return start();
  let onAbort: (() => void) | undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(abortError(signal));
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([start(), aborted]);
  } finally {
    if (onAbort) signal.removeEventListener("abort", onAbort);
  }
}

/** @throws {FencelineError} `request_aborted` where the signal was given already */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortError(signal);
}

/** Waits; ends early, without an error, when the signal is given. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await delay(ms, undefined, signal ? { signal } : {}).catch(() => undefined);
}

function abortError(signal: AbortSignal): Error {
  return connectorError("request_aborted", "The caller ended the request.", { cause: signal.reason });
}
