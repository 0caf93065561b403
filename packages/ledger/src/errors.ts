/**
 * The one family of errors that Fenceline throws. What came over a wire (an MCP, HTTP or SQL error) rides as `cause`
 * and is never rethrown bare, so a caller can switch on `code` alone.
 */
export class FencelineError<Code extends string = string> extends Error {
  override readonly name = "FencelineError";
  /** Stable identifier; every code is documented where its union is declared. */
  readonly code: Code;
  /** Of `input_invalid`: the path of the field that does not fit, such as `answers[3].ordinal`. */
  readonly field?: string;

  constructor(code: Code, message: string, options: { cause?: unknown; field?: string } = {}) {
    const { field, ...rest } = options;
    super(message, rest);
    this.code = code;
    if (field !== undefined) this.field = field;
  }
}

/**
 * Codes thrown by the ledger package.
 *
 * | code | when | what to do |
 * | --- | --- | --- |
 * | `address_invalid` | a ledger address is neither `file:DIR` nor `postgres://…` | correct the address |
 * | `address_in_use` | an embedded directory is held by a process that does not answer | stop that process, or wait until it ends |
 * | `database_unreachable` | no connection to the database within the deadline | check address, network and credentials |
 * | `schema_newer` | the database was migrated by a newer Fenceline | run that version or newer |
 * | `schema_invalid_name` | the schema name is not a plain lower-case identifier | choose another name |
 * | `pgvector_missing` | the embedded vector store was asked for on a PostgreSQL without the `vector` extension | install pgvector, or choose another store |
 * | `input_invalid` | an argument of a call does not fit; nothing was written | correct the field that `field` and the message name |
 * | `record_invalid` | a record does not fit its schema | see the named fields |
 * | `record_unknown` | a record has a name or version that this Fenceline does not know | read it with the version that wrote it, or a newer one |
 * | `cursor_unknown` | a feed's cursor is none, or of the ledger before a backup of it was restored or it was moved to another cluster | begin again without one; what comes twice has the same position |
 * | `uri_invalid` | a URI scope is empty or does not end at a segment bound | correct the scope |
 * | `source_unknown` | no source of that name was registered | register it, or correct the name |
 * | `store_unknown` | an index names a store that was not registered | register the store first |
 * | `index_configuration_changed` | a version of an index came again with another store, embedding or configuration | raise the index's version |
 * | `index_retired` | a version of an index was retired, and comes again | raise the index's version |
 * | `derivation_too_large` | a derived entry is made of more than 10,000 ingredients | derive it in steps |
 * | `revocation_unknown` | there is no revocation with this id | list the revocations |
 * | `request_id_reused` | a `requestId` came again with other contents | use a new id for a new request |
 * | `digest_key_invalid` | a digest key is shorter than 32 bytes, or neither hex nor base64 | make one with `openssl rand -hex 32` |
 * | `digest_key_missing` | the ledger's digest key is kept outside of it and was not given | pass it as `digestKey` |
 * | `digest_key_wrong` | the digest key is not the one that the ledger's digests were made with | pass that one |
 * | `snapshot_not_proven` | a task that needs completeness was given a snapshot that is not, or no longer, proven (S6) | scan again and use the snapshot of its publication |
 * | `position_invalid` | a text is no position of a ledger | pass the `token` of one |
 * | `witness_failed` | the witness could not be read or written; a revocation stands, and is not kept outside | see the cause, then ask again with the same `requestId` |
 * | `witness_of_another_ledger` | a position or a witness belongs to another ledger | give each ledger a witness of its own |
 * | `session_unsuitable` | the connections of a caller's pool, or of a pooler, have settings under which the ledger would decide wrongly | change the named setting |
 * | `ledger_closed` | the ledger was used after `close()` | open it again |
 * | `connection_lost` | the connection broke while a statement or a commit ran, so it may or may not have taken effect | look at the data, then decide |
 * | `statement_failed` | the database refused a statement; its own error is the `cause` | see the cause |
 * | `integer_unsafe` | a `bigint` beyond 2^53 - 1 was read | cast it to text in the statement |
 * | `directory_incompatible` | an embedded directory was written by another PostgreSQL major version, or holds something else | use the version that wrote it, or another directory |
 * | `directory_lost` | an embedded directory was deleted or moved while it was open; what was written since is lost | put it back, or open another directory |
 * | `migration_failed` | a migration was refused by the database; nothing of it was applied | see the cause |
 * | `migration_changed` | a migration that was applied before has other contents now | restore the published file |
 * | `assertion_failed` | a bug of Fenceline's or of the calling program, such as an id part out of its range | see the message; report it if the call was right |
 */
export type LedgerErrorCode =
  | "address_invalid"
  | "address_in_use"
  | "database_unreachable"
  | "schema_newer"
  | "schema_invalid_name"
  | "pgvector_missing"
  | "input_invalid"
  | "record_invalid"
  | "record_unknown"
  | "cursor_unknown"
  | "uri_invalid"
  | "source_unknown"
  | "store_unknown"
  | "index_configuration_changed"
  | "index_retired"
  | "derivation_too_large"
  | "revocation_unknown"
  | "request_id_reused"
  | "digest_key_invalid"
  | "digest_key_missing"
  | "digest_key_wrong"
  | "snapshot_not_proven"
  | "position_invalid"
  | "witness_failed"
  | "witness_of_another_ledger"
  | "session_unsuitable"
  | "ledger_closed"
  | "connection_lost"
  | "statement_failed"
  | "integer_unsafe"
  | "directory_incompatible"
  | "directory_lost"
  | "migration_failed"
  | "migration_changed"
  | "assertion_failed";

/**
 * An assertion that stays on in production: a false condition is a bug of ours or of the calling program.
 *
 * @throws {FencelineError} `assertion_failed`
 */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new FencelineError("assertion_failed", message);
}
