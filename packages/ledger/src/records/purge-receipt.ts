import { z } from "zod";
import type { PurgeReceiptRow } from "../revocations.js";
import { counter, instant, keyedDigest, ledgerId, name } from "./record-fields.js";

/**
 * How far a removal is proven, weakest first; three words that are never used for one another.
 *
 * | claim | means |
 * | --- | --- |
 * | `hidden` | the guard shows it to nobody |
 * | `absent` | the store's own query API did not find it by id, at `absentAt` |
 * | `erased` | physically gone, which only some stores can prove |
 */
const purgeClaims = ["hidden", "absent", "erased"] as const;

/** Proof of what was removed from one store (P3). It outlives the purge and holds neither content nor ids (P8). */
export const purgeReceipt = z
  .strictObject({
    record: z.literal("purgeReceipt.v1"),
    purgeReceiptId: ledgerId,
    /** `null`: removed for the `cause` alone. */
    revocationId: ledgerId.nullable(),
    store: name,
    cause: z.enum(["revoked", "superseded", "tombstoned", "abandoned", "reappeared"]),
    /** How many entries were probed for. */
    entries: counter,
    /** How many of them the store still answers with. */
    remaining: counter,
    /** Of the sorted entry ids. */
    idsDigest: keyedDigest,
    claim: z.enum(purgeClaims),
    startedAt: instant,
    /** When the last probe answered. A claim at a time: what never settled is probed again (P3). */
    absentAt: instant.nullable(),
  })
  .refine(({ claim, absentAt }) => (claim === "hidden") === (absentAt === null), {
    path: ["absentAt"],
    error: "is set exactly with the claims absent and erased",
  })
  .refine(({ claim, remaining }) => claim === "hidden" || remaining === 0, {
    path: ["remaining"],
    error: "is above 0: what remains is hidden at most (P5)",
  })
  .refine(({ entries, remaining }) => remaining <= entries, { path: ["remaining"], error: "is above entries" });
export type PurgeReceipt = z.infer<typeof purgeReceipt>;

/** The record of a receipt that the ledger answers with (`Ledger.purgeReceipts`). What is not gone has none, so nothing remains. */
export function purgeReceiptOf({ revocationId, startedAt, absentAt, ...row }: PurgeReceiptRow): PurgeReceipt {
  return {
    record: "purgeReceipt.v1",
    ...row,
    revocationId: revocationId ?? null,
    remaining: 0,
    startedAt: startedAt.toISOString(),
    absentAt: absentAt.toISOString(),
  };
}
