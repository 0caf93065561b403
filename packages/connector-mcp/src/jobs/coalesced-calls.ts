/**
 * Turns single calls into batches without a timer: while one batch is under way, whatever is added waits for the next.
 * A lone call goes out at once; under load a batch grows to what one round trip takes.
 */
export class CoalescedCalls<Item, Result> {
  readonly #waiting: { item: Item; settle: (result: Result) => void; fail: (error: unknown) => void }[] = [];
  #busy = false;

  /**
   * @param call answers a batch, one result per item, in the items' order
   * @param maxItems per batch
   */
  constructor(
    private readonly call: (items: readonly Item[]) => Promise<readonly Result[]>,
    private readonly maxItems: number,
  ) {}

  add(item: Item): Promise<Result> {
    return new Promise((settle, fail) => {
      this.#waiting.push({ item, settle, fail });
      if (!this.#busy) void this.#work();
    });
  }

  async #work(): Promise<void> {
    this.#busy = true;
    // What is added in the same turn of the event loop goes out together.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.maxItems);
      try {
        const results = await this.call(batch.map(({ item }) => item));
        for (const [position, { settle }] of batch.entries()) settle(results[position] as Result);
      } catch (error) {
        for (const { fail } of batch) fail(error);
      }
    }
    this.#busy = false;
  }
}
