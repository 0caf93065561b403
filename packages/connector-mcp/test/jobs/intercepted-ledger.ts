import type { Ledger } from "@fenceline/ledger";

/** The ledger, with calls of its own that go before, after or instead of its. */
export function interceptedLedger(ledger: Ledger, own: (ledger: Ledger) => Partial<Ledger>): Ledger {
  const calls: Partial<Ledger> = {
    ...own(ledger),
    // What a pool works with is the ledger under its own timing.
    withReadTiming: (timing) => interceptedLedger(ledger.withReadTiming(timing), own),
  };
  return new Proxy(ledger, {
    get(target, name) {
      const call: unknown = Reflect.get(calls, name) ?? Reflect.get(target, name, target);
      return typeof call === "function" ? call.bind(target) : call;
    },
  });
}
