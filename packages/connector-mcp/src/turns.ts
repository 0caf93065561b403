/** Runs one piece of work after the other, each whether or not the one before failed. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  /** Resolves and rejects as the work does. */
  run<Result>(work: () => Promise<Result>): Promise<Result> {
    const turn = this.#last.then(work);
    this.#last = turn.catch(() => undefined);
    return turn;
  }
}
