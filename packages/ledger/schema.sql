-- What the migrations yield, read from the catalogues of a database. Do not edit: a migration changes it, and
--   npx vitest run packages/ledger/test/database/schema.test.ts --update
-- writes it anew. The functions of src/database/functions are not in it: their files are what they are.

create type fenceline.edge_state as enum ('PENDING', 'CURRENT', 'SUPERSEDED', 'TOMBSTONED', 'REVOKED');

create type fenceline.group_state as enum ('INTENT', 'PRESENT', 'ABANDONED', 'PURGING', 'PURGED');

create type fenceline.lifecycle as enum ('DISCOVERED', 'SUBSCRIBING', 'ACTIVE', 'UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN', 'RECONCILIATION_REQUIRED');

create type fenceline.revocation_role as enum ('reader', 'audience', 'both');

create type fenceline.revocation_state as enum ('EFFECTIVE', 'COMPLETE', 'COMPLETE_EXCEPT_EXPORTS', 'LIFTED');

create type fenceline.scan_verdict as enum ('SNAPSHOT_PROVEN', 'SNAPSHOT_UNPROVEN', 'UNSETTLED', 'INCOMPLETE', 'VOID');

create sequence fenceline.entry_number as bigint;

CREATE OR REPLACE FUNCTION fenceline.note_subscription_times()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if new.generation <> old.generation then new.started_at := fenceline.now(); end if;
  new.ended_at := case when new.lifecycle <> 'CLOSED' then null when old.lifecycle = 'CLOSED' then old.ended_at else fenceline.now() end;
  return new;
end $function$;

CREATE OR REPLACE FUNCTION fenceline.now()
 RETURNS timestamp with time zone
 LANGUAGE sql
AS $function$select clock_timestamp()$function$;

CREATE OR REPLACE FUNCTION fenceline.on_due_before_look()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  new.look_at := new.due_at;
  return new;
end $function$;

CREATE OR REPLACE FUNCTION fenceline.on_revocation_cover()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform fenceline.record_policy_epochs(
    array(select hash from changed where as_reader), array(select subject_id from changed where as_reader),
    array(select revocation_id from changed where as_reader));
  return null;
end $function$;

CREATE OR REPLACE FUNCTION fenceline.on_subscription_created()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform fenceline.record_creations(array(select subscription_id from added));
  return null;
end $function$;

CREATE OR REPLACE FUNCTION fenceline.on_subscription_transition()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform fenceline.record_transition(old, new);
  return null;
end $function$;

create table fenceline.access_grant (
  grant_id bigint generated always as identity not null,
  source_id integer not null,
  reader_id bigint not null,
  audience_id bigint not null,
  scope_text text not null,
  key_prefix text collate "C" not null,
  match_prefix text collate "C" not null,
  cover_hash bigint not null,
  origin text not null,
  granted_at timestamp with time zone default fenceline.now() not null,
  constraint access_grant_pkey PRIMARY KEY (grant_id)
);

create table fenceline.body (
  subscription_id bigint not null,
  ordinal bigint not null,
  "position" integer not null,
  part_id bigint not null,
  part_uri text not null,
  mime_type text,
  text text,
  bytes bytea,
  constraint body_pkey PRIMARY KEY (subscription_id, "position"),
  constraint text_or_bytes CHECK (((text IS NULL) <> (bytes IS NULL)))
);

create table fenceline.capability_receipt (
  capability_receipt_id bigint generated always as identity not null,
  session_id bigint not null,
  negotiated jsonb not null,
  at timestamp with time zone default fenceline.now() not null,
  constraint capability_receipt_pkey PRIMARY KEY (capability_receipt_id)
);

create table fenceline.entry (
  entry_number bigint not null,
  group_id bigint not null,
  "position" integer not null,
  chunk_digest bytea not null,
  store_key text,
  constraint entry_pkey PRIMARY KEY (entry_number)
);

