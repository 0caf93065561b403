-- Reads that ended without content (F7, F9, P7), and the deletions they prove.

-- Ends reads. "Not found" and "forbidden" are evidence like content: they count only inside the whole fence of an acceptance,
-- and raise the watermark, so that neither an older answer undoes them nor they a newer one.
--   p_as  'lost' | 'failed' | 'empty' | 'too_large' | 'not_found' | 'forbidden' | 'unauthorized'
--   p_retry_ms, p_retry_max_ms, p_jitter  backoff after a failure, doubled with each
--   p_spacing_ms                  between the two "not found" that prove a deletion
--   p_floor_count, p_floor_share  more pending deletions than the greater are held back (S8); what a settled scan no longer
--                                 lists has passed that scan's floor
--   outcome  'settled' | 'tombstone_pending' | 'tombstoned' | 'hidden' | 'stale' | 'not_issued'
create or replace function fenceline.settle_reads(
  p_scope int, p_generation bigint,
  p_subscriptions bigint[], p_ordinals bigint[], p_request_ids uuid[], p_as text[], p_messages text[],
  p_retry_ms bigint, p_retry_max_ms bigint, p_jitter float8, p_spacing_ms bigint, p_floor_count bigint, p_floor_share float8
) returns table (subscription_id bigint, ordinal bigint, outcome text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_session boolean;
  v_now timestamptz;
  v_floor_reached boolean;
  v_outcomes text[];
begin
  perform fenceline.fence_shared(p_scope);
  v_session := fenceline.session_stands(p_scope, p_generation);
  v_now := fenceline.now();
  perform 1 from fenceline.subscription s
  where s.subscription_id = any (p_subscriptions) order by s.subscription_id for no key update;
  v_floor_reached := fenceline.tombstone_floor_reached(
    p_scope, array(select i.id from unnest(p_subscriptions, p_as) as i (id, ended) where i.ended = 'not_found'),
    p_floor_count, p_floor_share);
  select array_agg(case
      when r.ordinal is null or r.request_id <> i.request_id or r.settled_as is not null then 'not_issued'
      when s.lifecycle in ('UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN') then 'stale_after_close'
      when not v_session or r.session_generation <> p_generation or r.generation <> s.generation
        or s.lifecycle <> 'ACTIVE' or i.ordinal <= s.accepted_ordinal then 'stale'
      when i.ended = 'forbidden' then 'hidden'
      when i.ended <> 'not_found' then 'settled'
      when s.hidden_because = 'tombstoned' then 'tombstoned'
      when s.hidden_because = 'tombstone_pending' and r.issued_at >= s.not_found_at + fenceline.milliseconds(p_spacing_ms) then 'tombstoned'
      when s.hidden_because = 'tombstone_pending' or s.vanished_scan_id is not null or not v_floor_reached then 'tombstone_pending'
      else 'removal_held'
    end order by i.place)
  into v_outcomes
  from unnest(p_subscriptions, p_ordinals, p_request_ids, p_as) with ordinality as i (subscription_id, ordinal, request_id, ended, place)
  left join fenceline.subscription s on s.subscription_id = i.subscription_id and s.scope_id = p_scope
  left join fenceline.read r on r.subscription_id = s.subscription_id and r.ordinal = i.ordinal;
  with ended as materialized (
    select * from unnest(p_subscriptions, p_ordinals, p_as, p_messages, v_outcomes)
      as i (subscription_id, ordinal, ended, message, outcome)),
  noted as (
    update fenceline.read r set settled_as = e.ended
    from ended e
    where r.subscription_id = e.subscription_id and r.ordinal = e.ordinal
      and e.outcome not in ('not_issued', 'stale_after_close', 'stale')),
  settled as (
    update fenceline.subscription s
    set settled_ordinal = greatest(s.settled_ordinal, e.ordinal),
      accepted_ordinal = case when e.ended in ('not_found', 'forbidden') then e.ordinal else s.accepted_ordinal end,
      failures = s.failures + case when e.ended = 'lost' then 0 else 1 end,
      hidden_because = case e.outcome when 'hidden' then 'forbidden' when 'tombstone_pending' then 'tombstone_pending'
        else s.hidden_because end,
      not_found_at = case when e.outcome = 'tombstone_pending' and s.hidden_because is distinct from 'tombstone_pending' then v_now
        else s.not_found_at end,
      due_at = case
        when e.ended = 'lost' then least(s.due_at, v_now)
        when e.outcome = 'tombstone_pending' then
          case when s.hidden_because = 'tombstone_pending' then s.not_found_at else v_now end + fenceline.milliseconds(p_spacing_ms)
        else v_now + fenceline.jittered(
          least(p_retry_max_ms, p_retry_ms * (1::bigint << least(s.failures, 20))), p_jitter, s.subscription_id, e.ordinal) end
    from ended e
    where s.subscription_id = e.subscription_id and e.outcome not in ('not_issued', 'stale_after_close', 'stale'))
  insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, detail, at)
  select p_scope, e.subscription_id, e.ordinal,
    case e.outcome when 'settled' then e.ended when 'hidden' then 'forbidden' else e.outcome end,
    jsonb_build_object('session', p_generation, 'message', left(e.message, 500)), v_now
  from ended e where e.outcome <> 'tombstoned';
  perform fenceline.confirm_tombstones(p_scope,
    array(select i.id from unnest(p_subscriptions, v_outcomes) as i (id, outcome) where i.outcome = 'tombstoned'),
    'not found twice', v_now);
  perform fenceline.mark_suspended(p_scope, min(i.message), v_now)
  from unnest(p_as, p_messages, v_outcomes) as i (ended, message, outcome)
  where i.ended = 'unauthorized' and i.outcome = 'settled'
  having count(*) > 0;
  return query
    select i.subscription_id, i.ordinal,
      case i.outcome when 'stale_after_close' then 'stale' when 'removal_held' then 'settled' else i.outcome end
    from unnest(p_subscriptions, p_ordinals, v_outcomes) as i (subscription_id, ordinal, outcome);
