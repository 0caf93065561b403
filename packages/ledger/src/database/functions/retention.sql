-- Retention: what nothing needs any more is deleted, in batches that are a short transaction each.
--
-- Never deleted: a subscription with its watermarks and close ordinals; the newest version of a subscription, and each that
-- an edge, an export or an outbox row names, with its read, its session and its scan (L4); a read that may still be accepted
-- (F4); of each subscription its newest receipt, its last transition, its last close, and its last deletion while it is hidden
-- by it; receipts of a revocation that stands, and of restores; the newest receipt of all, the ledger's position.
--
-- Several processes may be at it beside everything else: what another one holds is left to the next run.
--
-- Each function takes p_before, the age, and p_limit, how many rows to look at, and where to go on. Result: how many were deleted,
-- and the place to go on after, the last row of a full page; null: there are no more.

-- Receipts, in the order of their ids from where an earlier run ended (identity.receipts_pruned_to).
create or replace function fenceline.prune_receipts(p_before timestamptz, p_limit int, out deleted bigint, out place text)
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_from bigint;
  v_to bigint;
  v_subscriptions bigint[];
  v_superseded bigint;
begin
  select receipts_pruned_to into v_from from fenceline.identity for update;
  select least(max(c.receipt_id), min(c.receipt_id) filter (where c.at >= p_before) - 1,
               (select max(receipt_id) - 1 from fenceline.receipt))
  into v_to
  from (
    select receipt_id, at from fenceline.receipt where receipt_id > v_from order by receipt_id limit p_limit) c;
  deleted := 0;
  if v_to is null or v_to <= v_from then return; end if;
  -- What was kept before of a subscription that has something newer by now goes as well.
  v_subscriptions := array(
    select distinct r.subscription_id from fenceline.receipt r
    where r.receipt_id > v_from and r.receipt_id <= v_to and r.subscription_id is not null);
  -- Apart, for each has an index: together they read the whole table with every batch.
  delete from fenceline.receipt r
  where r.receipt_id > v_from and r.receipt_id <= v_to and not fenceline.is_receipt_needed(r);
  get diagnostics deleted = row_count;
  delete from fenceline.receipt r
  where r.subscription_id = any (v_subscriptions) and r.receipt_id <= v_from and not fenceline.is_receipt_needed(r);
  get diagnostics v_superseded = row_count;
  deleted := deleted + v_superseded;
  update fenceline.identity set receipts_pruned_to = v_to;
  place := v_to;
end $$;

create or replace function fenceline.is_receipt_needed(r fenceline.receipt) returns boolean language sql stable as $$
  select case
    when r.kind = 'restored' then true
    when r.kind in ('revoked', 'lifted') then exists (
      select 1 from fenceline.revocation v
      where v.revocation_id = (r.detail ->> 'revocation')::bigint and v.state <> 'LIFTED')
    when r.subscription_id is null then false
    else not exists (
        select 1 from fenceline.receipt n where n.subscription_id = r.subscription_id and n.receipt_id > r.receipt_id)
      or r.to_state is not null and not exists (
        select 1 from fenceline.receipt n
        where n.subscription_id = r.subscription_id and n.receipt_id > r.receipt_id and n.to_state is not null)
      or fenceline.is_close(r) and not exists (
        select 1 from fenceline.receipt n
        where n.subscription_id = r.subscription_id and n.receipt_id > r.receipt_id and fenceline.is_close(n))
      or r.kind in ('tombstone_pending', 'tombstone') and not exists (
        select 1 from fenceline.receipt n
        where n.subscription_id = r.subscription_id and n.receipt_id > r.receipt_id and n.kind = r.kind)
        and exists (
          select 1 from fenceline.subscription s
          where s.subscription_id = r.subscription_id and s.hidden_because in ('tombstone_pending', 'tombstoned'))
  end
$$;

