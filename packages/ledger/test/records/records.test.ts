import { describe, expect, expectTypeOf, it } from "vitest";
import type { z } from "zod";
import { formatEntryId } from "#src/entry-id.js";
import { capabilityReceipt } from "#src/records/capability-receipt.js";
import { derivedEntry } from "#src/records/derived-entry.js";
import { parseRecordAs } from "#src/records/parse-record.js";
import { permissionRevocation } from "#src/records/permission-revocation.js";
import { purgeReceipt } from "#src/records/purge-receipt.js";
import {
  type ProvenSnapshotRecord,
  provenSnapshot,
  resourceDiscoveryScan,
} from "#src/records/resource-discovery-scan.js";
import { resourceSubscription } from "#src/records/resource-subscription.js";
import { resourceVersion } from "#src/records/resource-version.js";

const at = "2026-11-30T10:00:00.000Z";
const digest = "0f".repeat(32);
const server = { name: "catalog", version: "1.0.0" };
const who = { source: "catalog", subject: "svc:rag" };

const walk = {
  record: "resourceDiscoveryScan.v1",
  scanId: 2,
  ...who,
  sessionId: 1,
  sessionGeneration: 1,
  startedAt: at,
  endedAt: at,
  pages: 2,
  cursorDigests: [digest, digest],
  resources: 25,
  templates: false,
  notificationsObserved: 0,
};
const published = { setDigest: digest, measuredAt: at, stalenessBoundMs: 900_000, nextReviewAt: at };
const proven = { ...walk, ...published, verdict: "SNAPSHOT_PROVEN", snapshotIdDigest: digest };
const unproven = { ...walk, ...published, verdict: "SNAPSHOT_UNPROVEN", agreedWithScanId: 1 };

const subscription = {
  record: "resourceSubscription.v1",
  subscriptionId: 7,
  ...who,
  server,
  uri: "catalog://plans/basic",
  sessionId: 1,
  capabilityReceiptId: 1,
  generation: 1,
  lifecycle: "ACTIVE",
  state: "UPDATE_SEEN",
  mode: "pushed",
  startedAt: at,
  endedAt: null,
  notificationNumber: 2,
  issuedOrdinal: 6,
  acceptedOrdinal: 5,
  lastAcceptedDigest: digest,
  verifiedAt: at,
  closeOrdinal: null,
  closeEpoch: null,
};

const revocation = {
  record: "permissionRevocation.v1",
  revocationId: 1,
  requestId: "left-the-team",
  source: null,
  subject: "user:alice",
  role: "both",
  scope: { prefix: "catalog://plans/" },
  reason: "left the team",
  requestedBy: "cli",
  requestedAt: at,
  effectiveAt: at,
  completedAt: null,
  liftedAt: null,
  state: "EFFECTIVE",
  nothingCovered: false,
  covered: { resources: 3, entries: 30 },
};

const purge = {
  record: "purgeReceipt.v1",
  purgeReceiptId: 1,
  revocationId: 1,
  store: "embedded",
  cause: "revoked",
  entries: 30,
  remaining: 0,
  idsDigest: digest,
  claim: "absent",
  startedAt: at,
  absentAt: at,
};

