-- What follows a revocation, batch by batch (P2, P3): a reader's covered subscriptions close (U7), edges are marked, kept
-- bodies and plain digests go; of an audience, the edges of what was made for it alone are marked (derivations.sql). Nothing here
-- makes the revocation effective; it is, since its row committed.

-- One batch of a revocation: at most p_limit covered resources, in the order of their keys, of one source.
-- Of a lifted one: at most p_limit subscriptions that it closed are reopened, or read again if it took a part of them.
-- Result: `more` or `done` (also when it does not exist).
create or replace function fenceline.advance_revocation(p_revocation bigint, p_limit int) returns text
language plpgsql volatile set enable_seqscan = off as $$
declare
  v fenceline.revocation;
  v_source int;
  v_phases int;
  v_resources bigint[];
  v_covered int;
begin
  -- The fences of a batch of reopening come before the revocation's row; a lift is final.
  if (select r.state = 'LIFTED' from fenceline.revocation r where r.revocation_id = p_revocation) then
    -- A revocation waits for their batch: 100 at most.
    return fenceline.reopen_batch(p_revocation, least(p_limit, 100));
  end if;
  select * into v from fenceline.revocation where revocation_id = p_revocation for no key update;
  if v.state = 'LIFTED' then
    -- Lifted while this waited: the next call reopens.
    return case when v.reopening then 'more' else 'done' end;
  end if;
  if not found or v.state <> 'EFFECTIVE' or v.marked_all then
    return 'done';
  end if;
  -- Whether a holder stands decides what a close leaves it to do: none ends its session between that and the commit, or nobody
  -- would be left to settle it. Not the fence, for which the next revocation would wait as long as a batch takes.
  perform 1
  from fenceline.policy_scope p join fenceline.session x on x.scope_id = p.scope_id and x.generation = p.session_generation
  where p.subject_id = v.subject_id and (v.source_id is null or p.source_id = v.source_id) and x.ended_at is null
  order by x.session_id for share of x;
  v_phases := case when v.key_from = v.match_from then 2 else 4 end;
  while v.cursor_phase < v_phases loop
    v_source := (
      select min(p.source_id) from fenceline.policy_scope p
      where p.subject_id = v.subject_id and (v.source_id is null or p.source_id = v.source_id)
        and p.source_id >= v.cursor_source);
    if v_source is null then
      v.cursor_phase := v.cursor_phase + 1;
      v.cursor_source := 0;
      v.cursor_key := '';
      v.cursor_resource := 0;
      continue;
    end if;
    if v_source > v.cursor_source then
      v.cursor_source := v_source;
      v.cursor_key := '';
      v.cursor_resource := 0;
    end if;
    v_resources := fenceline.next_covered_resources(v, p_limit);
    if cardinality(v_resources) > 0 then
      exit;
    end if;
    v.cursor_source := v_source + 1;
    v.cursor_key := '';
    v.cursor_resource := 0;
  end loop;

  if v.cursor_phase < v_phases then
    v_covered := fenceline.count_covered(v, v_source, v_resources);
    if v.role <> 'audience' then
      perform fenceline.close_and_mark(v, v_source, v_resources);
    end if;
    if v.role <> 'reader' then
      perform fenceline.mark_entries_of_audience(v, v_source, v_resources);
    end if;
    perform fenceline.record_covered_exports(v, v_source, v_resources);
    select left(case when v.cursor_phase in (0, 2) then q.match_key else q.segment_key end, 600), q.resource_id
    into v.cursor_key, v.cursor_resource
    from fenceline.resource q where q.resource_id = v_resources[cardinality(v_resources)];
    update fenceline.revocation
    set cursor_phase = v.cursor_phase, cursor_source = v.cursor_source, cursor_key = v.cursor_key,
        cursor_resource = v.cursor_resource,
        covered_resources = coalesce(covered_resources, 0) + v_covered, nothing_covered = nothing_covered and v_covered = 0
    where revocation_id = p_revocation;
    return 'more';
  end if;
  update fenceline.revocation
  set cursor_phase = v_phases, closed_all = true, marked_all = true, covered_resources = coalesce(covered_resources, 0)
  where revocation_id = p_revocation;
  perform fenceline.complete_revocation(p_revocation);
  return 'done';
end $$;

-- The covered resources after the revocation's cursor, in order. Four phases, because for a denial either text may begin
-- either key (F10); the last two only where the texts differ. What an earlier phase found is not found again.
-- Each batch costs its own length: the cursor's text stands alone as well, a bound the index knows, and the setting leaves
-- the planner the order of the index. Else each walked over all others (at 20,000 resources 20 of 35 ms).
create or replace function fenceline.next_covered_resources(v fenceline.revocation, p_limit int) returns bigint[]
language plpgsql stable set enable_sort = off as $$
declare
  v_from text collate "C" := case when v.cursor_phase in (0, 3) then v.match_from else v.key_from end;
  v_to text collate "C" := case when v.cursor_phase in (0, 3) then v.match_to else v.key_to end;
