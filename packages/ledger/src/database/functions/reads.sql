-- Fenced reads (F1 to F9). An ordinal is issued, its answer accepted or settled; at most one read of a subscription is in
-- flight (U5): issued_ordinal > settled_ordinal and its lease stands. Once the lease has ended the next ordinal may be issued;
-- the earlier answer is still taken if it comes first, and is stale after the later one (F4).

-- Whether the answer of a read is waited for: its lease stands, and nobody took over since, from whom it would not be accepted.
create or replace function fenceline.in_flight(s fenceline.subscription, c fenceline.policy_scope, p_now timestamptz)
returns boolean language sql stable as $$
  select s.issued_ordinal > s.settled_ordinal and coalesce(s.claim_until > p_now, false) and exists (
    select 1 from fenceline.read r
    where r.subscription_id = s.subscription_id and r.ordinal = s.issued_ordinal and r.session_generation = c.session_generation)
$$;

-- The due time of a subscription that something makes due at p_at. While a read is in flight it stays before the end of the
-- lease, by which the acceptance tells that there was something.
create or replace function fenceline.due_by(s fenceline.subscription, p_at timestamptz) returns timestamptz language sql stable as $$
  select least(s.due_at, p_at, case when s.issued_ordinal > s.settled_ordinal then s.claim_until - interval '1 microsecond' end)
$$;

-- What may be read at all: of the ACTIVE family, not covered by a standing revocation (P2).
create or replace function fenceline.may_be_read(s fenceline.subscription, c fenceline.policy_scope)
returns boolean language sql stable as $$
  select s.lifecycle = 'ACTIVE' and (c.standing_revocations = 0 or s.cleared_epoch = c.policy_epoch or not exists (
    select 1 from fenceline.resource r
    where r.resource_id = s.resource_id and fenceline.is_revoked(c.subject_id, r.deny_hashes, 'reader')))
$$;

-- What is due and may be read, oldest first, and what was to be looked at but is not due yet, for the caller to put off: both at
-- most p_limit together, so that a look is short however much lies before what is due. What is in flight or covered is passed over;
-- in_flight and may_be_read are written out, as PostgreSQL plans a function with a subquery anew in each statement.
-- The settings keep the planner on subscription_look: a table that has just grown has no statistics, and sorting a scope of 20,000
-- takes 400 ms.
create or replace function fenceline.due_subscriptions(
  p_scope int, p_now timestamptz, p_limit int, out due bigint[], out early bigint[]
) language plpgsql volatile set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off as $$
begin
  select coalesce(array_agg(x.subscription_id) filter (where x.is_due), '{}'),
    coalesce(array_agg(x.subscription_id) filter (where not x.is_due), '{}')
  into due, early
  from (
    select s.subscription_id, coalesce(s.due_at <= p_now, false) as is_due
    from fenceline.subscription s join fenceline.policy_scope c on c.scope_id = s.scope_id
    where s.scope_id = p_scope and s.look_at <= p_now
      and (s.due_at is null or s.due_at > p_now
        or s.lifecycle = 'ACTIVE'
          and not (s.issued_ordinal > s.settled_ordinal and coalesce(s.claim_until > p_now, false) and exists (
            select 1 from fenceline.read r
            where r.subscription_id = s.subscription_id and r.ordinal = s.issued_ordinal
              and r.session_generation = c.session_generation))
          and not (c.standing_revocations > 0 and s.cleared_epoch is distinct from c.policy_epoch and exists (
            select 1 from fenceline.resource q join fenceline.revocation_cover v on v.hash = any (q.deny_hashes)
            where q.resource_id = s.resource_id and v.subject_id = c.subject_id and v.as_reader)))
    order by s.look_at limit p_limit) x;
end $$;

