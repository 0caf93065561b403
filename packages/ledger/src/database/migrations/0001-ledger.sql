-- The tables of the ledger. Every fact that decides something is a row here (design: the ledger decides, the queue wakes).
-- Hot rows (subscription, outbox, entry_group, group_root) carry a fill factor below 100 and, but for
-- subscription_due, no index on a column that changes with every read: their updates stay heap-only or short.

create schema if not exists fenceline;

-- The ledger's clock. Everything asks it; tests replace it.
create function fenceline.now() returns timestamptz language sql volatile as 'select clock_timestamp()';

create type fenceline.lifecycle as enum
  ('DISCOVERED', 'SUBSCRIBING', 'ACTIVE', 'UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN', 'RECONCILIATION_REQUIRED');
create type fenceline.group_state as enum ('INTENT', 'PRESENT', 'ABANDONED', 'PURGING', 'PURGED');
create type fenceline.edge_state as enum ('PENDING', 'CURRENT', 'SUPERSEDED', 'TOMBSTONED', 'REVOKED');
create type fenceline.scan_verdict as enum ('SNAPSHOT_PROVEN', 'SNAPSHOT_UNPROVEN', 'UNSETTLED', 'INCOMPLETE', 'VOID');
create type fenceline.revocation_state as enum ('EFFECTIVE', 'COMPLETE', 'COMPLETE_EXCEPT_EXPORTS', 'LIFTED');
create type fenceline.revocation_role as enum ('reader', 'audience', 'both');

-- One row. `mark` stands in every public entry id, `digest_key` keys the digests that outlive content (P8).
create table fenceline.identity (
  singleton boolean primary key default true constraint identity_is_one_row check (singleton),
  mark text not null default substr(md5(gen_random_uuid()::text), 1, 12),
  digest_key bytea not null default decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
  created_at timestamptz not null default fenceline.now()
);
insert into fenceline.identity default values;

create table fenceline.source (
  source_id int generated always as identity primary key,
  name text collate "C" not null unique,
  endpoint_digest bytea,
  staleness_ms bigint not null default 900000,
  registered_at timestamptz not null default fenceline.now()
);

create table fenceline.subject (
  subject_id bigint generated always as identity primary key,
  name text collate "C" not null unique
);

-- One source under one subject: the unit of the scope fence, an advisory transaction lock on scope_id.
create table fenceline.policy_scope (
  scope_id int generated always as identity primary key,
  source_id int not null,
  subject_id bigint not null,
  policy_epoch bigint not null default 0,          -- rises with every revocation and lift of this scope (F2)
  standing_revocations int not null default 0,     -- 0 lets the hot paths skip the coverage test
  session_generation bigint not null default 0,    -- rises with every session (reliability 1)
  list_changed_number bigint not null default 0,   -- list_changed notifications seen (S4)
  suspended_at timestamptz,                        -- a 401 suspends: unverified, never revoked by itself (P7)
  catalog_scan_id bigint,
  catalog_verdict fenceline.scan_verdict,
  catalog_measured_at timestamptz,
  next_review_at timestamptz,
  unique (source_id, subject_id)
) with (fillfactor = 50);
create index policy_scope_subject on fenceline.policy_scope (subject_id);

create table fenceline.session (
  session_id bigint generated always as identity primary key,
  scope_id int not null,
  generation bigint not null,
  owner text not null,
  lease_ms int not null,
  expires_at timestamptz not null,
  started_at timestamptz not null default fenceline.now(),
  ended_at timestamptz,
  server_name text,
  server_version text,
  protocol_version text,
  snapshots_distrusted boolean not null default false,  -- a snapshot id contradicted itself (S3)
  unique (scope_id, generation)
);

create table fenceline.capability_receipt (
  capability_receipt_id bigint generated always as identity primary key,
  session_id bigint not null,
  negotiated jsonb not null,
  at timestamptz not null default fenceline.now()
);

-- A stream of one shard; its epoch rises when it breaks and again is opened anew only after an acknowledgement (U4).
create table fenceline.stream (
  scope_id int not null,
  shard int not null,
  epoch bigint not null default 1,
  broken_at timestamptz,
  primary key (scope_id, shard)
) with (fillfactor = 50);

