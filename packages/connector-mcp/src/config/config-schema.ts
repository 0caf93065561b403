import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import { z } from "zod";
import { choiceSchema } from "./choice-settings.js";
import { guardSchema } from "./guard-settings.js";
import { ownSettingsSchema, settingsSchema } from "./settings.js";

const name = () =>
  z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, { error: "letters, digits, '.', '_' and '-' only" });
const subject = () => z.string().min(1).max(200);
const addressOf = (...schemes: string[]) =>
  z.string().refine((address) => schemes.some((scheme) => address.startsWith(scheme)), {
    error: `an address that begins with ${schemes.join(" or ")}`,
  });

const ledgerAddress = () => addressOf("file:", "postgres://", "postgresql://");
const queueAddress = z
  .string()
  .refine((address) => address === "embedded" || /^(rediss?|postgres(ql)?):\/\//.test(address), {
    error: '"embedded", redis://… or postgres://…',
  });

/** Where jobs are queued: `embedded` is the ledger's own database; else a Redis or PostgreSQL address. */
export type QueueAddress = z.output<typeof queueAddress>;

const headers = z.record(z.string(), z.string());
const environment = z.record(z.string(), z.string());

/** Where the bearer token of a server over HTTP comes from. */
const auth = z.discriminatedUnion("type", [
  /** OAuth 2.1 client credentials. The secret goes to this issuer alone, whatever the server advertises. */
  z.strictObject({
    type: z.literal("client_credentials"),
    clientId: z.string().min(1),
    clientSecret: z.string().min(1),
    issuer: addressOf("http://", "https://"),
    scope: z.string().min(1).optional(),
  }),
  /** A program and its arguments, run without a shell: the first line that it writes within `timeoutMs` is the token, for `tokenMs` or until a 401. */
  z.strictObject({
    type: z.literal("command"),
    command: z.array(z.string()).min(1),
    tokenMs: z.int().positive().optional(),
    timeoutMs: z.int().positive().optional(),
  }),
]);

/** One of several readers of a source, each with its own credential. */
const ownCredential = z.strictObject({
  headers: headers.optional(),
  env: environment.optional(),
  auth: auth.optional(),
});

/** An entry of `mcpServers`, in the shape MCP hosts use, with `reader` or `readers` added. */
const source = z
  .strictObject({
    /** A server started here and spoken to over standard input and output … */
    command: z.string().min(1).optional(),
    args: z.array(z.string()).optional(),
    env: environment.optional(),
    cwd: z.string().min(1).optional(),
    /** … or one reached over Streamable HTTP. */
    url: addressOf("http://", "https://").optional(),
    headers: headers.optional(),
    /** Where the bearer token comes from, if it is none of the headers. */
    auth: auth.optional(),
    /** Hosts write it; what counts is whether there is a `url` or a `command`. */
    type: z.enum(["stdio", "http", "streamable-http", "streamableHttp"]).optional(),
    /** Left out as if it were not there; what was derived from it stays. */
    disabled: z.boolean().optional(),
    /** Under whose authorization it is read (G1): one reader, or several, each with its own headers. */
    reader: subject().optional(),
    readers: z.record(subject(), ownCredential).optional(),
    /** Tools called once per connection, for servers that must be switched on before they notify. */
    afterConnect: z
      .array(z.strictObject({ tool: z.string().min(1), arguments: z.record(z.string(), z.unknown()).optional() }))
      .optional(),
    /** What of it is taken. */
    resources: choiceSchema.optional(),
    settings: ownSettingsSchema.optional(),
  })
  .refine((source) => (source.command === undefined) !== (source.url === undefined), {
    error: "exactly one of command and url",
  })
  .refine(
    (source) => source.url !== undefined || ![source, ...Object.values(source.readers ?? {})].some(({ auth }) => auth),
    { error: "auth belongs to a url; a command takes its credential from env" },
  )
  .refine((source) => (source.reader === undefined) !== (source.readers === undefined), {
    error: "exactly one of reader and readers",
  });