const valid: readonly [z.ZodType, Readonly<Record<string, unknown>> & { readonly record: string }][] = [
  [resourceDiscoveryScan, proven],
  [resourceDiscoveryScan, unproven],
  [resourceDiscoveryScan, { ...walk, setDigest: digest, verdict: null }],
  [resourceDiscoveryScan, { ...walk, setDigest: digest, verdict: "UNSETTLED", attempts: 5 }],
  [resourceDiscoveryScan, { ...walk, verdict: "INCOMPLETE", reason: "the cursor came back with the same page" }],
  [resourceDiscoveryScan, { ...walk, verdict: "VOID", reason: "page 2 bound another snapshot id" }],
  [resourceSubscription, subscription],
  [
    resourceVersion,
    {
      record: "resourceVersion.v1",
      lineageId: "7-5",
      readId: "0190",
      scanId: null,
      policyEpoch: 0,
      ...who,
      subscriptionId: 7,
      uri: "catalog://plans/basic",
      mimeType: "text/markdown",
      contentDigest: digest,
      readOrdinal: 5,
      generation: 1,
      server: null,
      acceptedAt: "2026-11-30T11:00:00+01:00",
    },
  ],
  [
    capabilityReceipt,
    {
      record: "capabilityReceipt.v1",
      capabilityReceiptId: 1,
      ...who,
      sessionId: 1,
      era: "modern",
      protocolVersion: "2026-07-28",
      server,
      resources: true,
      subscribe: false,
      listChanged: true,
      snapshotId: false,
      negotiatedAt: at,
    },
  ],
  [
    derivedEntry,
    {
      record: "derivedEntry.v1",
      entryId: formatEntryId({ mark: "0123456789ab", indexId: 1, number: 9 }),
      kind: "answer",
      index: "answers",
      store: "embedded",
      parents: [
        { as: "ingredient", ingredient: 0, of: { lineageId: "7-5" } },
        {
          as: "ingredient",
          ingredient: 1,
          of: { entryId: formatEntryId({ mark: "0123456789ab", indexId: 1, number: 8 }) },
        },
      ],
      audience: "user:alice",
      state: "INTENT",
      recordedAt: at,
    },
  ],
  [permissionRevocation, revocation],
  [purgeReceipt, purge],
];

describe("every record", () => {
  it.each(valid.map(([schema, value]) => ({ name: value.record, schema, value })))(
    "$name survives the way through JSON",
    ({ schema, value }) => {
      expect(parseRecordAs(schema, JSON.parse(JSON.stringify(value)))).toEqual(value);
    },
  );

  it.each(valid.map(([schema, value]) => ({ name: value.record, schema, value })))(
    "$name refuses a field that is not its own, a missing one and another record's name (P8)",
    ({ schema, value }) => {
      expect(schema.safeParse({ ...value, text: "price=100" }).success).toBe(false);
      expect(schema.safeParse({ ...value, record: "other.v1" }).success).toBe(false);
      for (const field of Object.keys(value)) {
        const without = Object.fromEntries(Object.entries(value).filter(([name]) => name !== field));
        expect(schema.safeParse(without).success, field).toBe(false);
      }
    },
  );

  it("that does not fit is refused as record_invalid, and the error names each wrong field", () => {
    const wrong = { ...revocation, effectiveAt: "2026-11-30 10:00", covered: { resources: -1, entries: 0 } };
    expect(() => parseRecordAs(permissionRevocation, wrong)).toThrowError(
      expect.objectContaining({
        code: "record_invalid",
        message: expect.stringMatching(/effectiveAt: .*covered\.resources: /),
      }),
    );
  });
});

describe("a discovery scan", () => {
  it("that is unproven is neither by type nor when forced a proven snapshot (S6)", () => {
    expectTypeOf<
      Extract<z.infer<typeof resourceDiscoveryScan>, { verdict: "SNAPSHOT_UNPROVEN" }>
    >().not.toExtend<ProvenSnapshotRecord>();
    expect(provenSnapshot.safeParse(unproven).success).toBe(false);
    expect(provenSnapshot.safeParse({ ...unproven, verdict: "SNAPSHOT_PROVEN" }).success).toBe(false);
    expect(provenSnapshot.safeParse(proven).success).toBe(true);
  });

  it("that was published says when it was measured, how long that holds and when it is reviewed (S5)", () => {
    for (const field of ["measuredAt", "stalenessBoundMs", "nextReviewAt", "agreedWithScanId"]) {
      expect(resourceDiscoveryScan.safeParse({ ...unproven, [field]: undefined }).success, field).toBe(false);
    }
  });

  it("that is incomplete has no digest of a set it did not see (S2)", () => {
    const incomplete = { ...walk, verdict: "INCOMPLETE", reason: "page budget", setDigest: digest };
    expect(resourceDiscoveryScan.safeParse(incomplete).success).toBe(false);
  });
});