create or replace function fenceline.is_close(r fenceline.receipt) returns boolean language sql immutable as $$
  select coalesce(r.to_state in ('UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN'), false)
    or r.to_state is null and r.kind in ('unsubscribing', 'closed', 'unsubscribe_unknown')
$$;

-- Reads that ended without a version, and confirmed or proved nothing that is newest: an answer to one comes back `not_issued`, where
-- it would have been `stale`.
create or replace function fenceline.prune_reads(
  p_before timestamptz, p_limit int, p_subscription bigint, p_ordinal bigint, out deleted bigint, out place text
)
language plpgsql volatile as $$
declare
  v_subscriptions bigint[];
  v_ordinals bigint[];
begin
  select array_agg(c.subscription_id order by c.subscription_id, c.ordinal),
         array_agg(c.ordinal order by c.subscription_id, c.ordinal)
  into v_subscriptions, v_ordinals
  from (
    select r.subscription_id, r.ordinal from fenceline.read r
    where (r.subscription_id, r.ordinal) > (p_subscription, p_ordinal)
    order by r.subscription_id, r.ordinal limit p_limit) c;
  with old as materialized (
    select r.subscription_id, r.ordinal
    from fenceline.read r
    join unnest(v_subscriptions, v_ordinals) c (subscription_id, ordinal) using (subscription_id, ordinal)
    join fenceline.subscription s using (subscription_id)
    where r.issued_at < p_before
      and (r.ordinal < s.accepted_ordinal or r.settled_as is not null and r.ordinal < s.issued_ordinal)
      and not exists (
        select 1 from fenceline.resource_version v where v.subscription_id = r.subscription_id and v.ordinal = r.ordinal)
    for update of r skip locked)
  delete from fenceline.read r using old o where r.subscription_id = o.subscription_id and r.ordinal = o.ordinal;
  get diagnostics deleted = row_count;
  place := v_subscriptions[p_limit] || '.' || v_ordinals[p_limit];
end $$;

-- Versions that were superseded before, and that nothing was made of which is still known; their reads with them. That the newer
-- one is old as well keeps whoever may still be indexing the older one.
create or replace function fenceline.prune_versions(
  p_before timestamptz, p_limit int, p_subscription bigint, p_ordinal bigint, out deleted bigint, out place text
)
language plpgsql volatile as $$
declare
  v_subscriptions bigint[];
  v_ordinals bigint[];
begin
  select array_agg(c.subscription_id order by c.subscription_id, c.ordinal),
         array_agg(c.ordinal order by c.subscription_id, c.ordinal)
  into v_subscriptions, v_ordinals
  from (
    select v.subscription_id, v.ordinal from fenceline.resource_version v
    where (v.subscription_id, v.ordinal) > (p_subscription, p_ordinal)
    order by v.subscription_id, v.ordinal limit p_limit) c;
  with old as materialized (
    select v.subscription_id, v.ordinal
    from fenceline.resource_version v
    join unnest(v_subscriptions, v_ordinals) c (subscription_id, ordinal) using (subscription_id, ordinal)
    join fenceline.subscription s using (subscription_id)
    where v.ordinal is distinct from s.version_ordinal and v.accepted_at < p_before
      and exists (
        select 1 from fenceline.resource_version n
        where n.subscription_id = v.subscription_id and n.ordinal > v.ordinal and n.accepted_at < p_before)
      and not exists (
        select 1 from fenceline.group_root r where r.subscription_id = v.subscription_id and r.ordinal = v.ordinal)
      and not exists (select 1 from fenceline.export e where e.subscription_id = v.subscription_id and e.ordinal = v.ordinal)
      and not exists (
        select 1 from fenceline.outbox o
        where o.subscription_id = v.subscription_id and v.ordinal in (o.ordinal, o.confirmed_ordinal))
    for update of v skip locked),
  gone as (
    delete from fenceline.resource_version v using old o
    where v.subscription_id = o.subscription_id and v.ordinal = o.ordinal
    returning v.subscription_id, v.ordinal),
  bodies as (
    delete from fenceline.body b using gone g where b.subscription_id = g.subscription_id and b.ordinal = g.ordinal),
  parts_taken as (
    delete from fenceline.part_taken t using gone g where t.subscription_id = g.subscription_id and t.ordinal = g.ordinal),
  reads as (
    delete from fenceline.read r using gone g where r.subscription_id = g.subscription_id and r.ordinal = g.ordinal)
  select count(*) into deleted from gone;
  place := v_subscriptions[p_limit] || '.' || v_ordinals[p_limit];
