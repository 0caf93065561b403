/**
 * Groups the calls of many callers into few statements.
 *
 * 1. A call that finds a lane free is run at once; what waits while statements are under way goes into the next one together.
 * 2. A group has at most one call for each key, `maxWeight` in all (a heavier call goes alone), and goes in the order of arrival.
 * 3. A caller gets its own answer or its own error. A group that failed for a reason that may be one call's (`isOneCallsFault`)
 *    was undone as a whole and is run again call by call; any other error is everybody's, for nobody can tell what it did.
 */
export class Coalescer<Call, Answer> {
  readonly #options: CoalescerOptions<Call, Answer>;
  #waiting: Waiting<Call, Answer>[] = [];
  #busy = 0;

  constructor(options: CoalescerOptions<Call, Answer>) {
    this.#options = options;
  }

  /** Whether nothing is under way or waits. */
  get isIdle(): boolean {
    return this.#busy === 0 && this.#waiting.length === 0;
  }

  /** Resolves with the answer of this call; rejects with the error that `run` gave for it. */
  submit(call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject });
      this.#dispatch();
    });
  }

  #dispatch(): void {
    while (this.#busy < this.#options.lanes && this.#waiting.length > 0) {
      this.#busy++;
      void this.#drive(this.#takeGroup());
    }
  }

  async #drive(group: readonly Waiting<Call, Answer>[]): Promise<void> {
    await this.#settle(group);
    // Whoever was answered and calls again at once is in the next group.
    await this.#options.pause();
    this.#busy--;
    this.#dispatch();
  }

  async #settle(group: readonly Waiting<Call, Answer>[]): Promise<void> {
    try {
      const answers = await this.#options.run(group.map(({ call }) => call));
      for (const [place, { resolve }] of group.entries()) resolve(answers[place] as Answer);
    } catch (error) {
      if (group.length > 1 && this.#options.isOneCallsFault(error)) {
        for (const one of group) await this.#settle([one]);
      } else {
        for (const { reject } of group) reject(error);
      }
    }
  }

  #takeGroup(): Waiting<Call, Answer>[] {
    const { keysOf, weightOf, maxWeight } = this.#options;
    const group: Waiting<Call, Answer>[] = [];
    const left: Waiting<Call, Answer>[] = [];
    const taken = new Set<number>();
    // Keys of what is left wait as well, so that calls of one key stay in order.
    let weight = 0;
    for (const waiting of this.#waiting) {
      const keys = keysOf(waiting.call);
      const fits = group.length === 0 || weight + weightOf(waiting.call) <= maxWeight;
      if (fits && !keys.some((key) => taken.has(key))) {
        group.push(waiting);
        weight += weightOf(waiting.call);
      } else {
        left.push(waiting);
      }
      for (const key of keys) taken.add(key);
    }
    this.#waiting = left;
    return group;
  }
}

export interface CoalescerOptions<Call, Answer> {
  /** Groups under way at once. */
  readonly lanes: number;
  readonly maxWeight: number;
  weightOf(call: Call): number;
  /** What a group may hold once. */
  keysOf(call: Call): readonly number[];
  /** Runs a group; all or nothing. The answers are in the order of the calls. */
  run(group: readonly Call[]): Promise<readonly Answer[]>;
  /** Whether the group had no effect, and one of its calls alone may be to blame. */
  isOneCallsFault(error: unknown): boolean;
  /** Returns when those that were answered have had their turn. */
  pause(): Promise<unknown>;
}

interface Waiting<Call, Answer> {
  readonly call: Call;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}