describe("a subscription", () => {
  it("holds a close ordinal exactly from the beginning of a close on, equal to the last issued (U7)", () => {
    const closed = {
      ...subscription,
      lifecycle: "CLOSED",
      state: "CLOSED",
      closeOrdinal: 6,
      closeEpoch: 1,
      endedAt: at,
    };
    expect(resourceSubscription.safeParse(closed).success).toBe(true);
    expect(resourceSubscription.safeParse({ ...closed, closeOrdinal: null }).success).toBe(false);
    expect(resourceSubscription.safeParse({ ...closed, issuedOrdinal: 7 }).success).toBe(false);
    expect(resourceSubscription.safeParse({ ...subscription, closeOrdinal: 6 }).success).toBe(false);
  });

  it("never accepted more than was issued (F3)", () => {
    expect(resourceSubscription.safeParse({ ...subscription, acceptedOrdinal: 7 }).success).toBe(false);
  });

  it("shows, outside ACTIVE, the state it is stored in (U9)", () => {
    const unknown = { ...subscription, lifecycle: "UNSUBSCRIBE_UNKNOWN", closeOrdinal: 6, closeEpoch: 1 };
    expect(resourceSubscription.safeParse({ ...unknown, state: "ACTIVE" }).success).toBe(false);
    expect(resourceSubscription.safeParse({ ...unknown, state: "UNSUBSCRIBE_UNKNOWN" }).success).toBe(true);
    expect(resourceSubscription.safeParse({ ...subscription, state: "CLOSED" }).success).toBe(false);
  });
});

describe("a revocation", () => {
  it("has an end time exactly if it was lifted, and a completion if it is complete (P1, P5)", () => {
    expect(permissionRevocation.safeParse({ ...revocation, state: "LIFTED" }).success).toBe(false);
    expect(permissionRevocation.safeParse({ ...revocation, liftedAt: at }).success).toBe(false);
    expect(permissionRevocation.safeParse({ ...revocation, state: "LIFTED", liftedAt: at }).success).toBe(true);
    expect(permissionRevocation.safeParse({ ...revocation, state: "COMPLETE" }).success).toBe(false);
  });
});

describe("a purge receipt", () => {
  it("never claims absence with something left, nor without the time of the probe (P3, P5)", () => {
    expect(purgeReceipt.safeParse({ ...purge, remaining: 1 }).success).toBe(false);
    expect(purgeReceipt.safeParse({ ...purge, claim: "erased", remaining: 1 }).success).toBe(false);
    expect(purgeReceipt.safeParse({ ...purge, absentAt: null }).success).toBe(false);
    expect(purgeReceipt.safeParse({ ...purge, claim: "hidden" }).success).toBe(false);
    expect(purgeReceipt.safeParse({ ...purge, claim: "hidden", remaining: 1, absentAt: null }).success).toBe(true);
    expect(purgeReceipt.safeParse({ ...purge, claim: "hidden", remaining: 31, absentAt: null }).success).toBe(false);
  });
});

describe("fields that records share", () => {
  it.each([
    { startedAt: "2026-11-30T10:00:00" },
    { startedAt: "yesterday" },
    { idsDigest: digest.toUpperCase() },
    { idsDigest: "0f" },
    { purgeReceiptId: 0 },
    { purgeReceiptId: 1.5 },
    { purgeReceiptId: 2 ** 53 },
    { purgeReceiptId: "1" },
    { store: "" },
  ])("refuse %j: times have a zone, digests are lower-case hex, ids are safe positive numbers", (wrong) => {
    expect(purgeReceipt.safeParse({ ...purge, ...wrong }).success).toBe(false);
  });
});