end $$;

-- Groups that are purged for good, and that no revocation reports, no export holds and nothing still recorded is derived from:
-- with their edges, so that versions of theirs may go. Of their entries it is no longer known what they were.
create or replace function fenceline.prune_groups(p_before timestamptz, p_limit int, p_group bigint, out deleted bigint, out place text)
language plpgsql volatile as $$
declare
  v_page bigint[];
  v_gone bigint[];
begin
  -- Receipts go by themselves as well: of both at once each deletes, in its own order, what links them.
  perform pg_advisory_xact_lock(hashtext('fenceline.purge_receipt_group'), 0);
  v_page := array(
    select g.group_id from fenceline.entry_group g where g.group_id > p_group order by g.group_id limit p_limit);
  v_gone := array(
    select g.group_id from fenceline.entry_group g
    where g.group_id = any (v_page) and g.state = 'PURGED' and g.settled and g.purged_at < p_before
      and not exists (select 1 from fenceline.revocation_group x where x.group_id = g.group_id)
      and not exists (select 1 from fenceline.entry e where e.group_id = g.group_id)
      and not exists (select 1 from fenceline.export x where x.group_id = g.group_id)
      and not exists (select 1 from fenceline.group_parent n where n.parent_group = g.group_id)
    order by g.group_id for update skip locked);
  delete from fenceline.group_root where group_id = any (v_gone);
  delete from fenceline.group_parent where group_id = any (v_gone);
  delete from fenceline.purged_entry where group_id = any (v_gone);
  delete from fenceline.purge_receipt_group where group_id = any (v_gone);
  delete from fenceline.entry_group where group_id = any (v_gone);
  deleted := cardinality(v_gone);
  place := v_page[p_limit]::text;
end $$;

-- Scans that nothing speaks of any more. The two newest of a scope stay, and what is the catalogue. Of one that is proven its
-- snapshot id stays with the digest of its set, so that an id that comes again with another set is told as forged (S3).
create or replace function fenceline.prune_scans(p_before timestamptz, p_limit int, out deleted bigint, out place text)
language plpgsql volatile as $$
declare
  v_scans bigint[];
begin
  v_scans := array(
    select x.scan_id from fenceline.scan x
    where coalesce(x.ended_at, x.started_at) < p_before
      and fenceline.is_scan_superseded(x.scope_id, x.scan_id) and not fenceline.is_scan_of_catalogue(x.scope_id, x.scan_id)
      and not exists (select 1 from fenceline.held_removal h where h.scope_id = x.scope_id and x.scan_id in (h.scan_id, h.agreed_scan_id))
      and x.scan_id not in (select v.scan_id from fenceline.resource_version v where v.scan_id is not null)
      and x.scan_id not in (select s.listed_scan_id from fenceline.subscription s where s.listed_scan_id is not null)
      and x.scan_id not in (select s.vanished_scan_id from fenceline.subscription s where s.vanished_scan_id is not null)
    order by x.scan_id limit p_limit);
  place := v_scans[p_limit]::text;
  -- A publication holds its scans; in the next statement the one that committed before they were free is seen.
  v_scans := array(
    select x.scan_id from fenceline.scan x where x.scan_id = any (v_scans) order by x.scan_id for update skip locked);
  v_scans := array(
    select x.scan_id from fenceline.scan x
    where x.scan_id = any (v_scans) and not fenceline.is_scan_of_catalogue(x.scope_id, x.scan_id));
  delete from fenceline.scan_entry where scan_id = any (v_scans);
  delete from fenceline.scan_template where scan_id = any (v_scans);
  delete from fenceline.scan_page where scan_id = any (v_scans);
  delete from fenceline.scan where scan_id = any (v_scans);
  deleted := cardinality(v_scans);
