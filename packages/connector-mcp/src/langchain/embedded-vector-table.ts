import { type Database, FencelineError } from "@fenceline/ledger";

/** Makes creation of the table by several processes at once one after the other. Any number that nobody else uses. */
const CREATION_LOCK = 7_311_052_118;

export interface VectorRow {
  readonly id: string;
  readonly pageContent: string;
  readonly metadata: Record<string, unknown>;
  /** pgvector's text form. */
  readonly vector: string;
}

export interface NearestRow {
  readonly id: string;
  /** As stored; read with {@link toText}. */
  readonly pageContent: string;
  readonly metadata: Record<string, unknown>;
  readonly score: number;
}

export interface TableFilter {
  readonly source: string[] | undefined;
  readonly uri: string[] | undefined;
  readonly mimeType: string[] | undefined;
}

/** The SQL of {@link EmbeddedVectorStore}: one table of entries, one of collections. */
export class EmbeddedVectorTable {
  readonly #database: Database;
  readonly #schema: string;
  #ready: Promise<string> | undefined;
  readonly #dimensions = new Map<string, number>();

  constructor(database: Database, schema: string) {
    if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) {
      throw new FencelineError(
        "schema_invalid_name",
        `${JSON.stringify(schema)} is not a plain lower-case identifier.`,
      );
    }
    this.#database = database;
    this.#schema = schema;
  }

  /**
   * Creates what is missing, once per instance.
   *
   * @returns the schema of the extension, quoted: a session's search path need not contain it
   * @throws {FencelineError} `pgvector_missing`
   */
  ensure(): Promise<string> {
    this.#ready ??= this.#create().catch((error: unknown) => {
      this.#ready = undefined;
      throw error;
    });
    return this.#ready;
  }

  /** Writes rows in one statement; those whose id is there are replaced. Ids occur once. */
  async write(collection: string, rows: readonly VectorRow[]): Promise<void> {
    const vector = await this.ensure();
    await this.#database.query(
      `insert into ${this.#schema}.embedded_entry
         (id, collection, source, uri, mime_type, page_content, metadata, embedding)
       select id, $1, source, uri, mime_type, page_content, metadata::json, embedding::${vector}.vector
       from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
         as given (id, source, uri, mime_type, page_content, metadata, embedding)
       on conflict (id) do update set
         collection = excluded.collection, source = excluded.source, uri = excluded.uri,
         mime_type = excluded.mime_type, page_content = excluded.page_content,
         metadata = excluded.metadata, embedding = excluded.embedding`,
      [
        collection,
        rows.map(({ id }) => id),
        rows.map(({ metadata: { source } }) => columnOf(source)),
        rows.map(({ metadata: { uri } }) => columnOf(uri)),
        rows.map(({ metadata: { mimeType } }) => columnOf(mimeType)),
        rows.map(({ pageContent }) => fromText(pageContent)),
        rows.map(({ metadata }) => JSON.stringify(metadata)),
        rows.map((row) => row.vector),
      ],
    );
  }

  async remove(ids: readonly string[]): Promise<void> {
    await this.#database.query(`delete from ${this.#schema}.embedded_entry where id = any($1::uuid[])`, [ids]);
  }

  async present(ids: readonly string[]): Promise<string[]> {
    const rows = await this.#database.query<{ id: string }>(
      `select id from ${this.#schema}.embedded_entry where id = any($1::uuid[])`,
      [ids],
    );
    return rows.map(({ id }) => id);
  }

  /** Ids of a collection in order, after one of them. */
  async ids(collection: string, limit: number, after: string | undefined): Promise<string[]> {
    const rows = await this.#database.query<{ id: string }>(
      `select id from ${this.#schema}.embedded_entry
       where collection = $1 and ($2::uuid is null or id > $2) order by id limit $3`,
      [collection, after ?? null, limit],
    );
    return rows.map(({ id }) => id);
  }

  async nearest(collection: string, query: string, k: number, filter: TableFilter): Promise<NearestRow[]> {
    const vector = await this.ensure();
    return this.#database.query<NearestRow>(
      `select id, page_content as "pageContent", metadata,
              1 - (embedding operator(${vector}.<=>) $2::${vector}.vector) as score
       from ${this.#schema}.embedded_entry
       where collection = $1
         and ($4::text[] is null or source = any($4))
         and ($5::text[] is null or uri = any($5))
         and ($6::text[] is null or mime_type = any($6))
       order by embedding operator(${vector}.<=>) $2::${vector}.vector, id
       limit $3`,
      [
        collection,
        query,
        k,
        ...[filter.source, filter.uri, filter.mimeType].map((values) => values?.map(fromText) ?? null),
      ],
    );
  }

  /** Length of a collection's vectors; `undefined` before its first entry. */
  async dimensionsOf(collection: string): Promise<number | undefined> {
    const known = this.#dimensions.get(collection);
    if (known !== undefined) return known;
    const [row] = await this.#database.query<{ dimensions: number }>(
      `select dimensions from ${this.#schema}.embedded_collection where collection = $1`,
      [collection],
    );
    if (row) this.#dimensions.set(collection, row.dimensions);
    return row?.dimensions;
  }

  /** Settles the length of a collection's vectors, by whoever comes first; answers with what is settled. */
  async fixDimensions(collection: string, dimensions: number): Promise<number> {
    const known = await this.dimensionsOf(collection);
    if (known !== undefined) return known;
    await this.#database.query(
      `insert into ${this.#schema}.embedded_collection (collection, dimensions) values ($1, $2) on conflict do nothing`,
      [collection, dimensions],
    );
    return (await this.dimensionsOf(collection)) ?? dimensions;
  }

  async #create(): Promise<string> {
    if (!(await this.#database.ensureVector())) {
      throw new FencelineError(
        "pgvector_missing",
        `The database ${this.#database.address} has no pgvector, which the embedded vector store needs: ` +
          "install the extension, or choose another store.",
      );
    }
    const [extension] = await this.#database.query<{ schema: string }>(
      `select pg_catalog.quote_ident(nspname) as schema from pg_catalog.pg_extension
       join pg_catalog.pg_namespace on pg_namespace.oid = extnamespace where extname = 'vector'`,
    );
    const vector = extension?.schema ?? "public";
    await this.#database.transaction(async (transaction) => {
      // Two processes that create the same table at once would fail on the catalogue's unique index.
      await transaction.query("select pg_catalog.pg_advisory_xact_lock($1)", [CREATION_LOCK]);
      // "if not exists" still asks for the right to create one, which the ledger's role need not have.
      const found = await transaction.query("select 1 from pg_catalog.pg_namespace where nspname = $1", [this.#schema]);
      if (found.length === 0) await transaction.query(`create schema ${this.#schema}`);
      await transaction.query(
        `create table if not exists ${this.#schema}.embedded_collection (
           collection text collate "C" primary key,
           dimensions int not null
         )`,
      );
      await transaction.query(
        `create table if not exists ${this.#schema}.embedded_entry (
           id uuid primary key,
           collection text collate "C" not null,
           source text,
           uri text,
           mime_type text,
           page_content text not null,
           metadata json not null,
           embedding ${vector}.vector not null
         )`,
      );
      await transaction.query(
        `create index if not exists embedded_entry_collection on ${this.#schema}.embedded_entry (collection)`,
      );
    });
    return vector;
  }
}

/** pgvector's text form. Nine digits tell any two 32-bit floats apart, which is what pgvector keeps. */
export function toVector(values: readonly number[]): string {
  return `[${values.map((value) => (value === 0 ? 0 : Number(value.toPrecision(9)))).join(",")}]`;
}

const NUL = "\u0000";
/** "Substitute", the escape. Texts that have neither character are stored as they are. */
const SUB = "\u001a";

/** PostgreSQL's text holds every character but U+0000, which is therefore written as an escape. */
function fromText(text: string): string {
  if (!text.includes(NUL) && !text.includes(SUB)) return text;
  return text.replaceAll(SUB, `${SUB}1`).replaceAll(NUL, `${SUB}0`);
}

/** The text that was stored, U+0000 included. */
export function toText(stored: string): string {
  if (!stored.includes(SUB)) return stored;
  return stored.replaceAll(`${SUB}0`, NUL).replaceAll(`${SUB}1`, SUB);
}

function columnOf(value: unknown): string | null {
  return typeof value === "string" ? fromText(value) : null;
}