-- Puts off to when they are due what was looked at too early. It decides nothing: a due time is exact whatever was looked at.
create or replace function fenceline.put_off(p_subscriptions bigint[]) returns void language plpgsql volatile as $$
begin
  if cardinality(p_subscriptions) = 0 then return; end if;
  perform 1 from fenceline.subscription
  where subscription_id = any (p_subscriptions) order by subscription_id for no key update;
  update fenceline.subscription set look_at = due_at
  where subscription_id = any (p_subscriptions) and look_at is distinct from due_at;
end $$;

-- Claims what is due, oldest first, and issues each its ordinal. A suspended scope gets one read per interval to find out
-- whether its credentials work again.
--   → the reads; a last row without a subscription: what may be due lies behind what was put off, ask again for the rest. Not in
--     this transaction: a scope of 20,000 that all lay before what is due kept a revocation waiting for eight seconds (P2).
create or replace function fenceline.issue_due_reads(
  p_scope int, p_generation bigint, p_limit int, p_lease_ms bigint, p_suspended_retry_ms bigint
) returns table (subscription_id bigint, ordinal bigint, request_id uuid, uri text, generation bigint, reason text)
language plpgsql volatile as $$
declare
  v_limit int := p_limit;
  v_now timestamptz;
  v_suspended_at timestamptz;
  v_epoch bigint;
  v_due bigint[];
  v_early bigint[];
begin
  -- Before the fence: past what a revocation covers and has not closed yet it takes its time, and the next revocation would wait
  -- for it (P2). issue_ordinals decides again on what is found.
  v_now := fenceline.now();
  select c.suspended_at, c.policy_epoch into v_suspended_at, v_epoch from fenceline.policy_scope c where c.scope_id = p_scope;
  if v_suspended_at > v_now - fenceline.milliseconds(p_suspended_retry_ms) then return; end if;
  if v_suspended_at is not null then v_limit := 1; end if;
  select d.due, d.early into v_due, v_early from fenceline.due_subscriptions(p_scope, v_now, v_limit) d;
  -- Who asks for one read must not come back for each that is early.
  if cardinality(v_early) > 0 and v_limit < 500 then
    select d.due[1:v_limit], d.early into v_due, v_early from fenceline.due_subscriptions(p_scope, v_now, 500) d;
  end if;
  if cardinality(v_due) + cardinality(v_early) = 0 then return; end if;
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return; end if;
  -- All at once, in the order of their ids: waiting for more rows while holding some deadlocks with every other batch.
  perform 1 from fenceline.subscription s
  where s.subscription_id = any (v_due || v_early) order by s.subscription_id for no key update;
  perform fenceline.put_off(v_early);
  if cardinality(v_due) > 0 then
    -- One makes the attempt of this interval; the next counts from there.
    if v_suspended_at is not null then
      update fenceline.policy_scope c set suspended_at = v_now where c.scope_id = p_scope and c.suspended_at = v_suspended_at;
      if not found then return; end if;
    end if;
    return query select * from fenceline.issue_ordinals(p_scope, p_generation, v_due, null, p_lease_ms, fenceline.now(), v_epoch);
  end if;
  if cardinality(v_early) > 0 and cardinality(v_due) < v_limit then
    return query select null::bigint, null::bigint, null::uuid, null::text, null::bigint, null::text;
  end if;
end $$;

-- Issues reads whether due or not, but none beside one in flight.
create or replace function fenceline.issue_reads(
  p_scope int, p_generation bigint, p_source int, p_key_digests bytea[], p_reason text, p_lease_ms bigint
) returns table (subscription_id bigint, ordinal bigint, request_id uuid, uri text, generation bigint, reason text)
language plpgsql volatile as $$
declare
  v_ids bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return; end if;
  v_ids := array(
    select s.subscription_id
    from fenceline.resource r join fenceline.subscription s on s.resource_id = r.resource_id and s.scope_id = p_scope
    where r.source_id = p_source and r.key_digest = any (p_key_digests));
  perform 1 from fenceline.subscription s
  where s.subscription_id = any (v_ids) order by s.subscription_id for no key update;
  return query select * from fenceline.issue_ordinals(p_scope, p_generation, v_ids, p_reason, p_lease_ms, fenceline.now(), null);