create table fenceline.entry_group (
  group_id bigint generated always as identity not null,
  index_id integer not null,
  store_id integer not null,
  resource_id bigint,
  part_id bigint,
  state fenceline.group_state default 'INTENT'::fenceline.group_state not null,
  settled boolean default false not null,
  entries integer not null,
  writer_lease_until timestamp with time zone,
  purge_due boolean default false not null,
  claim_token uuid,
  claimed_at timestamp with time zone,
  claim_until timestamp with time zone,
  attempts integer default 0 not null,
  purged_at timestamp with time zone,
  kind text default 'chunk'::text not null,
  ingredients smallint default 1 not null,
  audience_id bigint,
  recorded_at timestamp with time zone default fenceline.now() not null,
  constraint entry_group_pkey PRIMARY KEY (group_id),
  constraint kind_is_known CHECK ((kind = ANY (ARRAY['chunk'::text, 'vector'::text, 'document'::text, 'embedding'::text, 'summary'::text, 'answer'::text])))
) with (fillfactor=80);

create table fenceline.export (
  export_id bigint generated always as identity not null,
  subscription_id bigint,
  ordinal bigint,
  destination text not null,
  at timestamp with time zone default fenceline.now() not null,
  acknowledged_at timestamp with time zone,
  entry_number bigint,
  group_id bigint,
  roots_known boolean default false not null,
  constraint export_is_of_an_entry_or_a_version CHECK (((entry_number IS NULL) = (subscription_id IS NOT NULL))),
  constraint export_pkey PRIMARY KEY (export_id)
);

create table fenceline.export_root (
  export_id bigint not null,
  subscription_id bigint not null,
  part_id bigint not null,
  constraint export_root_pkey PRIMARY KEY (export_id, subscription_id, part_id)
);

create table fenceline.function_set (
  singleton boolean default true not null,
  digest text not null,
  version text not null,
  routines text[] not null,
  created_at timestamp with time zone default clock_timestamp() not null,
  constraint function_set_is_one_row CHECK (singleton),
  constraint function_set_pkey PRIMARY KEY (singleton)
);

create table fenceline.group_parent (
  group_id bigint not null,
  ingredient smallint not null,
  "position" smallint not null,
  parent_group bigint,
  parent_entry bigint,
  subscription_id bigint,
  ordinal bigint,
  part_id bigint,
  constraint group_parent_pkey PRIMARY KEY (group_id, ingredient, "position"),
  constraint parent_is_an_entry_or_a_version CHECK ((((parent_group IS NULL) = (parent_entry IS NULL)) AND ((parent_entry IS NULL) = (subscription_id IS NOT NULL)) AND ((subscription_id IS NULL) = (ordinal IS NULL))))
);

create table fenceline.group_root (
  group_id bigint not null,
  subscription_id bigint not null,
  ordinal bigint not null,
  part_id bigint not null,
  ingredient smallint default 0 not null,
  scope_id integer not null,
  resource_id bigint not null,
  index_id integer not null,
  state fenceline.edge_state default 'PENDING'::fenceline.edge_state not null,
  derived boolean default false not null,
  constraint group_root_pkey PRIMARY KEY (group_id, subscription_id, ordinal, part_id, ingredient)
) with (fillfactor=50);

create table fenceline.held_removal (
  held_removal_id bigint generated always as identity not null,
  scope_id integer not null,
  scan_id bigint not null,
  known bigint not null,
  vanished bigint not null,
  vanished_digest bytea not null,
  agreed_scan_id bigint,
  held_at timestamp with time zone default fenceline.now() not null,
  confirmed_at timestamp with time zone,
  confirmed_by text,
  ended_at timestamp with time zone,
  carried_out boolean default false not null,
  task text default 'catalogue'::text not null,
  carried_out_scan_id bigint,
  constraint held_removal_pkey PRIMARY KEY (held_removal_id),
  constraint task_is_known CHECK ((task = ANY (ARRAY['catalogue'::text, 'completeness'::text])))
);

create table fenceline.identity (
  singleton boolean default true not null,
  mark text default substr(md5((gen_random_uuid())::text), 1, 12) not null,
  digest_key bytea default decode(replace(((gen_random_uuid())::text || (gen_random_uuid())::text), '-'::text, ''::text), 'hex'::text),
  created_at timestamp with time zone default fenceline.now() not null,
  receipts_pruned_to bigint default 0 not null,
  incarnation integer default 1 not null,
  witness_number bigint default 0 not null,
  digest_key_fingerprint bytea,
  constraint digest_key_or_its_fingerprint CHECK (((digest_key IS NULL) = (digest_key_fingerprint IS NOT NULL))),
  constraint identity_is_one_row CHECK (singleton),
  constraint identity_pkey PRIMARY KEY (singleton)
);