const grant = z
  .strictObject({
    source: name(),
    reader: subject(),
    audience: subject(),
    uri: z.string().min(1).optional(),
    prefix: z.string().min(1).optional(),
    everything: z.literal(true).optional(),
  })
  .refine((grant) => [grant.uri, grant.prefix, grant.everything].filter((scope) => scope !== undefined).length === 1, {
    error: "exactly one of uri, prefix and everything",
  });

/** A store made by the program itself: a LangChain `VectorStore` with a `present` method, or a `StoreAdapter`. */
export type StoreInstance = object;

const isObjectWith = (value: unknown, ...methods: string[]): boolean =>
  typeof value === "object" &&
  value !== null &&
  methods.every((method) => typeof (value as Record<string, unknown>)[method] === "function");

const store = z.union(
  [
    z.literal("embedded"),
    z.strictObject({ type: z.literal("pgvector"), address: ledgerAddress() }),
    z.custom<StoreInstance>(
      (value) => isObjectWith(value, "delete", "addVectors") || isObjectWith(value, "remove", "write"),
    ),
  ],
  { error: '"embedded", { "type": "pgvector", "address": "file:… or postgres://…" } or, in code, a store' },
);

const embeddings = z.union(
  [z.literal("local"), z.custom<EmbeddingsInterface>((value) => isObjectWith(value, "embedDocuments", "embedQuery"))],
  { error: '"local" or, in code, an Embeddings instance' },
);

const index = z.strictObject({
  store: store.default("embedded"),
  embeddings: embeddings.default("local"),
  /** Name of the embedding space, to be changed when an `Embeddings` instance is exchanged for another. */
  embeddingsName: z.string().min(1).optional(),
  /** Raised to have the index built anew beside the serving one (`reindex`). */
  version: z.int().positive().default(1),
  /** In code: a LangChain text splitter. Without one, texts are cut by MIME type. */
  splitter: z
    .custom<{ splitText(text: string): Promise<string[]> }>((value) => isObjectWith(value, "splitText"), {
      error: "a text splitter",
    })
    .optional(),
  /** In characters. */
  chunkSize: z.int().positive().default(1_000),
  chunkOverlap: z.int().min(0).default(100),
});

/** The whole configuration. Every field but `mcpServers` has a default. */
export const configSchema = z
  .strictObject({
    $schema: z.string().optional(),
    /** `file:DIR` (embedded) or `postgres://…`. */
    ledger: ledgerAddress().default("file:.fenceline"),
    /** Schema of the ledger's tables. */
    ledgerSchema: z.string().optional(),
    /** Address of the PostgreSQL server itself, for listening, where `ledger` leads to a pooler in transaction mode. */
    ledgerListen: addressOf("postgres://", "postgresql://").optional(),
    queue: queueAddress.default("embedded"),
    /** What the names of the queues begin with. */
    queuePrefix: name().default("fenceline"),
    mcpServers: z.record(name(), source),
    grants: z.array(grant).default([]),
    indexes: z.record(name(), index).prefault({ main: {} }),
    guard: guardSchema.prefault({}),
    settings: settingsSchema.prefault({}),
  })
  .superRefine((config, context) => {
    for (const [position, grant] of config.grants.entries()) {
      if (!(grant.source in config.mcpServers)) {
        context.addIssue({ code: "custom", path: ["grants", position, "source"], message: "a name under mcpServers" });
      }
    }
  });

/** The configuration as it is written: whatever has a default may be left out. */
export type FencelineConfigInput = z.input<typeof configSchema>;

/** The configuration as it is used: checked, with every default filled in. */
export type FencelineConfig = z.output<typeof configSchema>;

/** An entry of `mcpServers`. */
export type SourceConfig = z.output<typeof source>;

/** An entry of `indexes`. */
export type IndexConfig = z.output<typeof index>;
