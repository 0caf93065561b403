import { randomUUID } from "node:crypto";
import type { Ledger } from "#src/ledger.js";

/** An argument of a call: its name in errors, and a value that is taken. */
type Parameter = readonly [name: string, value: unknown];

const bytes = Buffer.alloc(32);
const uri = "catalog://plans/basic";
const session = { sessionId: 1, scopeId: 1, sourceId: 1, source: "catalog", reader: "svc:rag", generation: 1 };
const work = { subscriptionId: 1, ordinal: 1, claimToken: randomUUID() };
const readRef = { subscriptionId: 1, ordinal: 1, requestId: randomUUID() };
const grant = { source: "catalog", reader: "svc:rag", audience: "group:sales", scope: { uri } };
const claim = { groupId: 1, claimToken: randomUUID() };
const chunkDigest = "0f".repeat(32);
const floor = { count: 1, share: 0.5 };
const entryId = randomUUID();
const inSession: Parameter = ["session", session];
const index: Parameter = ["index", { indexId: 1 }];

type AsyncCall = {
  [Call in keyof Ledger]: Ledger[Call] extends (...values: never[]) => Promise<unknown> ? Call : never;
}[keyof Ledger];
type CheckedCall = Exclude<AsyncCall, "onWake" | "close" | "takeDigestKeyOut">;