create table fenceline.index (
  index_id integer generated always as identity not null,
  name text collate "C" not null,
  version integer not null,
  store_id integer not null,
  embeddings text not null,
  configuration_digest bytea not null,
  filled_at timestamp with time zone,
  serving_since timestamp with time zone,
  takes_versions boolean default true not null,
  retired_at timestamp with time zone,
  constraint index_id_fits_an_entry_id CHECK ((index_id < 4096)),
  constraint index_name_version_key UNIQUE (name, version),
  constraint index_pkey PRIMARY KEY (index_id)
);

create table fenceline.migration (
  number integer not null,
  name text not null,
  digest text not null,
  applied_at timestamp with time zone default clock_timestamp() not null,
  constraint migration_pkey PRIMARY KEY (number)
);

create table fenceline.outbox (
  subscription_id bigint not null,
  index_id integer not null,
  ordinal bigint not null,
  confirmed_ordinal bigint default 0 not null,
  pending boolean default true not null,
  claim_token uuid,
  claim_until timestamp with time zone,
  attempts integer default 0 not null,
  failure text,
  constraint outbox_pkey PRIMARY KEY (subscription_id, index_id)
) with (fillfactor=50);

create table fenceline.part_taken (
  subscription_id bigint not null,
  ordinal bigint not null,
  part_id bigint not null,
  constraint part_taken_pkey PRIMARY KEY (subscription_id, ordinal, part_id)
);

create table fenceline.policy_scope (
  scope_id integer generated always as identity not null,
  source_id integer not null,
  subject_id bigint not null,
  policy_epoch bigint default 0 not null,
  standing_revocations integer default 0 not null,
  session_generation bigint default 0 not null,
  list_changed_number bigint default 0 not null,
  suspended_at timestamp with time zone,
  catalog_scan_id bigint,
  catalog_verdict fenceline.scan_verdict,
  catalog_measured_at timestamp with time zone,
  next_review_at timestamp with time zone,
  restored_at timestamp with time zone,
  constraint policy_scope_pkey PRIMARY KEY (scope_id),
  constraint policy_scope_source_id_subject_id_key UNIQUE (source_id, subject_id)
) with (fillfactor=50);

create table fenceline.purge_receipt (
  purge_receipt_id bigint generated always as identity not null,
  revocation_id bigint,
  store_id integer not null,
  cause text not null,
  entries integer not null,
  ids_digest bytea not null,
  claim text not null,
  started_at timestamp with time zone not null,
  absent_at timestamp with time zone not null,
  constraint claim_is_known CHECK ((claim = ANY (ARRAY['hidden'::text, 'absent'::text, 'erased'::text]))),
  constraint purge_receipt_pkey PRIMARY KEY (purge_receipt_id)
);

create table fenceline.purge_receipt_group (
  group_id bigint not null,
  purge_receipt_id bigint not null,
  constraint purge_receipt_group_pkey PRIMARY KEY (group_id, purge_receipt_id)
);

create table fenceline.purged_entry (
  first_number bigint not null,
  last_number bigint not null,
  group_id bigint not null,
  constraint purged_entry_pkey PRIMARY KEY (first_number)
);

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
  issued_at timestamp with time zone default fenceline.now() not null,
  settled_as text,
  constraint read_pkey PRIMARY KEY (subscription_id, ordinal)
);

create table fenceline.receipt (
  receipt_id bigint generated always as identity not null,
  scope_id integer,
  subscription_id bigint,
  ordinal bigint,
  kind text not null,
  detail jsonb,
  at timestamp with time zone default fenceline.now() not null,
  event text,
  from_state fenceline.lifecycle,
  to_state fenceline.lifecycle,
  generation bigint,
  xid xid8 default pg_current_xact_id() not null,
  constraint receipt_pkey PRIMARY KEY (receipt_id)
);

create table fenceline.resource (
  resource_id bigint generated always as identity not null,
  source_id integer not null,
  resource_key text collate "C" not null,
  key_digest bytea not null,
  segment_key text collate "C" not null,
  match_key text collate "C" not null,
  cover_hashes bigint[] not null,
  deny_hashes bigint[] not null,
  constraint resource_pkey PRIMARY KEY (resource_id),
  constraint resource_source_id_key_digest_key UNIQUE (source_id, key_digest)
);