begin
  if v.cursor_phase in (0, 2) then
    return array(
      select q.resource_id from fenceline.resource q
      where q.source_id = v.cursor_source
        and left(q.match_key, 600) >= left(v_from, 600) and left(q.match_key, 600) <= left(v_to, 600)
        and q.match_key >= v_from and q.match_key < v_to
        and left(q.match_key, 600) >= v.cursor_key
        and (left(q.match_key, 600), q.resource_id) > (v.cursor_key, v.cursor_resource)
        and not fenceline.was_found_before(v, q)
      order by left(q.match_key, 600), q.resource_id
      limit p_limit);
  end if;
  return array(
    select q.resource_id from fenceline.resource q
    where q.source_id = v.cursor_source
      and left(q.segment_key, 600) >= left(v_from, 600) and left(q.segment_key, 600) <= left(v_to, 600)
      and q.segment_key >= v_from and q.segment_key < v_to
      and left(q.segment_key, 600) >= v.cursor_key
      and (left(q.segment_key, 600), q.resource_id) > (v.cursor_key, v.cursor_resource)
      and not fenceline.was_found_before(v, q)
    order by left(q.segment_key, 600), q.resource_id
    limit p_limit);
end $$;

create or replace function fenceline.was_found_before(v fenceline.revocation, q fenceline.resource) returns boolean
language sql immutable as $$
  select v.cursor_phase > 0 and q.match_key >= v.match_from and q.match_key < v.match_to
    or v.cursor_phase > 1 and q.segment_key >= v.key_from and q.segment_key < v.key_to
    or v.cursor_phase > 2 and q.match_key >= v.key_from and q.match_key < v.key_to
$$;

-- How many of these resources the subject read, also as parts, or (an audience) was granted. Ask before they are marked.
create or replace function fenceline.count_covered(v fenceline.revocation, p_source int, p_resources bigint[]) returns int
language sql stable as $$
  with read as materialized (
    select s.resource_id, s.scope_id from fenceline.subscription s where s.resource_id = any (p_resources)
    union
    select r.part_id, r.scope_id from fenceline.group_root r
    where r.part_id = any (p_resources) and r.part_id <> r.resource_id
    union
    select b.part_id, s.scope_id from fenceline.body b join fenceline.subscription s using (subscription_id)
    where b.part_id = any (p_resources)
  )
  select count(*)::int from fenceline.resource q
  where q.resource_id = any (p_resources)
    and (v.role <> 'audience' and q.resource_id in (
        select d.resource_id from read d join fenceline.policy_scope p using (scope_id)
        where p.source_id = p_source and p.subject_id = v.subject_id)
      or v.role <> 'reader' and exists (
        select 1 from fenceline.access_grant g
        where g.cover_hash = any (q.cover_hashes) and g.audience_id = v.subject_id and g.source_id = p_source
          and fenceline.grant_covers(g.key_prefix, g.match_prefix, q.segment_key, q.match_key)))
$$;

-- Closes the reader's subscriptions to these resources (U7) and marks every edge that has one of them as its resource or
-- its part; kept bodies and plain digests go (P3, P8).
create or replace function fenceline.close_and_mark(v fenceline.revocation, p_source int, p_resources bigint[]) returns void
language plpgsql volatile as $$
declare
  v_scope int := (select p.scope_id from fenceline.policy_scope p
                  where p.source_id = p_source and p.subject_id = v.subject_id);
  v_whole bigint[];  -- subscriptions to the resources
  v_partly bigint[]; -- subscriptions that have them as parts
begin
  v_whole := array(
    select s.subscription_id from fenceline.subscription s
    where s.resource_id = any (p_resources) and s.scope_id = v_scope);
  v_partly := array(
    select r.subscription_id from fenceline.group_root r
    where r.part_id = any (p_resources) and r.part_id <> r.resource_id and r.scope_id = v_scope
    union
    select b.subscription_id from fenceline.body b join fenceline.subscription s using (subscription_id)
    where b.part_id = any (p_resources) and s.scope_id = v_scope
    except
    select unnest(v_whole));
  perform 1 from fenceline.subscription s
    where s.subscription_id = any (v_whole || v_partly) order by s.subscription_id for no key update;
  perform fenceline.close_subscriptions(v, v_whole);
  update fenceline.subscription set digest = null
  where subscription_id = any (v_whole || v_partly) and digest is not null;
  with taken as (
    delete from fenceline.body
    where subscription_id = any (v_whole) or subscription_id = any (v_partly) and part_id = any (p_resources)
    returning subscription_id, ordinal, part_id)
  insert into fenceline.part_taken (subscription_id, ordinal, part_id)
  select distinct t.subscription_id, t.ordinal, t.part_id from taken t where t.subscription_id = any (v_partly)
  on conflict do nothing;
  insert into fenceline.revocation_part (revocation_id, subscription_id)
  select v.revocation_id, p.subscription_id from unnest(v_partly) p (subscription_id)
  on conflict do nothing;

  perform fenceline.mark_edges(v.revocation_id, v_whole, v_partly, p_resources);
  -- After the groups, as the purge does; before them each waited for the other.
  perform fenceline.forget_digests(v_whole || v_partly);
  perform 1 from fenceline.outbox o
    where o.subscription_id = any (v_whole) and o.pending order by o.subscription_id, o.index_id for no key update;
  update fenceline.outbox set pending = false, claim_token = null, claim_until = null
  where subscription_id = any (v_whole) and pending;
