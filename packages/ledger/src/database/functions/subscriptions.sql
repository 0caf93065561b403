-- Subscriptions, streams and notifications (U1 to U11). The middle of the state machine (UPDATE_SEEN, READ_PENDING,
-- VERSION_ACCEPTED) is derived from the counters; the ACTIVE family is stored as ACTIVE.

-- The next subscriptions that are neither pushed nor polled under this session; those discovered become SUBSCRIBING.
-- What a standing revocation covers is left out until it is lifted (P2). The settings keep the planner on the primary key, in
-- whose order the pages come: without statistics each page would sort the whole scope.
create or replace function fenceline.subscriptions_to_open(p_scope int, p_generation bigint, p_after bigint, p_limit int)
returns table (subscription_id bigint, uri text, generation bigint, mime_type text, uri_template text)
language plpgsql volatile set enable_sort = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return; end if;
  v_ids := array(
    select s.subscription_id
    from fenceline.subscription s
    join fenceline.policy_scope c on c.scope_id = s.scope_id
    join fenceline.resource r on r.resource_id = s.resource_id
    where s.scope_id = p_scope and s.subscription_id > p_after
      -- A deletion is read again only if something reopened it.
      and (s.lifecycle in ('DISCOVERED', 'SUBSCRIBING')
        or s.lifecycle = 'ACTIVE' and s.hidden_because is distinct from 'tombstoned')
      and s.session_generation is distinct from p_generation
      and (c.standing_revocations = 0 or not fenceline.is_revoked(c.subject_id, r.deny_hashes, 'reader'))
    order by s.subscription_id limit p_limit);
  perform 1 from fenceline.subscription s where s.subscription_id = any (v_ids) order by s.subscription_id for no key update;
  update fenceline.subscription s set lifecycle = 'SUBSCRIBING', lifecycle_event = 'subscribe_sent'
  where s.subscription_id = any (v_ids) and s.lifecycle = 'DISCOVERED';
  return query
    select s.subscription_id, s.uri, s.generation, s.mime_type, s.uri_template from fenceline.subscription s
    where s.subscription_id = any (v_ids) and s.lifecycle in ('SUBSCRIBING', 'ACTIVE') order by s.subscription_id;
end $$;

-- Which of these are neither closed nor to be reconciled. None when the session is lost.
create or replace function fenceline.subscriptions_still_open(p_scope int, p_generation bigint, p_subscriptions bigint[])
returns bigint[] language plpgsql stable as $$
begin
  if not fenceline.session_stands(p_scope, p_generation) then return '{}'; end if;
  return array(
    select s.subscription_id from fenceline.subscription s
    where s.subscription_id = any (p_subscriptions) and s.scope_id = p_scope
      and s.lifecycle in ('DISCOVERED', 'SUBSCRIBING', 'ACTIVE'));
end $$;

-- A stream of a shard opened anew, or broke: its epoch rises, and everything pushed through it is unverified until read
-- again (U4). A read counts for an epoch only if its URI was acknowledged in it before the read was issued.
-- Its subscriptions are made due by make_shard_due, in batches outside the exclusive fence.
--   → the new epoch; null: session lost
create or replace function fenceline.raise_stream_epoch(p_scope int, p_generation bigint, p_shard int, p_broken boolean)
returns bigint language plpgsql volatile as $$
declare
  v_now timestamptz;
  v_epoch bigint;