-- Keys may be longer than an index entry (2,704 bytes): identity goes by a digest, ranges by the first 600 characters, which
-- is the longest text a scope may have (uri-scope.ts). Compare the whole key as well.
create table fenceline.resource (
  resource_id bigint generated always as identity primary key,
  source_id int not null,
  resource_key text collate "C" not null,          -- F10: what identifies it
  key_digest bytea not null,                       -- SHA-256 of resource_key
  segment_key text collate "C" not null,           -- the key cut at its segments: what a scope covers as written
  match_key text collate "C" not null,             -- F10: broader, for denial and confusion checks, cut as well
  cover_hashes bigint[] not null,                  -- texts that begin the segment key: what a grant is looked up by
  deny_hashes bigint[] not null,                   -- texts that begin either key, for this source and for every source
  unique (source_id, key_digest)
);
create index resource_segment on fenceline.resource (source_id, left(segment_key, 600));
create index resource_match on fenceline.resource (source_id, left(match_key, 600));

create table fenceline.subscription (
  subscription_id bigint generated always as identity primary key,
  scope_id int not null,
  resource_id bigint not null,
  uri text not null,                               -- the server's own spelling: what is sent
  name text,
  title text,
  mime_type text,
  descriptor_digest bytea,
  generation bigint not null default 1,
  lifecycle fenceline.lifecycle not null default 'DISCOVERED',
  pushed boolean not null default false,
  shard int,
  notification_number bigint not null default 0,
  issued_ordinal bigint not null default 0,
  accepted_ordinal bigint not null default 0,      -- the watermark
  settled_ordinal bigint not null default 0,       -- highest ordinal that ended any way
  version_ordinal bigint,                          -- newest version
  digest bytea,                                    -- of the newest version; null: the next read makes a version (F6)
  digest_generation bigint,
  seen_notification bigint not null default -1,    -- of the last accepted read: current exactly if equal to today's (F3)
  seen_stream_epoch bigint,
  verified_at timestamptz,
  due_at timestamptz,                              -- to be looked at; while a read is in flight and nothing new came: claim_until
  claim_until timestamptz,                         -- end of the lease of the read in flight
  failures int not null default 0,
  hidden_because text constraint hidden_because_is_known check
    (hidden_because in ('forbidden', 'tombstone_pending', 'tombstoned', 'unreconciled')),
  not_found_at timestamptz,
  close_ordinal bigint,
  close_policy_epoch bigint,
  closed_by bigint,                                -- the revocation that closed it
  listed_scan_id bigint,                           -- scan from which it was published as it is described
  vanished_scan_id bigint,                         -- settled scan it was absent from, until it is listed again (F7)
  session_generation bigint,                       -- session in which it was last made pushed or polled
  acknowledged_epoch bigint,                       -- stream epoch in which it was acknowledged (U4)
  unique (resource_id, scope_id),
  constraint watermark_not_above_issued check (accepted_ordinal <= issued_ordinal),
  constraint settled_not_above_issued check (settled_ordinal <= issued_ordinal),
  constraint closed_or_close_ordinal_null check
    ((lifecycle in ('UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN')) = (close_ordinal is not null)),
  constraint nothing_issued_after_close check (close_ordinal is null or close_ordinal = issued_ordinal),
  constraint pushed_has_a_shard check (not pushed or shard is not null)
) with (fillfactor = 50);
-- The one index on a column that changes with every read. Without it each issue looks at every subscription of its scope:
-- 200 ms at 50,000, against 30 % on the cost of issue and accept.
create index subscription_due on fenceline.subscription (scope_id, due_at) where due_at is not null;
create index subscription_unsettled on fenceline.subscription (scope_id)
  where lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN');
create index subscription_tombstone_pending on fenceline.subscription (scope_id) where hidden_because = 'tombstone_pending';

create table fenceline.read (
  subscription_id bigint not null,
  ordinal bigint not null,
  generation bigint not null,
  request_id uuid not null,
  reason text not null,
  session_generation bigint not null,
  stream_epoch bigint,
  notification_number bigint not null,
  policy_epoch bigint not null,
  issued_at timestamptz not null default fenceline.now(),
  settled_as text,                                 -- null: in flight or accepted; else how it ended without acceptance
  primary key (subscription_id, ordinal)
);

create table fenceline.resource_version (
  subscription_id bigint not null,
  ordinal bigint not null,
  generation bigint not null,
  policy_epoch bigint not null,
  digest bytea,                                    -- null once a revocation or a purge took its content (P8)
  mime_type text,
  bytes bigint not null,
  scan_id bigint,
  accepted_at timestamptz not null default fenceline.now(),
  primary key (subscription_id, ordinal)
);

-- Kept bodies, one row per part (F5). Purged with everything else (P3).
create table fenceline.body (
  subscription_id bigint not null,
  ordinal bigint not null,
  position int not null,
  part_id bigint not null,                         -- resource of the part's own URI
  part_uri text not null,
  mime_type text,
  text text,
  bytes bytea,
  primary key (subscription_id, ordinal, position),
  constraint text_or_bytes check ((text is null) <> (bytes is null))
);
create index body_part on fenceline.body (part_id);