end $$;

-- Marks the edges of whole subscriptions, and of parts of others, revoked. Whole sets at a time: a question per group took half of
-- the time.
create or replace function fenceline.mark_edges(p_revocation bigint, p_whole bigint[], p_partly bigint[], p_parts bigint[]) returns void
language plpgsql volatile as $$
declare
  v_groups bigint[] := fenceline.lock_covered_groups(p_whole, p_partly, p_parts);
begin
  update fenceline.group_root r set state = 'REVOKED'
  where r.group_id = any (v_groups) and r.state in ('PENDING', 'CURRENT')
    and (r.subscription_id = any (p_whole) or r.subscription_id = any (p_partly) and r.part_id = any (p_parts));
  perform fenceline.leave_dead_to_purge(p_revocation, v_groups);
end $$;

-- Of groups that the caller has locked, those that no alternative, or not every ingredient, holds any more (L1; `is_group_dead` tells
-- of one) are the purge's, and the revocation waits for them. One statement: a function that found them was planned per batch.
create or replace function fenceline.leave_dead_to_purge(p_revocation bigint, p_groups bigint[]) returns void
language plpgsql volatile as $$
begin
  with dead as materialized (
    select i.group_id
    from (select r.group_id, bool_or(r.state in ('CURRENT', 'PENDING')) as lives
          from fenceline.group_root r where r.group_id = any (p_groups) group by r.group_id, r.ingredient) i
    group by i.group_id having not bool_and(i.lives)),
  waited_for as (
    insert into fenceline.revocation_group (revocation_id, group_id)
    select p_revocation, d.group_id from dead d order by d.group_id
    on conflict do nothing)
  update fenceline.entry_group g set purge_due = true
  where g.group_id = any (array(select d.group_id from dead d)) and not g.purge_due;
end $$;

-- Locks, in the order of their ids, the groups not yet purged of whole subscriptions and of parts of others. Another reader's
-- confirm may split one while this waits, so it looks again until it finds no other. Whether one is purged, which is final, the
-- lock tells.
create or replace function fenceline.lock_covered_groups(p_whole bigint[], p_partly bigint[], p_parts bigint[])
returns bigint[] language plpgsql volatile as $$
declare
  v_found bigint[];
  v_before bigint[];
  v_locked bigint[];
begin
  loop
    v_found := array(
      select r.group_id from fenceline.group_root r where r.subscription_id = any (p_whole)
      union
      select r.group_id from fenceline.group_root r where r.subscription_id = any (p_partly) and r.part_id = any (p_parts)
      order by 1);
    exit when v_found = v_before;
    v_locked := array(
      select g.group_id from fenceline.entry_group g where g.group_id = any (v_found) and g.state <> 'PURGED'
      order by g.group_id for no key update);
    v_before := v_found;
  end loop;
  return v_locked;
end $$;

-- Freezes the close ordinal of subscriptions that a revocation covers, whatever state they are in (U7, U8). Those closed
-- before stay closed by whoever closed them. What the standing session may have asked its server to push waits for the holder,
-- which is told to unsubscribe it (U9); where nobody has to be asked (polled, or no session stands) it is closed at once.
-- The caller holds the rows.
create or replace function fenceline.close_subscriptions(v fenceline.revocation, p_subscriptions bigint[]) returns void
language plpgsql volatile as $$
declare
  v_unsettled bigint[];
begin
  update fenceline.subscription s
  set lifecycle = case s.lifecycle when 'DISCOVERED' then 'CLOSED' else 'UNSUBSCRIBING' end::fenceline.lifecycle,
    lifecycle_event = 'revoked', close_ordinal = s.issued_ordinal, close_policy_epoch = v.policy_epoch, closed_by = v.revocation_id,
    digest = null, due_at = null, claim_until = null
  where s.subscription_id = any (p_subscriptions)
    and s.lifecycle in ('DISCOVERED', 'SUBSCRIBING', 'ACTIVE', 'RECONCILIATION_REQUIRED');
  perform fenceline.close_unsubscribed(array(
    select s.subscription_id
    from fenceline.subscription s join fenceline.policy_scope c on c.scope_id = s.scope_id
    where s.subscription_id = any (p_subscriptions) and s.lifecycle = 'UNSUBSCRIBING' and s.closed_by = v.revocation_id
      and (not s.pushed and s.session_generation = c.session_generation
        or not fenceline.session_stands(c.scope_id, c.session_generation))),
    'unsubscribe_acknowledged');
  v_unsettled := array(
    select s.subscription_id from fenceline.subscription s
    where s.subscription_id = any (p_subscriptions) and s.lifecycle = 'UNSUBSCRIBING');
  perform fenceline.announce_unsettled(v_unsettled);
end $$;