begin
  perform fenceline.fence_exclusive(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return null; end if;
  v_now := fenceline.now();
  insert into fenceline.stream as t (scope_id, shard, broken_at) values (p_scope, p_shard, case when p_broken then v_now end)
  on conflict (scope_id, shard) do update set epoch = t.epoch + 1, broken_at = excluded.broken_at
  returning t.epoch into v_epoch;
  insert into fenceline.receipt (scope_id, kind, detail, at)
  values (p_scope, case when p_broken then 'stream_broken' else 'stream_opened' end,
    jsonb_build_object('shard', p_shard, 'epoch', v_epoch), v_now);
  return v_epoch;
end $$;

-- One batch of the subscriptions pushed through a shard becomes due.
--   → the id to go on after; null: there are no more, or the session is lost
create or replace function fenceline.make_shard_due(p_scope int, p_generation bigint, p_shard int, p_after bigint, p_limit int)
returns bigint language plpgsql volatile set enable_sort = off set enable_bitmapscan = off as $$
declare
  v_now timestamptz;
  v_ids bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return null; end if;
  v_now := fenceline.now();
  v_ids := array(
    select subscription_id from fenceline.subscription
    where scope_id = p_scope and subscription_id > p_after and pushed and shard = p_shard and lifecycle = 'ACTIVE'
    order by subscription_id limit p_limit for no key update);
  update fenceline.subscription s set due_at = fenceline.due_by(s, v_now)
  where subscription_id = any (v_ids) and lifecycle = 'ACTIVE' and hidden_because is distinct from 'tombstoned';
  return v_ids[p_limit];
end $$;

-- The acknowledgement compared with what was asked (U2, U3): pushed ones were acknowledged, polled ones were not. What is new
-- to the stream's epoch becomes due; the rest is not read again.
--   → 'activated' | 'session_lost'
create or replace function fenceline.activate_subscriptions(
  p_scope int, p_generation bigint, p_shard int, p_pushed bigint[], p_polled bigint[]
) returns text language plpgsql volatile as $$
declare
  v_now timestamptz;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  v_now := fenceline.now();
  insert into fenceline.stream (scope_id, shard) values (p_scope, p_shard) on conflict (scope_id, shard) do nothing;
  perform 1 from fenceline.subscription
  where subscription_id = any (p_pushed || p_polled) order by subscription_id for no key update;
  with known as materialized (
    select s.subscription_id, s.lifecycle from fenceline.subscription s where s.subscription_id = any (p_pushed || p_polled)),
  pushed as (
    update fenceline.subscription s
    set lifecycle = 'ACTIVE', lifecycle_event = 'acknowledged',
      session_generation = p_generation, pushed = true, shard = p_shard, acknowledged_epoch = t.epoch,
      due_at = case when s.pushed and s.shard = p_shard and s.acknowledged_epoch = t.epoch then s.due_at
        else fenceline.due_by(s, v_now) end
    from fenceline.stream t
    where t.scope_id = p_scope and t.shard = p_shard and s.scope_id = p_scope and s.subscription_id = any (p_pushed)
      and s.lifecycle in ('SUBSCRIBING', 'ACTIVE')
    returning s.subscription_id, s.generation, 'pushed' as mode),
  polled as (
    update fenceline.subscription s
    set lifecycle = 'ACTIVE', lifecycle_event = 'not_acknowledged',
      session_generation = p_generation, pushed = false, shard = null, acknowledged_epoch = null,
      -- What an earlier session left in flight is not waited for.
      due_at = case when s.lifecycle = 'ACTIVE' and not s.pushed and s.issued_ordinal = s.settled_ordinal then s.due_at
        else fenceline.due_by(s, v_now) end
    where s.scope_id = p_scope and s.subscription_id = any (p_polled) and s.lifecycle in ('SUBSCRIBING', 'ACTIVE')
    returning s.subscription_id, s.generation, 'polled' as mode)
  -- Those that were ACTIVE made no transition: under a new session, or in the other mode.
  insert into fenceline.receipt (scope_id, subscription_id, kind, detail, at)
  select p_scope, a.subscription_id, 'activated', jsonb_build_object('mode', a.mode, 'generation', a.generation), v_now
  from (select * from pushed union all select * from polled) a
  join known k on k.subscription_id = a.subscription_id and k.lifecycle = 'ACTIVE';
  return 'activated';
end $$;

-- Counts one notification for each URI, or for the subscribed one it lies below (U11), and makes it due when the window
-- ends that began with the first of them (U5): what is due sooner stays so. A read in flight issued before keeps its
-- older number, so its answer will not be current.
--   p_uri, p_prefix  parallel: for each URI (by its place) the match keys of itself and of all it lies below
--   place, outcome   'invalidated' | 'not_subscribed' | 'session_lost'
create or replace function fenceline.record_notifications(
  p_scope int, p_generation bigint, p_source int, p_places int[], p_key_digests bytea[], p_prefix_places int[], p_prefixes text[],
  p_window_ms bigint
) returns table (place int, outcome text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_due timestamptz;
  v_places int[];
  v_ids bigint[];
  v_hit bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then
    insert into fenceline.receipt (scope_id, kind, detail)
    values (p_scope, 'notification_ignored', jsonb_build_object('because', 'session_lost', 'uris', cardinality(p_places)));
    return query select x.place, 'session_lost' from unnest(p_places) as x (place);
    return;
  end if;
  v_due := fenceline.now() + fenceline.milliseconds(p_window_ms);
  -- The resource itself decides before any it lies below, and the longest of those before the others.
  select array_agg(h.place), array_agg(h.subscription_id) into v_places, v_ids
  from (
    select f.place, f.subscription_id, rank() over (partition by f.place order by f.length desc) as nearness
    from (
      select x.place, s.subscription_id, 1000000000 as length
      from unnest(p_places, p_key_digests) as x (place, key_digest)
      join fenceline.resource r on r.source_id = p_source and r.key_digest = x.key_digest
      join fenceline.subscription s on s.resource_id = r.resource_id and s.scope_id = p_scope
      where s.lifecycle = 'ACTIVE'
      union all
      select x.place, s.subscription_id, length(x.prefix)
      from unnest(p_prefix_places, p_prefixes) as x (place, prefix)
      join fenceline.resource r on r.source_id = p_source and left(r.match_key, 600) = left(x.prefix, 600) and r.match_key = x.prefix
      join fenceline.subscription s on s.resource_id = r.resource_id and s.scope_id = p_scope
      where s.lifecycle = 'ACTIVE') f) h
  where h.nearness = 1;
  v_hit := array(
    select s.subscription_id from fenceline.subscription s
    where s.subscription_id = any (v_ids) order by s.subscription_id for no key update);
  v_hit := array(
    select s.subscription_id from fenceline.subscription s
    where s.subscription_id = any (v_hit) and s.lifecycle = 'ACTIVE');
  update fenceline.subscription s
  set notification_number = s.notification_number + 1, due_at = fenceline.due_by(s, v_due)
  where s.subscription_id = any (v_hit);
  insert into fenceline.receipt (scope_id, kind, detail)
  select p_scope, 'notification_ignored', jsonb_build_object('because', 'not_subscribed', 'uris', m.missed)
  from (
    select count(*) as missed from unnest(p_places) as x (place)
    where not exists (
      select 1 from unnest(v_places, v_ids) as h (place, subscription_id)
      where h.place = x.place and h.subscription_id = any (v_hit))) m
  where m.missed > 0;
  return query
    select x.place, case when exists (
        select 1 from unnest(v_places, v_ids) as h (place, subscription_id)
        where h.place = x.place and h.subscription_id = any (v_hit))
      then 'invalidated' else 'not_subscribed' end
    from unnest(p_places) as x (place);
end $$;

-- Freezes the close ordinal of what was or may be subscribed at the server (U7); no read is issued after it, and the next version after a
-- reopening is a new one (F6). Nothing is returned when the session is lost.
--   p_excluded  the configuration leaves them out: not absent, whatever a scan lists, and opened again by a listing that takes them
create or replace function fenceline.begin_unsubscribe(
  p_scope int, p_generation bigint, p_source int, p_key_digests bytea[], p_excluded boolean
)
returns table (subscription_id bigint, uri text, generation bigint) language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return; end if;
  v_ids := array(
    select s.subscription_id
    from fenceline.resource r join fenceline.subscription s on s.resource_id = r.resource_id and s.scope_id = p_scope
    where r.source_id = p_source and r.key_digest = any (p_key_digests)
    order by s.subscription_id for no key update of s);
  return query
    with closing as (
      update fenceline.subscription s
      set lifecycle = 'UNSUBSCRIBING', lifecycle_event = 'unsubscribe_begun', close_ordinal = s.issued_ordinal, close_policy_epoch = c.policy_epoch,
        digest = null, due_at = null, claim_until = null, excluded = p_excluded
      from fenceline.policy_scope c
      where c.scope_id = p_scope and s.subscription_id = any (v_ids)
        and s.lifecycle in ('SUBSCRIBING', 'ACTIVE', 'RECONCILIATION_REQUIRED')
      returning s.subscription_id, s.uri, s.generation)
    select k.subscription_id, k.uri, k.generation from closing k order by k.subscription_id;
end $$;

-- U9: without an acknowledgement it stays UNSUBSCRIBE_UNKNOWN until it is settled on the same session, or that session ends.
--   p_acknowledged  false: the answer was lost
--   → 'settled' | 'session_lost'
create or replace function fenceline.settle_unsubscribe(
  p_scope int, p_generation bigint, p_subscriptions bigint[], p_acknowledged boolean
) returns text language plpgsql volatile as $$
declare
  v_unsettled bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  v_unsettled := array(
    select s.subscription_id from fenceline.subscription s
    where s.scope_id = p_scope and s.subscription_id = any (p_subscriptions)
      and s.lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN')
    order by s.subscription_id for no key update);
  if p_acknowledged then
    perform fenceline.close_unsubscribed(v_unsettled, 'unsubscribe_acknowledged');
  else
    update fenceline.subscription s set lifecycle = 'UNSUBSCRIBE_UNKNOWN', lifecycle_event = 'unsubscribe_ack_lost'
    where s.subscription_id = any (v_unsettled) and s.lifecycle = 'UNSUBSCRIBING';
  end if;
  return 'settled';
end $$;

-- What the holder still has to unsubscribe at its server, or to hear of: also what a revocation closed. Nothing is returned when the
-- session is lost.
create or replace function fenceline.subscriptions_to_settle(p_scope int, p_generation bigint, p_after bigint, p_limit int)
returns table (subscription_id bigint, uri text, generation bigint) language sql stable as $$
  select s.subscription_id, s.uri, s.generation from fenceline.subscription s
  where s.scope_id = p_scope and s.lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN') and s.subscription_id > p_after
    and fenceline.session_stands(p_scope, p_generation)
  order by s.subscription_id limit p_limit
$$;

-- The one way to CLOSED from an unsubscription, for rows that the caller has locked in these states. What a revocation closed that
-- was lifted meanwhile is opened again at once, as a lift does not reopen what is not settled (U9): for that the caller holds the
-- fence of their scope, unless it holds a revocation that stands.
--   p_event  'unsubscribe_acknowledged' | 'session_closed'
create or replace function fenceline.close_unsubscribed(p_subscriptions bigint[], p_event text) returns void
language plpgsql volatile as $$
declare
  v_reopened bigint[];
begin
  if cardinality(p_subscriptions) = 0 then return; end if;
  update fenceline.subscription s
  set lifecycle = 'CLOSED', lifecycle_event = p_event, pushed = false, shard = null, acknowledged_epoch = null
  where s.subscription_id = any (p_subscriptions);
  v_reopened := array(
    select r.subscription_id
    from (
      select s.closed_by, array_agg(s.subscription_id order by s.subscription_id) as ids
      from fenceline.subscription s join fenceline.revocation v on v.revocation_id = s.closed_by
      where s.subscription_id = any (p_subscriptions) and v.state = 'LIFTED'
      group by s.closed_by) c
    cross join lateral unnest(fenceline.reopen_subscriptions(c.closed_by, c.ids)) as r (subscription_id));
  perform fenceline.announce_discovery(array(
    select distinct s.scope_id from fenceline.subscription s where s.subscription_id = any (v_reopened)));
end $$;

-- Wakes the holders of these subscriptions, which have something to unsubscribe.
create or replace function fenceline.announce_unsettled(p_subscriptions bigint[]) returns void language sql volatile as $$
  select pg_notify('fenceline.wake', json_build_object('kind', 'read', 'source', src.name, 'reader', reader.name)::text)
  from (select distinct s.scope_id from fenceline.subscription s where s.subscription_id = any (p_subscriptions)) s
  join fenceline.policy_scope p using (scope_id)
  join fenceline.source src using (source_id) join fenceline.subject reader using (subject_id)
$$;