/** Every call of the facade that reaches the database, with arguments in which every field is given. */
export const calls: Readonly<Record<CheckedCall, readonly Parameter[]>> = {
  registerSource: [["source", { name: "catalog", endpointDigest: bytes, stalenessMs: 1 }]],
  registeredSources: [],
  livingResources: [["source", "catalog"]],
  retireSource: [["name", "catalog"]],
  openSession: [["request", { source: "catalog", reader: "svc:rag", owner: "worker", leaseMs: 1 }]],
  heartbeat: [inSession],
  endSession: [inSession],
  recordCapabilities: [
    inSession,
    [
      "negotiated",
      {
        era: "modern",
        protocolVersion: "2026-07-28",
        server: { name: "catalog", version: "1" },
        resources: true,
        subscribe: true,
        listChanged: true,
        snapshotId: true,
      },
    ],
  ],
  suspendScope: [inSession, ["cause", "401"]],
  resumeScope: [inSession],
  beginScan: [inSession, ["options", { templates: true, budgets: { pages: 1, entries: 1, bytes: 1 } }]],
  recordScanPage: [
    inSession,
    ["scanId", 1],
    [
      "page",
      {
        cursorDigest: bytes,
        nextCursorDigest: bytes,
        list: "resources",
        entries: [
          {
            uri,
            name: "Basic",
            title: "Basic",
            mimeType: "text/plain",
            descriptorDigest: bytes,
            uriTemplate: "catalog://{a}",
          },
        ],
        pageDigest: bytes,
        snapshotIdDigest: bytes,
      },
    ],
  ],
  finishScan: [
    inSession,
    ["scanId", 1],
    [
      "end",
      {
        complete: false,
        verdict: "INCOMPLETE",
        reason: "cursor_loop",
        faults: [{ uri, code: "list_malformed", message: "left out: name" }],
      },
    ],
  ],
  publishCatalog: [inSession, ["scans", { first: 1, second: 1, floor, reviewMs: 1 }]],
  publishUnsettled: [inSession, ["scans", { first: 1, second: 1, attempts: 1 }]],
  recordListChanged: [inSession],
  millisecondsToNextReview: [inSession],
  scansDue: [["options", { limit: 1 }]],
  listedTemplates: [["request", { source: "catalog", reader: "svc:rag", limit: 1, after: "catalog://{plan}" }]],
  heldRemovals: [],
  confirmRemoval: [
    ["heldRemovalId", 1],
    ["confirmedBy", "alice"],
  ],
  provenSnapshot: [inSession],
  removeAbsent: [inSession, ["snapshot", undefined], ["options", { floor }]],
  revokeByEnumeration: [
    inSession,
    ["snapshot", undefined],
    ["request", { requestId: "r", reason: "left", requestedBy: "cli", subject: "user:alice", role: "reader", floor }],
  ],
  subscriptionsToOpen: [inSession, ["page", { limit: 1, afterId: 1 }]],
  templatesInUse: [inSession],
  subscriptionsStillOpen: [inSession, ["subscriptionIds", [1]]],
  openStream: [inSession, ["shard", 1]],
  breakStream: [inSession, ["shard", 1]],
  activateSubscriptions: [inSession, ["answer", { shard: 1, pushed: [1], polled: [2] }]],
  recordNotifications: [inSession, ["uris", [uri]], ["options", { windowMs: 1 }]],
  beginUnsubscribe: [inSession, ["uris", [uri]], ["options", { excluded: true }]],
  subscriptionsToSettle: [inSession, ["page", { limit: 1, afterId: 1 }]],
  settleUnsubscribe: [inSession, ["subscriptionIds", [1]], ["answer", "unknown"]],
  issueDueReads: [inSession, ["page", { limit: 1, leaseMs: 1 }]],
  issueReads: [inSession, ["request", { uris: [uri], reason: "demand", leaseMs: 1 }]],
  millisecondsToNextRead: [inSession],
  acceptResourceVersions: [
    inSession,
    [
      "answers",
      [
        {
          ...readRef,
          digest: bytes,
          mimeType: "text/plain",
          ttlMs: 60_000,
          parts: [{ uri, mimeType: "text/plain", text: "price=100" }],
        },
        { ...readRef, subscriptionId: 2, digest: bytes, parts: [{ uri, bytes }] },
      ],
    ],
  ],
  settleReads: [inSession, ["reads", [{ ...readRef, as: "failed", message: "no answer" }]]],
  registerStore: [["store", { name: "embedded", kind: "embedded" }]],
  registerIndex: [
    [
      "index",
      {
        name: "main",
        version: 1,
        store: "embedded",
        embeddings: "local",
        configurationDigest: bytes,
        takes: "versions",
      },
    ],
  ],
  retireIndex: [
    ["name", "main"],
    ["version", 1],
  ],
  findIndex: [["name", "main"]],
  servingIndex: [["name", "main"]],
  claimIndexWork: [index, ["page", { limit: 1, leaseMs: 1 }]],
  renewIndexWork: [index, ["claimed", [work]], ["lease", { leaseMs: 1 }]],
  releaseIndexWork: [index, ["work", work], ["failure", "no answer"]],
  recordIntents: [
    index,
    ["intents", [{ work, partId: 1, chunkDigests: [chunkDigest] }]],
    ["options", { writerLeaseMs: 1 }],
  ],
  recordFindings: [
    [
      "versions",
      [
        {
          work: { subscriptionId: 1, ordinal: 1 },
          findings: [{ uri, code: "detector", action: "flag", count: 1, detector: "orders" }],
        },
      ],
    ],
  ],
  recordStoreKeys: [["keys", [{ entryId, storeKey: "1" }]]],
  confirmVersions: [index, ["versions", [{ work, written: [{ groupId: 1, partId: 1 }], reused: [entryId] }]]],
  abandonIntents: [["groupIds", [1]]],
  exportVersions: [["page", { source: "catalog", reader: "svc:rag", destination: "loader", limit: 1, afterId: 1 }]],
  recordDerived: [
    index,
    [
      "derivations",
      [
        {
          kind: "summary",
          parents: [
            { as: "alternative", of: { lineageId: "1.1", part: uri }, ingredient: 1 },
            { as: "ingredient", of: { entryId } },
          ],
          digests: [chunkDigest],
          audience: "user:alice",
        },
      ],
    ],
    ["options", { leaseMs: 1 }],
  ],
  confirmDerived: [["groupIds", [1]]],
  cachedEmbeddings: [
    ["cache", { indexId: 1 }],
    ["of", { work, partId: 1, chunkDigests: [chunkDigest] }],
  ],
  attachEmbeddings: [
    ["cache", { indexId: 1 }],
    ["work", work],
    ["entryIds", [entryId]],
  ],
  recordEmbeddings: [
    ["cache", { indexId: 1 }],
    ["parts", [{ work, partId: 1, chunkDigests: [chunkDigest] }]],
    ["options", { leaseMs: 1 }],
  ],
  exportEntries: [["request", { index: "main", entryIds: [entryId], asker: ["user:alice"], destination: "loader" }]],
  exports: [["filter", { after: 1, open: true, revocationId: 1, limit: 1 }]],
  visibleEntries: [["request", { index: "main", entryIds: [entryId], asker: ["user:alice"] }]],
  grant: [
    ["grant", grant],
    ["origin", "api"],
  ],
  withdrawGrant: [
    ["grant", grant],
    ["origin", "api"],
  ],
  replaceConfiguredGrants: [
    ["sources", ["catalog"]],
    ["grants", [grant]],
  ],
  listGrants: [["filter", { source: "catalog", audience: "group:sales" }]],
  revokeForbidden: [inSession, ["reads", [{ subscriptionId: 1, ordinal: 1 }]]],
  revoke: [
    [
      "request",
      {
        requestId: "r",
        source: "catalog",
        subject: "user:alice",
        role: "reader",
        scope: { prefix: "catalog://plans/" },
        reason: "left",
        requestedBy: "cli",
      },
    ],
  ],
  lift: [["revocationId", 1]],
  revocation: [["revocationId", 1]],
  listRevocations: [["filter", { open: true }]],
  advanceRevocation: [
    ["revocationId", 1],
    ["options", { limit: 1 }],
  ],
  revocationsToAdvance: [],
  claimPurge: [["request", { store: "embedded", limit: 1, leaseMs: 1 }]],
  confirmPurge: [
    ["store", "embedded"],
    ["claims", [claim]],
    ["proof", { claim: "absent", reappeared: [entryId] }],
  ],
  releasePurge: [
    ["store", "embedded"],
    ["claims", [claim]],
    ["failure", "no answer"],
  ],
  purgeReceipts: [["revocationId", 1]],
  acknowledgeExport: [["exportId", 1]],
  trace: [["of", { uri }]],
  verify: [],
  status: [],
  recordedEntries: [
    ["index", "main"],
    ["page", { limit: 1, afterId: entryId }],
  ],
  standingOfEntries: [
    ["index", "main"],
    ["entryIds", [entryId]],
  ],
  requeueLostEntries: [
    ["index", "main"],
    ["entryIds", [entryId]],
  ],
  prune: [
    [
      "policy",
      {
        receiptsMs: 600_000,
        readsMs: 600_000,
        purgedGroupsMs: 600_000,
        versionsMs: 600_000,
        scansMs: 600_000,
        sessionsMs: 600_000,
        purgeReceiptsMs: 600_000,
        acknowledgedExportsMs: 600_000,
      },
    ],
    ["options", { batchSize: 1 }],
  ],
  maintain: [],
  position: [],
  recognizeRestore: [["evidence", { requestId: "r" }]],
  recognizedRestores: [],
  unknownRevocations: [["requestIds", ["r"]]],
  scanRecord: [["scanId", 1]],
  subscriptionRecord: [["subscriptionId", 1]],
  versionRecord: [["lineageId", "1.1"]],
  capabilityRecord: [["capabilityReceiptId", 1]],
  entryRecord: [["entryId", entryId]],
  revocationRecord: [["revocationId", 1]],
  purgeRecord: [["purgeReceiptId", 1]],
  receipts: [["page", { after: "1.t1.1", limit: 1, kinds: ["closeReceipt.v1"] }]],
  announce: [["wake", { kind: "read", source: "catalog", reader: "svc:rag" }]],
};