create table fenceline.resource_version (
  subscription_id bigint not null,
  ordinal bigint not null,
  generation bigint not null,
  policy_epoch bigint not null,
  digest bytea,
  mime_type text,
  bytes bigint not null,
  scan_id bigint,
  accepted_at timestamp with time zone default fenceline.now() not null,
  findings jsonb,
  constraint resource_version_pkey PRIMARY KEY (subscription_id, ordinal)
);

create table fenceline.restore (
  incarnation integer not null,
  recognized_at timestamp with time zone default fenceline.now() not null,
  evidence text not null,
  detail jsonb not null,
  constraint evidence_is_known CHECK ((evidence = ANY (ARRAY['position'::text, 'entry'::text, 'revocation'::text, 'operator'::text]))),
  constraint restore_pkey PRIMARY KEY (incarnation)
);

create table fenceline.revocation (
  revocation_id bigint generated always as identity not null,
  request_id text collate "C" not null,
  source_id integer,
  subject_id bigint not null,
  role fenceline.revocation_role not null,
  scope_text text not null,
  match_from text collate "C" not null,
  match_to text collate "C" not null,
  key_from text collate "C" not null,
  key_to text collate "C" not null,
  reason text not null,
  requested_by text not null,
  policy_epoch bigint not null,
  state fenceline.revocation_state default 'EFFECTIVE'::fenceline.revocation_state not null,
  nothing_covered boolean default false not null,
  requested_at timestamp with time zone default fenceline.now() not null,
  effective_at timestamp with time zone default fenceline.now() not null,
  covered_resources integer,
  cursor_phase smallint default 0 not null,
  cursor_source integer default 0 not null,
  cursor_key text collate "C" default ''::text not null,
  cursor_resource bigint default 0 not null,
  closed_all boolean default false not null,
  marked_all boolean default false not null,
  completed_at timestamp with time zone,
  lifted_at timestamp with time zone,
  reopening boolean default false not null,
  constraint revocation_pkey PRIMARY KEY (revocation_id),
  constraint revocation_request_id_key UNIQUE (request_id)
);

create table fenceline.revocation_cover (
  hash bigint not null,
  subject_id bigint not null,
  revocation_id bigint not null,
  as_reader boolean not null,
  as_audience boolean not null,
  constraint revocation_cover_pkey PRIMARY KEY (hash, subject_id, revocation_id)
);

create table fenceline.revocation_epoch (
  hash bigint not null,
  subject_id bigint not null,
  policy_epoch bigint not null,
  constraint revocation_epoch_pkey PRIMARY KEY (hash, subject_id)
);

create table fenceline.revocation_export (
  revocation_id bigint not null,
  export_id bigint not null,
  constraint revocation_export_pkey PRIMARY KEY (revocation_id, export_id)
);

create table fenceline.revocation_group (
  revocation_id bigint not null,
  group_id bigint not null,
  constraint revocation_group_pkey PRIMARY KEY (revocation_id, group_id)
);

create table fenceline.revocation_part (
  revocation_id bigint not null,
  subscription_id bigint not null,
  constraint revocation_part_pkey PRIMARY KEY (revocation_id, subscription_id)
);

create table fenceline.scan (
  scan_id bigint generated always as identity not null,
  scope_id integer not null,
  session_generation bigint not null,
  list_changed_number bigint not null,
  started_at timestamp with time zone default fenceline.now() not null,
  ended_at timestamp with time zone,
  entries bigint default 0 not null,
  set_digest bytea,
  snapshot_id_digest bytea,
  verdict fenceline.scan_verdict,
  reason text,
  templates boolean default false not null,
  snapshot_negotiated boolean default false not null,
  page_snapshot_digest bytea,
  snapshot_fault text,
  pages integer default 0 not null,
  listed bigint default 0 not null,
  bytes bigint default 0 not null,
  max_pages integer,
  max_entries bigint,
  max_bytes bigint,
  list_changed_until bigint,
  agreed_with bigint,
  attempts integer,
  measured_at timestamp with time zone,
  staleness_ms bigint,
  next_review_at timestamp with time zone,
  removal_held boolean,
  absence_allowed boolean default false not null,
  faults jsonb,
  constraint scan_pkey PRIMARY KEY (scan_id)
);

