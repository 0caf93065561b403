-- The records that leave the ledger for keeping, each as the JSON of its schema (src/records), which is checked once more before
-- it is handed out. None holds content; what outlives a purge holds no plain digest of content either (P8).

-- A time as records write it.
create or replace function fenceline.instant(p_at timestamptz) returns text language sql stable as $$
  select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- A server as it named itself; null: it did not.
create or replace function fenceline.server_of(x fenceline.session) returns json language sql stable as $$
  select case when x.server_name is not null
    then json_build_object('name', x.server_name, 'version', coalesce(x.server_version, '')) end
$$;

-- resourceDiscoveryScan.v1; no row while it has not ended. The first of two scans that agreed says of their publication what the
-- second does.
create or replace function fenceline.scan_record(p_scan bigint) returns table (record jsonb) language sql stable as $$
  select jsonb_build_object(
      'record', 'resourceDiscoveryScan.v1', 'scanId', x.scan_id, 'source', src.name, 'subject', subj.name,
      'sessionId', e.session_id, 'sessionGeneration', x.session_generation, 'startedAt', fenceline.instant(x.started_at),
      'endedAt', fenceline.instant(x.ended_at), 'pages', x.pages, 'cursorDigests', coalesce((
        select jsonb_agg(encode(g.cursor_digest, 'hex') order by g.page) from fenceline.scan_page g where g.scan_id = x.scan_id), '[]'),
      'resources', x.entries, 'templates', x.templates,
      'notificationsObserved', greatest(coalesce(x.list_changed_until, x.list_changed_number) - x.list_changed_number, 0),
      'verdict', x.verdict)
    || case when x.verdict in ('INCOMPLETE', 'VOID') then jsonb_build_object('reason', coalesce(nullif(x.reason, ''), 'unknown'))
      else jsonb_build_object('setDigest', encode(x.set_digest, 'hex')) end
    || case when x.verdict = 'UNSETTLED' then jsonb_build_object('attempts', x.attempts) else '{}' end
    || case when x.verdict in ('SNAPSHOT_PROVEN', 'SNAPSHOT_UNPROVEN') then jsonb_build_object(
        'measuredAt', fenceline.instant(m.measured_at), 'stalenessBoundMs', m.staleness_ms, 'nextReviewAt', fenceline.instant(m.next_review_at))
      else '{}' end
    || case x.verdict when 'SNAPSHOT_PROVEN' then jsonb_build_object('snapshotIdDigest', encode(x.snapshot_id_digest, 'hex'))
      when 'SNAPSHOT_UNPROVEN' then jsonb_build_object('agreedWithScanId', case m.scan_id when x.scan_id then x.agreed_with else m.scan_id end)
      else '{}' end
  from fenceline.scan x
  join fenceline.policy_scope p using (scope_id)
  join fenceline.source src using (source_id)
  join fenceline.subject subj using (subject_id)
  join fenceline.session e on e.scope_id = x.scope_id and e.generation = x.session_generation
  left join lateral (
    select y.scan_id, y.agreed_with, y.measured_at, y.staleness_ms, y.next_review_at
    from fenceline.scan y
    where y.scope_id = x.scope_id and y.scan_id >= x.scan_id and y.measured_at is not null
      and (y.scan_id = x.scan_id or y.agreed_with = x.scan_id)
    order by y.scan_id limit 1) m on true
  where x.scan_id = p_scan and x.ended_at is not null
$$;

-- resourceSubscription.v1, but for `state`, which the counters in `shown` yield (subscription-state.ts).
create or replace function fenceline.subscription_record(p_subscription bigint)
returns table (record json, shown json) language sql stable as $$
  select json_build_object(
      'record', 'resourceSubscription.v1', 'subscriptionId', s.subscription_id, 'source', src.name, 'subject', subj.name,
      'server', fenceline.server_of(x), 'uri', q.resource_key, 'sessionId', x.session_id,
      'capabilityReceiptId', (select max(c.capability_receipt_id) from fenceline.capability_receipt c where c.session_id = x.session_id),
      'generation', s.generation, 'lifecycle', s.lifecycle, 'mode', case when s.pushed then 'pushed' else 'polled' end,
      'startedAt', fenceline.instant(s.started_at), 'endedAt', fenceline.instant(s.ended_at),
      'notificationNumber', s.notification_number, 'issuedOrdinal', s.issued_ordinal, 'acceptedOrdinal', s.accepted_ordinal,
      'lastAcceptedDigest', case when s.digest_generation = s.generation then encode(s.digest, 'hex') end,
      'verifiedAt', fenceline.instant(s.verified_at), 'closeOrdinal', s.close_ordinal, 'closeEpoch', s.close_policy_epoch),
    json_build_object('notificationNumber', s.notification_number, 'seenNotificationNumber', s.seen_notification,
      'issuedOrdinal', s.issued_ordinal, 'acceptedOrdinal', s.accepted_ordinal, 'lostOrdinal', s.settled_ordinal)
  from fenceline.subscription s
  join fenceline.resource q using (resource_id)
  join fenceline.policy_scope p using (scope_id)
  join fenceline.source src on src.source_id = p.source_id
  join fenceline.subject subj on subj.subject_id = p.subject_id
  left join fenceline.session x on x.scope_id = s.scope_id and x.generation = s.session_generation
  where s.subscription_id = p_subscription