/** Members of a ledger that take nothing, or nothing that reaches the database. */
export const notChecked: ReadonlySet<string> = new Set([
  "address",
  "schema",
  "database",
  "restored",
  "onWake",
  "close",
  "takeDigestKeyOut",
  "withReadTiming",
  "digestChunk",
]);

type Kind =
  | "name"
  | "uri"
  | "scopeUri"
  | "text"
  | "enum"
  | "number"
  | "share"
  | "boolean"
  | "bytes"
  | "content"
  | "uuid"
  | "hex"
  | "entryId";

/** By the last name of a field's path; by the whole path, without places, where that says another thing. */
const KINDS: Readonly<Record<string, Kind>> = {
  ...kinds("name", "source reader owner name protocolVersion confirmedBy requestedBy subject audience store index"),
  ...kinds("name", "embeddings lineageId requestIds sources asker requestId after detector"),
  ...kinds("uri", "uri uris part"),
  ...kinds("scopeUri", "scope.uri scope.prefix grant.scope.uri grants.scope.uri request.scope.prefix"),
  ...kinds("text", "version cause reason title mimeType message text failure destination storeKey"),
  ...kinds("text", "page.entries.name negotiated.server.name negotiated.server.version request.after"),
  ...kinds("text", "end.faults.uri end.faults.code page.entries.uriTemplate"),
  ...kinds(
    "enum",
    "derivations.kind derivations.parents.as takes era list verdict role as origin claim kinds answer action code issueReads:request.reason",
  ),
  ...kinds("share", "share"),
  ...kinds("boolean", "resources subscribe listChanged snapshotId templates open complete excluded"),
  ...kinds("uuid", "claimToken answers.requestId reads.requestId"),
  ...kinds("hex", "chunkDigests digests"),
  ...kinds("entryId", "entryId entryIds reused reappeared page.afterId derivations.parents.of.lineageId"),
  "store.kind": "name",
  "wake.kind": "enum",
};