create table fenceline.scan_entry (
  scan_id bigint not null,
  resource_id bigint not null,
  uri text not null,
  name text,
  title text,
  mime_type text,
  descriptor_digest bytea not null,
  ambiguous boolean default false not null,
  uri_template text,
  constraint scan_entry_pkey PRIMARY KEY (scan_id, resource_id)
);

create table fenceline.scan_page (
  scan_id bigint not null,
  page integer not null,
  cursor_digest bytea not null,
  entries integer not null,
  list text default 'resources'::text not null,
  page_digest bytea,
  ends boolean,
  constraint list_is_known CHECK ((list = ANY (ARRAY['resources'::text, 'templates'::text]))),
  constraint scan_page_pkey PRIMARY KEY (scan_id, page)
);

create table fenceline.scan_template (
  scan_id bigint not null,
  template_digest bytea not null,
  uri_template text not null,
  name text,
  title text,
  mime_type text,
  descriptor_digest bytea not null,
  constraint scan_template_pkey PRIMARY KEY (scan_id, template_digest)
);

create table fenceline.session (
  session_id bigint generated always as identity not null,
  scope_id integer not null,
  generation bigint not null,
  owner text not null,
  lease_ms integer not null,
  expires_at timestamp with time zone not null,
  started_at timestamp with time zone default fenceline.now() not null,
  ended_at timestamp with time zone,
  server_name text,
  server_version text,
  protocol_version text,
  snapshots_distrusted boolean default false not null,
  constraint session_pkey PRIMARY KEY (session_id),
  constraint session_scope_id_generation_key UNIQUE (scope_id, generation)
);

create table fenceline.snapshot_id (
  scope_id integer not null,
  id_digest bytea not null,
  set_digest bytea not null,
  scan_id bigint not null,
  known_since timestamp with time zone default fenceline.now() not null,
  constraint snapshot_id_pkey PRIMARY KEY (scope_id, id_digest)
);

create table fenceline.source (
  source_id integer generated always as identity not null,
  name text collate "C" not null,
  endpoint_digest bytea,
  staleness_ms bigint default 900000 not null,
  registered_at timestamp with time zone default fenceline.now() not null,
  retired_at timestamp with time zone,
  constraint source_name_key UNIQUE (name),
  constraint source_pkey PRIMARY KEY (source_id)
);

create table fenceline.store (
  store_id integer generated always as identity not null,
  name text collate "C" not null,
  kind text not null,
  reachable_at timestamp with time zone,
  failed_at timestamp with time zone,
  failure text,
  constraint store_name_key UNIQUE (name),
  constraint store_pkey PRIMARY KEY (store_id)
);

create table fenceline.stream (
  scope_id integer not null,
  shard integer not null,
  epoch bigint default 1 not null,
  broken_at timestamp with time zone,
  constraint stream_pkey PRIMARY KEY (scope_id, shard)
) with (fillfactor=50);

create table fenceline.subject (
  subject_id bigint generated always as identity not null,
  name text collate "C" not null,
  constraint subject_name_key UNIQUE (name),
  constraint subject_pkey PRIMARY KEY (subject_id)
);