$$;

-- resourceVersion.v1.
create or replace function fenceline.version_record(p_subscription bigint, p_ordinal bigint) returns table (record json)
language sql stable as $$
  select json_build_object(
      'record', 'resourceVersion.v1', 'lineageId', v.subscription_id || '.' || v.ordinal, 'readId', r.request_id, 'scanId', v.scan_id,
      'policyEpoch', v.policy_epoch, 'source', src.name, 'subject', subj.name, 'subscriptionId', v.subscription_id,
      'uri', q.resource_key, 'mimeType', v.mime_type, 'contentDigest', encode(v.digest, 'hex'), 'readOrdinal', v.ordinal,
      'generation', v.generation, 'server', fenceline.server_of(x), 'acceptedAt', fenceline.instant(v.accepted_at),
      'findings', coalesce(v.findings, '[]'))
  from fenceline.resource_version v
  join fenceline.subscription s using (subscription_id)
  join fenceline.resource q using (resource_id)
  join fenceline.policy_scope p using (scope_id)
  join fenceline.source src on src.source_id = p.source_id
  join fenceline.subject subj on subj.subject_id = p.subject_id
  join fenceline.read r on r.subscription_id = v.subscription_id and r.ordinal = v.ordinal
  left join fenceline.session x on x.scope_id = s.scope_id and x.generation = r.session_generation
  where v.subscription_id = p_subscription and v.ordinal = p_ordinal
$$;

-- capabilityReceipt.v1.
create or replace function fenceline.capability_record(p_receipt bigint) returns table (record json) language sql stable as $$
  select json_build_object(
      'record', 'capabilityReceipt.v1', 'capabilityReceiptId', c.capability_receipt_id, 'source', src.name, 'subject', subj.name,
      'sessionId', c.session_id, 'era', c.negotiated ->> 'era', 'protocolVersion', c.negotiated ->> 'protocolVersion',
      'server', c.negotiated -> 'server', 'resources', c.negotiated -> 'resources', 'subscribe', c.negotiated -> 'subscribe',
      'listChanged', c.negotiated -> 'listChanged', 'snapshotId', coalesce((c.negotiated ->> 'snapshotId')::boolean, false),
      'negotiatedAt', fenceline.instant(c.at))
  from fenceline.capability_receipt c
  join fenceline.session x using (session_id)
  join fenceline.policy_scope p using (scope_id)
  join fenceline.source src using (source_id)
  join fenceline.subject subj using (subject_id)
  where c.capability_receipt_id = p_receipt
$$;

-- permissionRevocation.v1, but for `scope`, whose text is in `scope_text` (scope-text.ts).
create or replace function fenceline.revocation_record(p_revocation bigint) returns table (record json, scope_text text)
language sql stable as $$
  select json_build_object(
      'record', 'permissionRevocation.v1', 'revocationId', v.revocation_id, 'requestId', v.request_id, 'source', src.name,
      'subject', subj.name, 'role', v.role, 'reason', v.reason, 'requestedBy', v.requested_by,
      'requestedAt', fenceline.instant(v.requested_at), 'effectiveAt', fenceline.instant(v.effective_at),
      'completedAt', fenceline.instant(v.completed_at), 'liftedAt', fenceline.instant(v.lifted_at), 'state', v.state,
      'nothingCovered', v.nothing_covered,
      'covered', json_build_object('resources', coalesce(v.covered_resources, 0), 'entries', (
        select coalesce(sum(g.entries), 0) from fenceline.revocation_group x join fenceline.entry_group g using (group_id)
        where x.revocation_id = v.revocation_id))),
    v.scope_text
  from fenceline.revocation v
  join fenceline.subject subj using (subject_id)
  left join fenceline.source src using (source_id)
  where v.revocation_id = p_revocation
$$;

-- purgeReceipt.v1. A receipt is written for what is gone alone, so nothing remains.
create or replace function fenceline.purge_record(p_receipt bigint) returns table (record json) language sql stable as $$
  select json_build_object(
      'record', 'purgeReceipt.v1', 'purgeReceiptId', r.purge_receipt_id, 'revocationId', r.revocation_id, 'store', s.name,
      'cause', r.cause, 'entries', r.entries, 'remaining', 0, 'idsDigest', encode(r.ids_digest, 'hex'), 'claim', r.claim,
      'startedAt', fenceline.instant(r.started_at), 'absentAt', fenceline.instant(r.absent_at))
  from fenceline.purge_receipt r join fenceline.store s using (store_id)
  where r.purge_receipt_id = p_receipt