function kinds(kind: Kind, names: string): Record<string, Kind> {
  return Object.fromEntries(names.split(" ").map((name) => [name, kind]));
}

interface Field {
  /** As errors name it. */
  readonly path: string;
  readonly kind: Kind;
  /** The arguments with another value there. */
  withValue(value: unknown): unknown[];
}

/** Every field of the arguments of a call. */
export function fieldsOf(call: string, parameters: readonly Parameter[]): Field[] {
  return parameters.flatMap(([name, value], place) =>
    leavesOf(value, []).map(({ path, leaf }) => ({
      path: `${name}${path.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("")}`,
      kind: kindOf(call, [name, ...path], leaf),
      withValue: (bad: unknown) =>
        parameters.map(([, given], other) => (other === place ? replaced(given, path, bad) : given)),
    })),
  );
}

/** The arguments of a call with one field more in each of their objects, in turn. */
export function withUnknownField(parameters: readonly Parameter[], field: string, value: unknown): unknown[][] {
  return parameters.flatMap(([, given], place) =>
    objectsOf(given, []).map((path) =>
      parameters.map(([, other], at) => (at === place ? replaced(other, [...path, field], value) : other)),
    ),
  );
}

function objectsOf(value: unknown, path: Path): Path[] {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return [];
  const inside = Object.entries(value).flatMap(([step, member]) =>
    objectsOf(member, [...path, Array.isArray(value) ? Number(step) : step]),
  );
  return Array.isArray(value) ? inside : [path, ...inside];
}

type Path = readonly (string | number)[];

function leavesOf(value: unknown, path: Path): { path: Path; leaf: unknown }[] {
  if (value === undefined) return [];
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return [{ path, leaf: value }];
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return entries.flatMap(([step, member]) => leavesOf(member, [...path, step as string | number]));
}

function kindOf(call: string, path: Path, leaf: unknown): Kind {
  if (typeof leaf === "number") return path.at(-1) === "share" ? "share" : "number";
  if (leaf instanceof Uint8Array) return path.at(-1) === "bytes" ? "content" : "bytes";
  const steps = path.filter((step) => typeof step === "string");
  const kind = KINDS[`${call}:${steps.join(".")}`] ?? KINDS[steps.join(".")] ?? KINDS[steps.at(-1) as string];
  if (kind === undefined) throw new Error(`The field ${steps.join(".")} is of no kind that the test knows.`);
  return kind;
}

function replaced(value: unknown, path: Path, bad: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return bad;
  if (Array.isArray(value))
    return value.map((member, place) => (place === step ? replaced(member, rest, bad) : member));
  return { ...(value as object), [step]: replaced((value as Record<string, unknown>)[step], rest, bad) };
}