create table fenceline.subscription (
  subscription_id bigint generated always as identity not null,
  scope_id integer not null,
  resource_id bigint not null,
  uri text not null,
  name text,
  title text,
  mime_type text,
  descriptor_digest bytea,
  generation bigint default 1 not null,
  lifecycle fenceline.lifecycle default 'DISCOVERED'::fenceline.lifecycle not null,
  pushed boolean default false not null,
  shard integer,
  notification_number bigint default 0 not null,
  issued_ordinal bigint default 0 not null,
  accepted_ordinal bigint default 0 not null,
  settled_ordinal bigint default 0 not null,
  version_ordinal bigint,
  digest bytea,
  digest_generation bigint,
  seen_notification bigint default '-1'::integer not null,
  seen_stream_epoch bigint,
  verified_at timestamp with time zone,
  due_at timestamp with time zone,
  claim_until timestamp with time zone,
  failures integer default 0 not null,
  hidden_because text,
  not_found_at timestamp with time zone,
  close_ordinal bigint,
  close_policy_epoch bigint,
  closed_by bigint,
  listed_scan_id bigint,
  vanished_scan_id bigint,
  session_generation bigint,
  acknowledged_epoch bigint,
  look_at timestamp with time zone,
  cleared_epoch bigint,
  covering_epoch bigint default 0 not null,
  parts_kept integer default 0 not null,
  lifecycle_event text,
  derived boolean default false not null,
  started_at timestamp with time zone default fenceline.now() not null,
  ended_at timestamp with time zone,
  excluded boolean default false not null,
  uri_template text,
  constraint closed_or_close_ordinal_null CHECK (((lifecycle = ANY (ARRAY['UNSUBSCRIBING'::fenceline.lifecycle, 'CLOSED'::fenceline.lifecycle, 'UNSUBSCRIBE_UNKNOWN'::fenceline.lifecycle])) = (close_ordinal IS NOT NULL))),
  constraint hidden_because_is_known CHECK ((hidden_because = ANY (ARRAY['forbidden'::text, 'tombstone_pending'::text, 'tombstoned'::text, 'unreconciled'::text]))),
  constraint look_at_not_after_due CHECK (((due_at IS NULL) OR ((look_at IS NOT NULL) AND (look_at <= due_at)))),
  constraint nothing_issued_after_close CHECK (((close_ordinal IS NULL) OR (close_ordinal = issued_ordinal))),
  constraint pushed_has_a_shard CHECK (((NOT pushed) OR (shard IS NOT NULL))),
  constraint settled_not_above_issued CHECK ((settled_ordinal <= issued_ordinal)),
  constraint subscription_pkey PRIMARY KEY (subscription_id),
  constraint subscription_resource_id_scope_id_key UNIQUE (resource_id, scope_id),
  constraint watermark_not_above_issued CHECK ((accepted_ordinal <= issued_ordinal))
) with (fillfactor=50);

CREATE INDEX access_grant_audience ON fenceline.access_grant USING btree (audience_id, cover_hash);

CREATE UNIQUE INDEX access_grant_once ON fenceline.access_grant USING btree (cover_hash, audience_id, reader_id, source_id, hashtextextended(key_prefix, (0)::bigint), origin);

CREATE INDEX body_part ON fenceline.body USING btree (part_id);

CREATE INDEX entry_of_group ON fenceline.entry USING btree (group_id);

CREATE INDEX entry_group_audience ON fenceline.entry_group USING btree (audience_id) WHERE (audience_id IS NOT NULL);

CREATE INDEX entry_group_purge ON fenceline.entry_group USING btree (store_id, group_id) WHERE purge_due;

CREATE INDEX entry_group_resource ON fenceline.entry_group USING btree (resource_id, index_id);

CREATE INDEX export_group ON fenceline.export USING btree (group_id) WHERE (group_id IS NOT NULL);

CREATE INDEX export_version ON fenceline.export USING btree (subscription_id, ordinal);

CREATE INDEX export_root_part ON fenceline.export_root USING btree (part_id);

CREATE INDEX export_root_subscription ON fenceline.export_root USING btree (subscription_id);

CREATE INDEX group_parent_entry ON fenceline.group_parent USING btree (parent_entry) WHERE (parent_entry IS NOT NULL);

CREATE INDEX group_parent_group ON fenceline.group_parent USING btree (parent_group) WHERE (parent_group IS NOT NULL);

CREATE INDEX group_root_derived ON fenceline.group_root USING btree (subscription_id) WHERE derived;

CREATE INDEX group_root_part ON fenceline.group_root USING btree (part_id) WHERE (part_id <> resource_id);

CREATE INDEX group_root_version ON fenceline.group_root USING btree (subscription_id, ordinal);

CREATE UNIQUE INDEX held_removal_open ON fenceline.held_removal USING btree (scope_id, task) WHERE (ended_at IS NULL);

CREATE INDEX outbox_pending ON fenceline.outbox USING btree (index_id, subscription_id) WHERE pending;

CREATE INDEX part_taken_by_part ON fenceline.part_taken USING btree (part_id);

CREATE INDEX policy_scope_subject ON fenceline.policy_scope USING btree (subject_id);