end $$;

-- The one place that raises issued_ordinal. Under the fence, the session check and the locks of its callers.
--   p_reason  null: only what is due, with the reason that follows from its state
--   p_uncovered_at  policy epoch since which the caller found that nothing covers these; while it is the scope's, no revocation
--                   came since (F2), and they are not asked about again. null: unknown
create or replace function fenceline.issue_ordinals(
  p_scope int, p_generation bigint, p_subscriptions bigint[], p_reason text, p_lease_ms bigint, p_now timestamptz,
  p_uncovered_at bigint
) returns table (subscription_id bigint, ordinal bigint, request_id uuid, uri text, generation bigint, reason text)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
begin
  return query
    with due as materialized (
      select s.subscription_id, s.ctid as place, gen_random_uuid() as request_id, s.issued_ordinal > s.settled_ordinal as outlived, c.policy_epoch,
        case when s.pushed and s.acknowledged_epoch = t.epoch then t.epoch end as stream_epoch,
        case when c.policy_epoch = 0 then 0 when s.cleared_epoch = c.policy_epoch then s.covering_epoch
          else coalesce((
            select max(e.policy_epoch) from fenceline.resource q join fenceline.revocation_epoch e on e.hash = any (q.deny_hashes)
            where q.resource_id = s.resource_id and e.subject_id = c.subject_id), 0) end as covering_epoch,
        coalesce(p_reason, case
          when s.vanished_scan_id is not null then 'vanished'
          when s.accepted_ordinal = 0 then 'first'
          when s.digest_generation is distinct from s.generation then 'reopened'
          when s.pushed and s.seen_stream_epoch is distinct from t.epoch then 'stream_opened'
          when s.seen_notification <> s.notification_number then 'notified'
          else 'timer' end) as reason
      from fenceline.subscription s
      join fenceline.policy_scope c on c.scope_id = s.scope_id
      left join fenceline.stream t on t.scope_id = s.scope_id and t.shard = s.shard
      where s.subscription_id = any (p_subscriptions) and s.scope_id = p_scope and s.lifecycle = 'ACTIVE'
        and not (s.issued_ordinal > s.settled_ordinal and coalesce(s.claim_until > p_now, false) and exists (
          select 1 from fenceline.read r
          where r.subscription_id = s.subscription_id and r.ordinal = s.issued_ordinal
            and r.session_generation = c.session_generation))
        and not (c.standing_revocations > 0 and s.cleared_epoch is distinct from c.policy_epoch
          and c.policy_epoch is distinct from p_uncovered_at and exists (
          select 1 from fenceline.resource q join fenceline.revocation_cover v on v.hash = any (q.deny_hashes)
          where q.resource_id = s.resource_id and v.subject_id = c.subject_id and v.as_reader))
        and (p_reason is not null or s.due_at <= p_now)),
    issued as (
      update fenceline.subscription s
      set issued_ordinal = s.issued_ordinal + 1,
        claim_until = p_now + fenceline.milliseconds(p_lease_ms), due_at = p_now + fenceline.milliseconds(p_lease_ms),
        -- Sooner than an acceptance makes it due again, whose update then need not touch the index.
        look_at = p_now + least(fenceline.milliseconds(p_lease_ms), interval '15 seconds'),
        cleared_epoch = d.policy_epoch, covering_epoch = d.covering_epoch
      -- It is locked, so it is where it was found.
      from due d where s.ctid = d.place
      returning s.subscription_id, s.issued_ordinal as ordinal, s.uri, s.generation, s.notification_number,
        d.request_id, d.reason, d.stream_epoch, d.policy_epoch, d.outlived),
    outlived as (
      insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, detail, at)
      select p_scope, i.subscription_id, i.ordinal - 1, 'lost', '{"because": "lease_ended"}', p_now from issued i where i.outlived),
    noted as (
      insert into fenceline.read
        (subscription_id, ordinal, generation, request_id, reason, session_generation, stream_epoch, notification_number,
          policy_epoch, issued_at)
      select i.subscription_id, i.ordinal, i.generation, i.request_id, i.reason, p_generation, i.stream_epoch,
        i.notification_number, i.policy_epoch, p_now
      from issued i)
    select i.subscription_id, i.ordinal, i.request_id, i.uri, i.generation, i.reason
    from issued i order by i.subscription_id;