end $$;

-- Sessions that ended and whose reads are gone, with what they negotiated.
create or replace function fenceline.prune_sessions(p_before timestamptz, p_limit int, out deleted bigint, out place text)
language plpgsql volatile as $$
declare
  v_sessions bigint[];
begin
  v_sessions := array(
    select x.session_id
    from fenceline.session x join fenceline.policy_scope p using (scope_id)
    where x.ended_at < p_before and x.generation < p.session_generation
      and not exists (
        select 1 from fenceline.read r join fenceline.subscription s using (subscription_id)
        where s.scope_id = x.scope_id and r.session_generation = x.generation)
      and not exists (
        select 1 from fenceline.scan n where n.scope_id = x.scope_id and n.session_generation = x.generation)
    order by x.session_id limit p_limit for update of x skip locked);
  delete from fenceline.capability_receipt where session_id = any (v_sessions);
  delete from fenceline.session where session_id = any (v_sessions);
  deleted := cardinality(v_sessions);
  place := v_sessions[p_limit]::text;
end $$;

-- Receipts of purges that no revocation asked for.
create or replace function fenceline.prune_purge_receipts(p_before timestamptz, p_limit int, p_receipt bigint, out deleted bigint, out place text)
language plpgsql volatile as $$
declare
  v_page bigint[];
  v_gone bigint[];
begin
  perform pg_advisory_xact_lock(hashtext('fenceline.purge_receipt_group'), 0);
  v_page := array(
    select r.purge_receipt_id from fenceline.purge_receipt r
    where r.purge_receipt_id > p_receipt order by r.purge_receipt_id limit p_limit);
  v_gone := array(
    select r.purge_receipt_id from fenceline.purge_receipt r
    where r.purge_receipt_id = any (v_page) and r.revocation_id is null and r.absent_at < p_before
    for update skip locked);
  delete from fenceline.purge_receipt_group where purge_receipt_id = any (v_gone);
  delete from fenceline.purge_receipt where purge_receipt_id = any (v_gone);
  deleted := cardinality(v_gone);
  place := v_page[p_limit]::text;
end $$;

-- Exports that somebody dealt with, where no open revocation lists them (L6). Those nobody acknowledged stay for ever.
create or replace function fenceline.prune_exports(p_before timestamptz, p_limit int, p_export bigint, out deleted bigint, out place text)
language plpgsql volatile as $$
declare
  v_page bigint[];
  v_gone bigint[];
begin
  v_page := array(
    select e.export_id from fenceline.export e where e.export_id > p_export order by e.export_id limit p_limit);
  v_gone := array(
    select e.export_id from fenceline.export e
    where e.export_id = any (v_page) and e.acknowledged_at < p_before for update skip locked);
  -- In the next statement, which sees a batch of a revocation that listed one and committed before it was free.
  v_gone := array(
    select e.export_id from fenceline.export e
    where e.export_id = any (v_gone)
      and not exists (
        select 1 from fenceline.revocation_export x join fenceline.revocation v using (revocation_id)
        where x.export_id = e.export_id and v.state in ('EFFECTIVE', 'COMPLETE_EXCEPT_EXPORTS')));
  delete from fenceline.revocation_export where export_id = any (v_gone);
  delete from fenceline.export_root where export_id = any (v_gone);
  delete from fenceline.export where export_id = any (v_gone);
  deleted := cardinality(v_gone);
  place := v_page[p_limit]::text;
end $$;
