import { FencelineError } from "@fenceline/ledger";

/**
 * Codes thrown by the connector package. No message carries a header value, an environment value or a URL's credentials;
 * the error that came over the wire rides as `cause`.
 *
 * | code | when | what to do |
 * | --- | --- | --- |
 * | `source_endpoint_invalid` | a source's URL, header or command cannot be used at all | correct the configuration |
 * | `source_unreachable` | nothing answers at the endpoint, the command cannot be started, or a gateway answers for it | start the server, or correct the endpoint |
 * | `source_unauthorized` | the server answered 401: the credential is missing, wrong or expired | renew the source's credential |
 * | `source_forbidden` | the server answered 403: the credential is known and not allowed | ask the server's owner, or remove the source |
 * | `source_throttled` | the server answered 429: it is asked too often | lower `readConcurrency`, or set `readsPerSecond` |
 * | `source_lost` | the session ended: the process died, or the server no longer knows the session | connect again; subscriptions must be opened anew |
 * | `source_failed` | the server answered with an error that fits no other code | see `cause` |
 * | `request_timeout` | no answer within the request's timeout | raise `requestTimeoutMs`, or see why the server is slow |
 * | `request_aborted` | the caller's signal ended the request | nothing: the caller wanted it |
 * | `response_too_large` | an answer exceeds `maxMessageBytes`: three times `maxBodyBytes`, and 64 MiB at least | raise `maxBodyBytes`, or leave the resource out |
 * | `response_invalid` | an answer does not fit the protocol's schema | report it to the server's author |
 * | `after_connect_failed` | a tool named in `afterConnect` is missing or answered with an error | correct the tool's name or arguments |
 * | `config_missing` | there is no configuration file | write one, or name it with `--config` |
 * | `config_invalid` | the configuration has wrong fields; the message names each | correct the named fields |
 * | `source_moved` | a source of which something was read is configured at another place | say in `confirm`, or with `--moved`, that it is the same server; or name the other one otherwise |
 * | `source_removed` | a source of which something was read is configured no more | say in `confirm`, or with `--removed`, that it is gone; or revoke, disable it or put it back |
 * | `queue_unreachable` | the queue's Redis or PostgreSQL does not answer | check address, network and credentials |
 * | `job_payload_invalid` | a job's data does not fit the queue's published schema | correct the program that added the job |
 * | `resources_not_offered` | a server declares no resources capability: its source is unknown, never empty | see the server's settings, or remove the source |
 * | `reader_unknown` | a grant names a reader that the source is not read as | correct the name, or configure the reader |
 * | `index_unknown` | no index of that name is configured, or several are and none was named | name one of the configured indexes |
 * | `pool_closed` | a worker pool was used after `close()` | start another |
 * | `asker_missing` | a retrieval names nobody who asks | pass `configurable: { asker: ["user:…", "group:…"] }` |
 * | `store_unsuitable` | a vector store cannot keep ids, delete by them or say which it holds; the message says which | choose another store, or write an adapter |
 * | `store_failed` | a vector store answered with an error, its `cause` | see the cause |
 * | `store_timeout` | a vector store did not answer within half the index lease | see why the store is slow |
 * | `store_write_lost` | a vector store does not show what it was just given | see the store's consistency settings |
 * | `store_purge_unverified` | a vector store still shows entries after they were deleted by id | see the store's consistency settings; the purge is tried again |
 * | `store_request_invalid` | a call that the embedded vector store does not take: another filter key, an id that is no UUID, a delete without ids | correct the call |
 * | `embeddings_failed` | the embedding model answered with an error, its `cause`, three times | see the cause |
 * | `embeddings_mismatch` | vectors of another number or length than expected | use the model the index was built with, or a new index version |
 */
export type ConnectorErrorCode =
  | "source_endpoint_invalid"
  | "source_unreachable"
  | "source_unauthorized"
  | "source_forbidden"
  | "source_throttled"
  | "source_lost"
  | "source_failed"
  | "request_timeout"
  | "request_aborted"
  | "response_too_large"
  | "response_invalid"
  | "after_connect_failed"
  | "config_missing"
  | "config_invalid"
  | "source_moved"
  | "source_removed"
  | "queue_unreachable"
  | "job_payload_invalid"
  | "resources_not_offered"
  | "reader_unknown"
  | "index_unknown"
  | "pool_closed"
  | "asker_missing"
  | "store_unsuitable"
  | "store_failed"
  | "store_timeout"
  | "store_write_lost"
  | "store_purge_unverified"
  | "store_request_invalid"
  | "embeddings_failed"
  | "embeddings_mismatch";

/** An error of this package: a {@link FencelineError} whose `code` is one of {@link ConnectorErrorCode}. */
export function connectorError(
  code: ConnectorErrorCode,
  message: string,
  options?: { cause?: unknown },
): FencelineError<ConnectorErrorCode> {
  return new FencelineError(code, message, options);
}