end $$;

-- What is due first, or the first lease to end of the reads in flight that are due before it. What would be looked at before it is
-- due is put off, in a transaction for each 500, until the first is exact.
--   → milliseconds until the next read is due; -1: some were put off, ask again; null: none will be, or the session is lost
create or replace function fenceline.milliseconds_to_next_read(p_scope int, p_generation bigint, p_suspended_retry_ms bigint)
returns bigint language plpgsql volatile set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off as $$
declare
  v_now timestamptz := fenceline.now();
  v_scope fenceline.policy_scope;
  v_due timestamptz;
  v_look timestamptz;
begin
  if not fenceline.session_stands(p_scope, p_generation) then return null; end if;
  select * into v_scope from fenceline.policy_scope where scope_id = p_scope;
  select s.due_at, s.look_at into v_due, v_look from fenceline.subscription s
  where s.scope_id = p_scope and s.look_at is not null
    and (s.due_at is null or not fenceline.in_flight(s, v_scope, v_now) and fenceline.may_be_read(s, v_scope))
  order by s.look_at limit 1;
  if v_look is distinct from v_due then
    -- Those that are exact are left out: more than a batch of them, in flight with one lease, may be looked at at the same time.
    perform fenceline.put_off(array(
      select s.subscription_id from fenceline.subscription s
      where s.scope_id = p_scope and s.look_at >= v_look and s.look_at is distinct from s.due_at order by s.look_at limit 500));
    return -1;
  end if;
  select least(v_due, min(s.claim_until)) into v_due from fenceline.subscription s
  where s.scope_id = p_scope and s.look_at < coalesce(v_due, 'infinity') and s.due_at < coalesce(v_due, 'infinity')
    and fenceline.in_flight(s, v_scope, v_now) and fenceline.may_be_read(s, v_scope);
  if v_due is null then return null; end if;
  v_due := greatest(v_due, v_scope.suspended_at + fenceline.milliseconds(p_suspended_retry_ms));
  return ceil(greatest(0, extract(epoch from v_due - v_now) * 1000));
end $$;