CREATE INDEX purge_receipt_revocation ON fenceline.purge_receipt USING btree (revocation_id);

CREATE INDEX purge_receipt_group_receipt ON fenceline.purge_receipt_group USING btree (purge_receipt_id);

CREATE INDEX purged_entry_group ON fenceline.purged_entry USING btree (group_id);

CREATE INDEX receipt_subscription ON fenceline.receipt USING btree (subscription_id, ordinal);

CREATE INDEX receipt_transaction ON fenceline.receipt USING btree (xid, receipt_id);

CREATE INDEX receipt_transition ON fenceline.receipt USING btree (subscription_id, receipt_id) WHERE (to_state IS NOT NULL);

CREATE INDEX resource_match ON fenceline.resource USING btree (source_id, "left"(match_key, 600));

CREATE INDEX resource_segment ON fenceline.resource USING btree (source_id, "left"(segment_key, 600));

CREATE INDEX revocation_open ON fenceline.revocation USING btree (revocation_id) WHERE (state = 'EFFECTIVE'::fenceline.revocation_state);

CREATE INDEX revocation_reopening ON fenceline.revocation USING btree (revocation_id) WHERE reopening;

CREATE INDEX revocation_subject ON fenceline.revocation USING btree (subject_id);

CREATE INDEX revocation_export_export ON fenceline.revocation_export USING btree (export_id);

CREATE INDEX revocation_group_group ON fenceline.revocation_group USING btree (group_id);

CREATE INDEX scan_scope ON fenceline.scan USING btree (scope_id, scan_id);

CREATE INDEX scan_page_cursor ON fenceline.scan_page USING btree (scan_id, cursor_digest);

CREATE INDEX subscription_closed_by ON fenceline.subscription USING btree (closed_by, subscription_id) WHERE ((closed_by IS NOT NULL) AND (lifecycle = 'CLOSED'::fenceline.lifecycle));

CREATE INDEX subscription_look ON fenceline.subscription USING btree (scope_id, look_at) WHERE (look_at IS NOT NULL);

CREATE INDEX subscription_of_template ON fenceline.subscription USING btree (scope_id, uri_template) WHERE (uri_template IS NOT NULL);

CREATE INDEX subscription_tombstone_pending ON fenceline.subscription USING btree (scope_id) WHERE (hidden_because = 'tombstone_pending'::text);

CREATE INDEX subscription_unsettled ON fenceline.subscription USING btree (scope_id) WHERE (lifecycle = ANY (ARRAY['UNSUBSCRIBING'::fenceline.lifecycle, 'UNSUBSCRIBE_UNKNOWN'::fenceline.lifecycle]));

CREATE TRIGGER revocation_cover_added AFTER INSERT ON fenceline.revocation_cover REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION fenceline.on_revocation_cover();

CREATE TRIGGER revocation_cover_removed AFTER DELETE ON fenceline.revocation_cover REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION fenceline.on_revocation_cover();

CREATE TRIGGER subscription_created AFTER INSERT ON fenceline.subscription REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION fenceline.on_subscription_created();

CREATE TRIGGER subscription_due_at_insert BEFORE INSERT ON fenceline.subscription FOR EACH ROW WHEN (((new.due_at IS NOT NULL) AND ((new.look_at IS NULL) OR (new.look_at > new.due_at)))) EXECUTE FUNCTION fenceline.on_due_before_look();

CREATE TRIGGER subscription_due_at_update BEFORE UPDATE OF due_at ON fenceline.subscription FOR EACH ROW WHEN (((new.due_at IS NOT NULL) AND ((new.look_at IS NULL) OR (new.look_at > new.due_at)))) EXECUTE FUNCTION fenceline.on_due_before_look();

CREATE TRIGGER subscription_times BEFORE UPDATE OF lifecycle, generation ON fenceline.subscription FOR EACH ROW WHEN (((old.lifecycle <> new.lifecycle) OR (old.generation <> new.generation))) EXECUTE FUNCTION fenceline.note_subscription_times();

CREATE TRIGGER subscription_transition AFTER UPDATE OF lifecycle, generation ON fenceline.subscription FOR EACH ROW WHEN (((old.lifecycle <> new.lifecycle) OR (old.generation <> new.generation))) EXECUTE FUNCTION fenceline.on_subscription_transition();