-- Append only. receipt_id is the ledger's position.
create table fenceline.receipt (
  receipt_id bigint generated always as identity primary key,
  scope_id int,
  subscription_id bigint,
  ordinal bigint,
  kind text not null,
  detail jsonb,
  at timestamptz not null default fenceline.now()
);
create index receipt_subscription on fenceline.receipt (subscription_id, ordinal);

create table fenceline.scan (
  scan_id bigint generated always as identity primary key,
  scope_id int not null,
  session_generation bigint not null,
  list_changed_number bigint not null,             -- at the start
  started_at timestamptz not null default fenceline.now(),
  ended_at timestamptz,
  entries bigint not null default 0,
  set_digest bytea,
  snapshot_id_digest bytea,                        -- of the id every page bound (S3)
  verdict fenceline.scan_verdict,
  reason text
);

create table fenceline.scan_page (
  scan_id bigint not null,
  page int not null,
  cursor_digest bytea not null,                    -- cursors themselves are never kept (S1)
  entries int not null,
  primary key (scan_id, page)
);

create table fenceline.scan_entry (
  scan_id bigint not null,
  resource_id bigint not null,
  uri text not null,
  name text,
  title text,
  mime_type text,
  descriptor_digest bytea not null,
  ambiguous boolean not null default false,        -- two spellings, described differently, met in one key (F10)
  primary key (scan_id, resource_id)
);

create index scan_scope on fenceline.scan (scope_id, scan_id);

-- A removal the floor holds back (S8): carried out by the first settled scan after its confirmation that still agrees.
create table fenceline.held_removal (
  held_removal_id bigint generated always as identity primary key,
  scope_id int not null,
  scan_id bigint not null,
  known bigint not null,
  vanished bigint not null,
  vanished_digest bytea not null,                  -- of the ids of the vanished: agreement is about the same resources
  agreed_scan_id bigint,                           -- a second settled scan that found the same
  held_at timestamptz not null default fenceline.now(),
  confirmed_at timestamptz,
  confirmed_by text,
  ended_at timestamptz,                            -- carried out, or superseded by another finding
  carried_out boolean not null default false
);
create unique index held_removal_open on fenceline.held_removal (scope_id) where ended_at is null;

create table fenceline.store (
  store_id int generated always as identity primary key,
  name text collate "C" not null unique,
  kind text not null,
  reachable_at timestamptz,
  failed_at timestamptz,
  failure text
);

create table fenceline.index (
  index_id int generated always as identity primary key constraint index_id_fits_an_entry_id check (index_id < 4096),
  name text collate "C" not null,
  version int not null,
  store_id int not null,
  embeddings text not null,                        -- versioned name of the embedding space
  configuration_digest bytea not null,
  filled_at timestamptz,                           -- versions accepted before it was registered are in its outbox
  serving_since timestamptz,                       -- every version that waited in it was confirmed: it may take over
  unique (name, version)
);

-- Level-triggered: one row per (resource under a reader, index), raised to the newest accepted ordinal.
create table fenceline.outbox (
  subscription_id bigint not null,
  index_id int not null,
  ordinal bigint not null,
  confirmed_ordinal bigint not null default 0,
  pending boolean not null default true,
  claim_token uuid,
  claim_until timestamptz,
  attempts int not null default 0,
  failure text,
  primary key (subscription_id, index_id)
) with (fillfactor = 50);
create index outbox_pending on fenceline.outbox (index_id, subscription_id) where pending;

create sequence fenceline.entry_number;

-- Entries with the same roots. Physical state is here, visibility on the edges (group_root).
create table fenceline.entry_group (
  group_id bigint generated always as identity primary key,
  index_id int not null,
  store_id int not null,
  resource_id bigint not null,                     -- content is shared inside one (source, URI) only (L5)
  part_id bigint not null,
  state fenceline.group_state not null default 'INTENT',
  settled boolean not null default false,          -- the write is known to have ended
  entries int not null,
  writer_lease_until timestamptz,
  purge_due boolean not null default false,        -- an edge died, or the intent was given up: look whether it must go
  claim_token uuid,                                -- of the indexing while INTENT, of the purge afterwards
  claimed_at timestamptz,
  claim_until timestamptz,                         -- without a token: not to be claimed before
  attempts int not null default 0,
  purged_at timestamptz
) with (fillfactor = 80);
create index entry_group_resource on fenceline.entry_group (resource_id, index_id);
create index entry_group_purge on fenceline.entry_group (store_id, group_id) where purge_due;