-- Which of the resources a standing revocation of the reader covers.
create or replace function fenceline.covered_resources(p_reader bigint, p_resources bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  return array(
    select q.resource_id from fenceline.resource q
    where q.resource_id = any (p_resources) and exists (
      select 1 from fenceline.revocation_cover v
      where v.hash = any (q.deny_hashes) and v.subject_id = p_reader and v.as_reader));
end $$;

-- The one place that accepts (F3). Each answer is decided on after its subscription was locked under the fence, and either has
-- all its effects or leaves one receipt. A holder that slept through its lease is refused as stale, though nobody took over yet:
-- what it saw since may be missing from the ledger. One answer per subscription in a call. A part that a standing revocation
-- covers is dropped before it is kept, and clears the digest, so that the next read brings it back after a lift (F5, F6).
--   p_subscriptions … p_bytes   parallel, one per answer
--   p_part_counts               how many parts each has, at positions from 0 on
--   p_ttls                      hints how long each may stay as it is, in milliseconds; 0: none
--   p_part_*                    parallel, one per part; p_part_subscriptions and p_part_ordinals say whose
--   p_polled_ms, p_pushed_ms, p_jitter  when a current version is read again
--   outcome  'accepted' | 'accepted_not_current' | 'unchanged' | 'unchanged_not_current' | 'stale' | 'stale_after_close'
--            | 'revoked' | 'not_issued'; one row 'resources_missing': nothing was decided, create the parts' resources first
create or replace function fenceline.accept_resource_versions(
  p_scope int, p_generation bigint, p_source int,
  p_subscriptions bigint[], p_ordinals bigint[], p_request_ids uuid[], p_digests bytea[], p_mime_types text[], p_sizes bigint[],
  p_part_counts int[], p_ttls bigint[],
  p_part_subscriptions bigint[], p_part_ordinals bigint[], p_part_positions int[], p_part_key_digests bytea[], p_part_uris text[], p_part_mime_types text[],
  p_part_texts text[], p_part_bytes bytea[],
  p_polled_ms bigint, p_pushed_ms bigint, p_jitter float8
) returns table (subscription_id bigint, ordinal bigint, outcome text, version_ordinal bigint) language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_scope record;
  v_ids bigint[];
  v_resources bigint[];
  v_uris text[];
  v_parts bigint[]; -- resources of the parts
  v_covered bigint[] := '{}'; -- of these, the ones that a standing revocation covers
  v_lacking bigint[] := '{}'; -- subscriptions that they are parts of
  v_derived boolean; -- something was derived from one of them
  v_fewer boolean; -- one may have fewer parts than its version before
  v_awaited bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  v_now := fenceline.now();
  select bool_or(l.derived), max(l.parts_kept) > (select min(i.parts) from unnest(p_part_counts) as i (parts)),
    array_agg(l.subscription_id), array_agg(l.resource_id), array_agg(l.uri)
  into v_derived, v_fewer, v_ids, v_resources, v_uris
  from (
    select s.derived, s.parts_kept, s.subscription_id, s.resource_id, s.uri from fenceline.subscription s
    where s.subscription_id = any (p_subscriptions) and s.scope_id = p_scope
    order by s.subscription_id for no key update) l;
  select c.subject_id, c.policy_epoch, c.standing_revocations, c.suspended_at, x.session_id is not null as session_stands,
    src.staleness_ms / 2 as longest_ms
  into v_scope
  from fenceline.policy_scope c join fenceline.source src on src.source_id = c.source_id
  left join fenceline.session x on x.scope_id = c.scope_id and x.generation = c.session_generation
    and x.generation = p_generation and x.ended_at is null and x.expires_at > v_now
  where c.scope_id = p_scope;
  -- A part with the URI that was asked for, as it is listed, is the resource itself.
  if p_part_subscriptions = v_ids and p_part_uris = v_uris then
    v_parts := v_resources;
  else
    v_parts := array(
      select case when i.uri = l.uri then l.resource_id else (
        select r.resource_id from fenceline.resource r where r.source_id = p_source and r.key_digest = i.key_digest) end
      from unnest(p_part_subscriptions, p_part_uris, p_part_key_digests)
        with ordinality as i (subscription_id, uri, key_digest, place)
      left join unnest(v_ids, v_resources, v_uris) as l (subscription_id, resource_id, uri) using (subscription_id)
      order by i.place);
    if v_scope.session_stands and array_position(v_parts, null) is not null then
      return query select null::bigint, null::bigint, 'resources_missing', null::bigint;
      return;
    end if;
    if v_scope.standing_revocations > 0 then
      v_covered := fenceline.covered_resources(v_scope.subject_id, v_parts);
      v_lacking := array(
        select i.subscription_id
        from unnest(p_part_subscriptions, p_part_ordinals, v_parts) as i (subscription_id, ordinal, part_id)
        join fenceline.subscription s on s.subscription_id = i.subscription_id and s.accepted_ordinal < i.ordinal
        where i.part_id = any (v_covered));
    end if;
  end if;
  if v_derived or v_scope.suspended_at is not null then
    v_awaited := array(
      select case when s.accepted_ordinal < i.ordinal then i.subscription_id end
      from unnest(p_subscriptions, p_ordinals) with ordinality as i (subscription_id, ordinal, place)
      left join fenceline.subscription s on s.subscription_id = i.subscription_id order by i.place);
  end if;
  return query
    with asked as materialized (
      select i.*, s.ctid as place, s.resource_id, s.generation, s.listed_scan_id, r.issued_at, r.notification_number,
        r.stream_epoch, s.version_ordinal as kept_ordinal,
        case when s.cleared_epoch = v_scope.policy_epoch then s.covering_epoch end as covering_epoch,
        i.subscription_id = any (v_lacking) as lacking,
        coalesce(s.digest = i.digest and s.digest_generation = s.generation, false) as same,
        s.notification_number = r.notification_number and (not s.pushed or coalesce(r.stream_epoch = (
          select t.epoch from fenceline.stream t where t.scope_id = s.scope_id and t.shard = s.shard), false)) as current,
        case
          when r.ordinal is null or r.request_id <> i.request_id or r.settled_as is not null then 'not_issued'
          when s.lifecycle in ('UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN') then 'stale_after_close'
          when not v_scope.session_stands or r.session_generation <> p_generation or r.generation <> s.generation
            or s.lifecycle <> 'ACTIVE' or i.ordinal <= s.accepted_ordinal then 'stale'
          -- What was read since the last revocation was issued as uncovered (F2).
          when v_scope.standing_revocations > 0 and r.policy_epoch <> v_scope.policy_epoch and exists (
            select 1 from fenceline.resource q join fenceline.revocation_cover v on v.hash = any (q.deny_hashes)
            where q.resource_id = s.resource_id and v.subject_id = v_scope.subject_id and v.as_reader) then 'revoked'
        end as refusal
      from unnest(p_subscriptions, p_ordinals, p_request_ids, p_digests, p_mime_types, p_sizes, p_part_counts, p_ttls)
        as i (subscription_id, ordinal, request_id, digest, mime_type, size, parts, ttl_ms)
      left join fenceline.subscription s on s.subscription_id = i.subscription_id and s.scope_id = p_scope
      left join fenceline.read r on r.subscription_id = i.subscription_id and r.ordinal = i.ordinal and s.subscription_id is not null),
    accepted as (
      update fenceline.subscription s
      set accepted_ordinal = a.ordinal, settled_ordinal = greatest(s.settled_ordinal, a.ordinal),
        version_ordinal = case when a.same then s.version_ordinal else a.ordinal end,
        digest = case when not a.lacking then a.digest end, digest_generation = s.generation,
        parts_kept = case when a.same then s.parts_kept else a.parts end,
        seen_notification = a.notification_number, seen_stream_epoch = a.stream_epoch,
        verified_at = case when a.current then a.issued_at else s.verified_at end,
        -- What made it due since the read was issued stays: a notification, a stream, a scan without it.
        due_at = least(case when s.due_at < s.claim_until then s.due_at end,
          -- As does the end of the lease of a later read, whose worker may be dead (F9).
          case when s.issued_ordinal > greatest(s.settled_ordinal, a.ordinal) then s.claim_until end,
          v_now + fenceline.jittered(case when not a.current then p_polled_ms when s.pushed then p_pushed_ms
            else greatest(p_polled_ms, least(a.ttl_ms, v_scope.longest_ms)) end, p_jitter,
            s.subscription_id, a.ordinal)),
        failures = 0, hidden_because = null, not_found_at = null
      -- It is locked, so it is where it was found.
      from asked a where s.ctid = a.place and a.refusal is null),
    versions as (
      insert into fenceline.resource_version
        (subscription_id, ordinal, generation, policy_epoch, digest, mime_type, bytes, scan_id, accepted_at)
      select a.subscription_id, a.ordinal, a.generation,
        -- It is a digest of what was dropped as well (P8).
        case when v_scope.policy_epoch = 0 then 0
          else coalesce(a.covering_epoch, fenceline.policy_epoch_of(v_scope.subject_id, a.resource_id)) end,
        case when not a.lacking then a.digest end, a.mime_type, a.size, a.listed_scan_id, v_now
      from asked a where a.refusal is null and not a.same),
    due_in_indexes as (
      insert into fenceline.outbox as o (subscription_id, index_id, ordinal)
      select a.subscription_id, x.index_id, a.ordinal from asked a cross join fenceline.index x
      where a.refusal is null and not a.same and x.takes_versions and x.retired_at is null
      order by a.subscription_id, x.index_id
      on conflict (subscription_id, index_id) do update set ordinal = excluded.ordinal, pending = true),
    bodies as (
      insert into fenceline.body (subscription_id, ordinal, position, part_id, part_uri, mime_type, text, bytes)
      select i.*
      from unnest(p_part_subscriptions, p_part_ordinals, p_part_positions, v_parts, p_part_uris, p_part_mime_types, p_part_texts,
        p_part_bytes) as i (subscription_id, ordinal, position, part_id, uri, mime_type, text, bytes)
      -- Not a join, which is planned for ten rows and would read all answers for each part.
      where (i.subscription_id in (select a.subscription_id from asked a where a.refusal is null and not a.same)) is true
        and i.part_id <> all (v_covered)
      on conflict (subscription_id, position) do update set ordinal = excluded.ordinal, part_id = excluded.part_id,
        part_uri = excluded.part_uri, mime_type = excluded.mime_type, text = excluded.text, bytes = excluded.bytes),
    receipts as (
      insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, detail, at)
      select p_scope, a.subscription_id, a.ordinal,
        case a.refusal when 'revoked' then 'refused_revoked' else coalesce(a.refusal, 'version') end,
        case when a.refusal is null then jsonb_build_object('generation', a.generation, 'current', a.current)
          else jsonb_build_object('session', p_generation) end, v_now
      from asked a where a.refusal is not null or not a.same)
    select a.subscription_id, a.ordinal,
      coalesce(a.refusal, case when a.same then 'unchanged' else 'accepted' end || case when a.current then '' else '_not_current' end),
      case when a.refusal is null then case when a.same then a.kept_ordinal else a.ordinal end end
    from asked a;
  -- What the parts of a new version did not write over.
  if v_fewer or cardinality(v_lacking) > 0 then
    delete from fenceline.body b using fenceline.subscription s
    where s.subscription_id = any (v_ids) and b.subscription_id = s.subscription_id and b.ordinal <> s.version_ordinal;
  end if;
  if cardinality(v_lacking) > 0 then
    insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, at)
    select p_scope, s.subscription_id, s.version_ordinal, 'part_left_out', v_now
    from unnest(p_subscriptions, p_ordinals) as i (subscription_id, ordinal)
    join fenceline.subscription s on s.subscription_id = i.subscription_id and s.version_ordinal = i.ordinal
    where s.subscription_id = any (v_lacking);
    perform fenceline.note_parts_left_out(array_agg(i.subscription_id), array_agg(i.part_id))
    from unnest(p_part_subscriptions, v_parts) as i (subscription_id, part_id)
    join unnest(p_subscriptions, p_ordinals) as a (subscription_id, ordinal) on a.subscription_id = i.subscription_id
    join fenceline.subscription s on s.subscription_id = i.subscription_id and s.accepted_ordinal = a.ordinal
    where i.part_id = any (v_covered);
  end if;
  if v_awaited is null then return; end if;
  v_awaited := array(
    select s.subscription_id from fenceline.subscription s join unnest(v_awaited, p_ordinals) as i (subscription_id, ordinal)
      on s.subscription_id = i.subscription_id and s.accepted_ordinal = i.ordinal);
  if v_derived then
    perform fenceline.supersede_derived(array(
      select s.subscription_id from fenceline.subscription s
      where s.subscription_id = any (v_awaited) and s.derived and s.version_ordinal = s.accepted_ordinal));
  end if;
  -- One that is accepted shows that the credentials work again (P7).
  if cardinality(v_awaited) > 0 then perform fenceline.mark_resumed(p_scope, 'read', v_now); end if;
end $$;
