import { expect, test } from "vitest";
import { Coalescer } from "#src/coalescer.js";

interface Call {
  readonly key: number;
  readonly weight?: number;
  readonly poisoned?: boolean;
}

/** A database that answers when it is told to; what it runs is noted by keys. */
function statements(lanes = 1, maxWeight = 100) {
  const groups: number[][] = [];
  const running: (() => void)[] = [];
  let failure: Error | undefined;
  const coalescer = new Coalescer<Call, string>({
    lanes,
    maxWeight,
    weightOf: ({ weight = 1 }) => weight,
    keysOf: ({ key }) => [key],
    async run(group) {
      groups.push(group.map(({ key }) => key));
      await new Promise<void>((resolve) => running.push(resolve));
      if (failure) throw failure;
      const poison = group.find(({ poisoned }) => poisoned);
      if (poison) throw new RangeError(`poisoned by ${poison.key}`);
      return group.map(({ key }) => `answer ${key}`);
    },
    isOneCallsFault: (error) => error instanceof RangeError,
    pause: async () => {},
  });
  return {
    coalescer,
    groups,
    fail(error: Error) {
      failure = error;
    },
    /** Lets statements end, one after the other, until every caller has its answer. */
    async until<Answer>(answers: Promise<Answer>): Promise<Answer> {
      let open = true;
      const ended = answers.finally(() => {
        open = false;
      });
      ended.catch(() => {});
      while (open) {
        running.shift()?.();
        await new Promise(setImmediate);
      }
      return ended;
    },
  };
}

const calls = (count: number, first = 1) => Array.from({ length: count }, (_, index) => ({ key: first + index }));

test("a call that finds a free lane is run at once, and what waits meanwhile goes together", async () => {
  const { coalescer, groups, until } = statements();
  const answers = Promise.all(calls(5).map((call) => coalescer.submit(call)));
  expect(groups).toEqual([[1]]);
  expect(await until(answers)).toEqual(["answer 1", "answer 2", "answer 3", "answer 4", "answer 5"]);
  expect(groups).toEqual([[1], [2, 3, 4, 5]]);
  expect(coalescer.isIdle).toBe(true);
});

test("two lanes have two statements under way, and no third", async () => {
  const { coalescer, groups, until } = statements(2);
  const answers = Promise.all(calls(5).map((call) => coalescer.submit(call)));
  expect(groups).toEqual([[1], [2]]);
  await until(answers);
  expect(groups).toEqual([[1], [2], [3, 4, 5]]);
});

test("a statement has one call for each key, in the order of arrival, and its weight at most", async () => {
  const { coalescer, groups, until } = statements(1, 3);
  const all = [
    { key: 9 },
    { key: 1 },
    { key: 1 },
    { key: 2, weight: 2 },
    { key: 1 },
    { key: 3 },
    { key: 4, weight: 7 },
  ];
  const answers = Promise.all(all.map((call) => coalescer.submit(call)));
  expect(await until(answers)).toEqual(all.map(({ key }) => `answer ${key}`));
  expect(groups).toEqual([[9], [1, 2], [1, 3], [1], [4]]);
});

test("a poisoned call fails alone, and its neighbours are run without it", async () => {
  const { coalescer, groups, until } = statements();
  const all = [{ key: 9 }, { key: 1 }, { key: 2, poisoned: true }, { key: 3 }];
  const answers = Promise.allSettled(all.map((call) => coalescer.submit(call)));
  expect(await until(answers)).toEqual([
    { status: "fulfilled", value: "answer 9" },
    { status: "fulfilled", value: "answer 1" },
    { status: "rejected", reason: new RangeError("poisoned by 2") },
    { status: "fulfilled", value: "answer 3" },
  ]);
  expect(groups).toEqual([[9], [1, 2, 3], [1], [2], [3]]);
});

test("an error after which nobody knows what took effect is everybody's of that statement, and nothing is run again", async () => {
  const { coalescer, groups, fail, until } = statements();
  fail(new TypeError("connection lost"));
  const answers = Promise.allSettled(calls(3).map((call) => coalescer.submit(call)));
  const rejected = { status: "rejected", reason: new TypeError("connection lost") };
  expect(await until(answers)).toEqual([rejected, rejected, rejected]);
  expect(groups).toEqual([[1], [2, 3]]);
});