end $$;

-- Whether hiding these as well would leave more deletions pending than the floor allows. Up to the count nothing is counted twice:
-- a few deletions are the usual case, and the scope may hold a million resources.
create or replace function fenceline.tombstone_floor_reached(
  p_scope int, p_not_found bigint[], p_floor_count bigint, p_floor_share float8
) returns boolean language plpgsql volatile as $$
declare
  v_pending bigint;
  v_known bigint;
begin
  if cardinality(p_not_found) = 0 then return false; end if;
  select count(*) into v_pending from fenceline.subscription
  where scope_id = p_scope and hidden_because = 'tombstone_pending' and subscription_id <> all (p_not_found);
  v_pending := v_pending + cardinality(p_not_found);
  if v_pending <= p_floor_count then return false; end if;
  select count(*) into v_known from fenceline.subscription
  where scope_id = p_scope and lifecycle = 'ACTIVE' and hidden_because is distinct from 'tombstoned';
  return v_pending > greatest(p_floor_count, v_known * p_floor_share);
end $$;

-- A confirmed deletion (F7), for subscriptions that the caller has locked: edges end, groups are looked at by the purge,
-- the body goes, and what an index worker still holds of it is superseded. A later listing or read brings it back as a new version.
create or replace function fenceline.confirm_tombstones(p_scope int, p_subscriptions bigint[], p_because text, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
  v_groups bigint[];
begin
  if cardinality(p_subscriptions) = 0 then return; end if;
  v_groups := fenceline.lock_covered_groups(p_subscriptions, '{}', '{}');
  update fenceline.group_root set state = 'TOMBSTONED'
  where subscription_id = any (p_subscriptions) and state in ('PENDING', 'CURRENT');
  update fenceline.entry_group g set purge_due = true
  where g.group_id = any (v_groups) and not g.purge_due and fenceline.is_group_dead(g.group_id);
  perform fenceline.forget_digests(p_subscriptions);
  perform 1 from fenceline.outbox o
    where o.subscription_id = any (p_subscriptions) order by o.subscription_id, o.index_id for no key update;
  update fenceline.outbox o
  set pending = false, ordinal = greatest(o.ordinal, s.accepted_ordinal), confirmed_ordinal = greatest(o.confirmed_ordinal, s.accepted_ordinal)
  from fenceline.subscription s where s.subscription_id = any (p_subscriptions) and o.subscription_id = s.subscription_id;
  with taken as (
    delete from fenceline.body where subscription_id = any (p_subscriptions)
    returning subscription_id, ordinal, part_id)
  insert into fenceline.part_taken (subscription_id, ordinal, part_id)
  select distinct t.subscription_id, t.ordinal, t.part_id
  from taken t join fenceline.subscription s using (subscription_id)
  -- A version without parts is of its own URI.
  where exists (
    select 1 from taken p where p.subscription_id = t.subscription_id and p.ordinal = t.ordinal and p.part_id <> s.resource_id)
  on conflict do nothing;
  with gone as (
    update fenceline.subscription
    set hidden_because = 'tombstoned', version_ordinal = null, digest = null, due_at = null
    where subscription_id = any (p_subscriptions) and hidden_because is distinct from 'tombstoned'
    returning subscription_id, accepted_ordinal)
  insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, detail, at)
  select p_scope, subscription_id, accepted_ordinal, 'tombstone', jsonb_build_object('because', p_because), p_now from gone;
end $$;

-- Of these reads, those that ended as forbidden inside their fence, each with the id of the request that revokes its URI (P7).
create or replace function fenceline.forbidden_reads(p_scope int, p_subscriptions bigint[], p_ordinals bigint[])
returns table (request_id text, uri text) language sql stable as $$
  select 'forbidden:' || r.subscription_id || '.' || r.ordinal, s.uri
  from unnest(p_subscriptions, p_ordinals) as i (subscription_id, ordinal)
  join fenceline.read r on r.subscription_id = i.subscription_id and r.ordinal = i.ordinal and r.settled_as = 'forbidden'
  join fenceline.subscription s on s.subscription_id = r.subscription_id and s.scope_id = p_scope
  order by r.subscription_id, r.ordinal
$$;