create table fenceline.entry (
  entry_number bigint primary key,
  group_id bigint not null,
  position int not null,
  chunk_digest bytea not null,                     -- keyed (P8)
  store_key text                                   -- where the store assigns its own
);
create index entry_of_group on fenceline.entry (group_id);

-- Edge from a group to a version it is derived from, flattened through every derivation.
create table fenceline.group_root (
  group_id bigint not null,
  subscription_id bigint not null,
  ordinal bigint not null,
  part_id bigint not null,
  ingredient smallint not null default 0,          -- roots of one number are alternatives; every number must live (L1)
  scope_id int not null,
  resource_id bigint not null,
  index_id int not null,
  state fenceline.edge_state not null default 'PENDING',
  primary key (group_id, subscription_id, ordinal, part_id, ingredient)
) with (fillfactor = 70);
create index group_root_version on fenceline.group_root (subscription_id, ordinal);
create index group_root_part on fenceline.group_root (part_id) where part_id <> resource_id;

create table fenceline.access_grant (
  grant_id bigint generated always as identity primary key,
  source_id int not null,
  reader_id bigint not null,
  audience_id bigint not null,
  scope_text text not null,                        -- as written: uri=… | prefix=… | everything
  key_prefix text collate "C" not null,
  match_prefix text collate "C" not null,
  cover_hash bigint not null,
  origin text not null,                            -- config | api | cli
  granted_at timestamptz not null default fenceline.now(),
  unique (cover_hash, audience_id, reader_id, source_id, key_prefix, origin)
);
create index access_grant_audience on fenceline.access_grant (audience_id, cover_hash);

create table fenceline.revocation (
  revocation_id bigint generated always as identity primary key,
  request_id text collate "C" not null unique,
  source_id int,                                   -- null: every source
  subject_id bigint not null,
  role fenceline.revocation_role not null,
  scope_text text not null,
  match_from text collate "C" not null,            -- [from, to) of the match key
  match_to text collate "C" not null,
  key_from text collate "C" not null,
  key_to text collate "C" not null,
  reason text not null,
  requested_by text not null,
  policy_epoch bigint not null,
  state fenceline.revocation_state not null default 'EFFECTIVE',
  nothing_covered boolean not null default false,
  requested_at timestamptz not null default fenceline.now(),
  effective_at timestamptz not null default fenceline.now(),
  covered_resources int,
  cursor_phase smallint not null default 0,        -- where its batches are (advance_revocation)
  cursor_source int not null default 0,
  cursor_key text collate "C" not null default '',
  cursor_resource bigint not null default 0,
  closed_all boolean not null default false,       -- every covered subscription is closed
  marked_all boolean not null default false,       -- every covered edge is marked
  completed_at timestamptz,
  lifted_at timestamptz
);
create index revocation_subject on fenceline.revocation (subject_id);
create index revocation_open on fenceline.revocation (revocation_id) where state = 'EFFECTIVE';

-- Standing revocations only, by hash of their prefix: what deny_hashes are joined with.
create table fenceline.revocation_cover (
  hash bigint not null,
  subject_id bigint not null,
  revocation_id bigint not null,
  as_reader boolean not null,
  as_audience boolean not null,
  primary key (hash, subject_id, revocation_id)
);

-- Which groups a revocation has to see purged.
create table fenceline.revocation_group (
  revocation_id bigint not null,
  group_id bigint not null,
  primary key (revocation_id, group_id)
);

create index revocation_group_group on fenceline.revocation_group (group_id);

create table fenceline.purge_receipt (
  purge_receipt_id bigint generated always as identity primary key,
  revocation_id bigint,                            -- null: superseded, tombstoned or abandoned
  store_id int not null,
  cause text not null,
  entries int not null,
  ids_digest bytea not null,                       -- keyed (P8)
  claim text not null constraint claim_is_known check (claim in ('hidden', 'absent', 'erased')),
  started_at timestamptz not null,
  absent_at timestamptz not null
);
create index purge_receipt_revocation on fenceline.purge_receipt (revocation_id);

create table fenceline.export (
  export_id bigint generated always as identity primary key,
  subscription_id bigint not null,
  ordinal bigint not null,
  destination text not null,
  at timestamptz not null default fenceline.now(),
  acknowledged_at timestamptz
);
create index export_version on fenceline.export (subscription_id, ordinal);

-- Exports of covered versions, which a revocation could not reach (L6).
create table fenceline.revocation_export (
  revocation_id bigint not null,
  export_id bigint not null,
  primary key (revocation_id, export_id)
);
create index revocation_export_export on fenceline.revocation_export (export_id);
