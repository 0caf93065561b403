import { connectorError } from "../errors.js";

/**
 * The promise's result, or a rejection when it is not there in time. What it stands for goes on; only the waiting ends.
 *
 * @throws {FencelineError} `request_timeout`
 */
export async function withDeadline<T>(promise: Promise<T>, deadlineMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(connectorError("request_timeout", `no answer within ${deadlineMs} ms`)),
      deadlineMs,
    );
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
    // A late rejection has no one left to hear it.
    promise.catch(() => undefined);
  }
}