$$;

-- derivedEntry.v1, but for the public ids: of the entry, and of its parents that are entries, which come as [index, number].
-- What somebody derived says what it was made of (group_parent); an entry of an index version stands for the versions that hold it.
create or replace function fenceline.entry_record(p_entry bigint) returns table (index_id int, record json) language sql stable as $$
  with parents as (
    select r.ingredient, r.position, r.subscription_id, r.ordinal, r.parent_entry, pg.index_id as parent_index
    from fenceline.entry e
    join fenceline.group_parent r using (group_id)
    left join fenceline.entry_group pg on pg.group_id = r.parent_group
    where e.entry_number = p_entry
    union all
    select distinct r.ingredient, 0::smallint, r.subscription_id, r.ordinal, null::bigint, null::int
    from fenceline.entry e
    join fenceline.group_root r using (group_id)
    where e.entry_number = p_entry and not exists (select 1 from fenceline.group_parent x where x.group_id = e.group_id)
  )
  select i.index_id, json_build_object(
      'record', 'derivedEntry.v1', 'kind', g.kind, 'index', i.name, 'store', s.name, 'parents', (
        select json_agg(json_build_object(
            'as', case when exists (select 1 from parents o where o.ingredient <> r.ingredient) then 'ingredient' else 'alternative' end,
            'ingredient', r.ingredient,
            'of', case when r.parent_entry is null then json_build_object('lineageId', r.subscription_id || '.' || r.ordinal)
              else json_build_object('entry', json_build_array(r.parent_index, r.parent_entry)) end)
          order by r.ingredient, r.position, r.subscription_id, r.ordinal)
        from parents r),
      'audience', a.name, 'state', g.state, 'recordedAt', fenceline.instant(g.recorded_at))
  from fenceline.entry e
  join fenceline.entry_group g using (group_id)
  join fenceline.index i on i.index_id = g.index_id
  join fenceline.store s on s.store_id = g.store_id
  left join fenceline.subject a on a.subject_id = g.audience_id
  where e.entry_number = p_entry
$$;

-- What tells whether a cursor of the feed is one of here.
create or replace function fenceline.feed_position() returns table (incarnation int, next_xid text) language sql volatile as $$
  select i.incarnation, pg_snapshot_xmax(pg_current_snapshot())::text from fenceline.identity i
$$;

-- A page of the feed of receipts, which skips none: ids are given before transactions commit, so the feed goes by transaction,
-- and no further than the oldest one still open. What a restore brought from another cluster bears transactions that this one
-- has not reached; it comes first.
--   p_kinds     kinds of the table `receipt`
--   p_restored  the last one seen was such a restored one (true at the beginning)
--   p_xid, p_receipt  of the last one seen; 0 at the beginning
-- Result: in the order of the feed. `uri` is null where the receipt names a subscription that is none of its scope.
create or replace function fenceline.receipt_page(p_kinds text[], p_restored boolean, p_xid xid8, p_receipt bigint, p_limit int)
returns table (restored boolean, xid text, receipt_id bigint, kind text, source text, subject text, subscription_id bigint,
               uri text, ordinal bigint, detail jsonb, event text, to_state text, generation bigint, at text)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_snapshot pg_snapshot := pg_current_snapshot();
  v_ids bigint[] := '{}';
  v_restored int := 0;
begin
  if p_restored then
    v_ids := array(
      select r.receipt_id from fenceline.receipt r
      where r.xid >= pg_snapshot_xmax(v_snapshot) and (r.xid, r.receipt_id) > (p_xid, p_receipt) and r.kind = any (p_kinds)
        and r.subscription_id is not null
      order by r.xid, r.receipt_id limit p_limit);
    v_restored := cardinality(v_ids);
  end if;
  v_ids := v_ids || array(
    select r.receipt_id from fenceline.receipt r
    where r.xid < pg_snapshot_xmin(v_snapshot) and (p_restored or (r.xid, r.receipt_id) > (p_xid, p_receipt))
      and r.kind = any (p_kinds) and r.subscription_id is not null
    order by r.xid, r.receipt_id limit p_limit - v_restored);
  return query
    select i.place <= v_restored, r.xid::text, r.receipt_id, r.kind, src.name, subj.name, r.subscription_id, q.resource_key,
           r.ordinal, r.detail, r.event, r.to_state::text, r.generation, fenceline.instant(r.at)
    from unnest(v_ids) with ordinality i (receipt_id, place)
    join fenceline.receipt r using (receipt_id)
    join fenceline.policy_scope p using (scope_id)
    join fenceline.source src using (source_id)
    join fenceline.subject subj on subj.subject_id = p.subject_id
    left join fenceline.subscription s on s.subscription_id = r.subscription_id and s.scope_id = r.scope_id
    left join fenceline.resource q on q.resource_id = s.resource_id
    order by i.place;
end $$;
