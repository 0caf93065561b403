-- The atomic swap (L3): what was written or is reused becomes visible, what it replaces stops to be, in one transaction.
--
-- 1. All or nothing per version: a group it builds on that is no longer there refuses the whole version.
-- 2. Attaching to a PRESENT group and purging it both hold the group's row; whoever comes second sees what the first did.
-- 3. CURRENT edges of a subscription in an index stand at the ordinal confirmed last.
--
-- Like every function that is called often, it plans without sequential scans: a plan is made once, mostly while the tables
-- are small, and one kept from then took 30 ms per 60,000 entries at each confirm.

-- Confirms versions in an index.
--   p_index                                           the index
--   p_subscriptions, p_ordinals, p_tokens             the versions, one per subscription, with their claims
--   p_written, p_written_for, p_written_parts         groups intended and written, each with its subscription and part
--   p_reused, p_reused_for                            numbers of entries already present, each with the subscription
-- Result: an outcome per subscription.
--   confirmed   served from now on; also when this very confirm was answered before and the answer was lost
--   superseded  this ordinal or a newer one was confirmed in this index
--   revoked     closed or covered by a reader's revocation, hidden, or reopened with another generation
--   claim_lost  the claim ended or is another worker's
--   index_retired  the index left; what was written is purged
--   group_gone  a group was purged or abandoned, or a revocation of its part was lifted meanwhile: index it again
create or replace function fenceline.confirm_versions(
  p_index int, p_subscriptions bigint[], p_ordinals bigint[], p_tokens uuid[],
  p_written bigint[], p_written_for bigint[], p_written_parts bigint[], p_reused bigint[], p_reused_for bigint[]
) returns table (subscription_id bigint, outcome text)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_outcomes text[];
  v_confirmed bigint[];
  v_written bigint[];
  v_written_for bigint[];
  v_reused bigint[];
  v_reused_for bigint[];
begin
  perform fenceline.fence_scopes_of(p_subscriptions);
  perform 1 from fenceline.subscription s
    where s.subscription_id = any (p_subscriptions) order by s.subscription_id for no key update;
  perform fenceline.lock_groups_to_confirm(p_index, p_subscriptions, p_written, p_reused);
  perform 1 from fenceline.outbox o
    where o.index_id = p_index and o.subscription_id = any (p_subscriptions) order by o.subscription_id for no key update;

  v_outcomes := fenceline.judge_confirm(p_index, p_subscriptions, p_ordinals, p_tokens,
                                        p_written, p_written_for, p_written_parts, p_reused, p_reused_for);
  v_confirmed := array(
    select i.subscription_id from unnest(p_subscriptions, v_outcomes) i (subscription_id, outcome)
    where i.outcome = 'confirm');
  perform fenceline.leave_out_covered_parts(p_written, p_written_for, p_written_parts, p_reused, p_reused_for, v_confirmed);
  select array_agg(w.group_id), array_agg(w.subscription_id) into v_written, v_written_for
  from unnest(p_written, p_written_for) w (group_id, subscription_id)
  join fenceline.entry_group g using (group_id)
  where w.subscription_id = any (v_confirmed) and g.state = 'INTENT';
  select array_agg(u.entry_number), array_agg(u.subscription_id) into v_reused, v_reused_for
  from unnest(p_reused, p_reused_for) u (entry_number, subscription_id)
  join fenceline.entry e using (entry_number) join fenceline.entry_group g using (group_id)
  where u.subscription_id = any (v_confirmed) and not fenceline.is_part_covered(u.subscription_id, g.part_id);

  perform fenceline.split_reused_groups(v_reused, v_reused_for);
  perform fenceline.swap_edges(p_index, v_confirmed, p_subscriptions, p_ordinals, v_written, v_written_for, v_reused, v_reused_for);
  update fenceline.outbox o
  set confirmed_ordinal = i.ordinal, pending = o.ordinal > i.ordinal, claim_token = null, claim_until = null,
      attempts = 0, failure = null
  from unnest(p_subscriptions, p_ordinals) i (subscription_id, ordinal)
  where o.index_id = p_index and o.subscription_id = i.subscription_id and o.subscription_id = any (v_confirmed);
  perform fenceline.let_index_serve(p_index);
  return query
    select i.subscription_id, case when i.outcome = 'confirm' then 'confirmed' else i.outcome end
    from unnest(p_subscriptions, v_outcomes) i (subscription_id, outcome);
end $$;

-- Locks, in the order of their ids, the groups a confirm attaches to and those it detaches from. Another confirm may
-- split one of them while this one waits, so it looks again until what it holds is what it needs.
create or replace function fenceline.lock_groups_to_confirm(
  p_index int, p_subscriptions bigint[], p_written bigint[], p_reused bigint[]
) returns void
language plpgsql volatile as $$
declare
  v_locked bigint[];
  v_needed bigint[];
begin
  loop
    v_needed := array(
      select unnest(p_written)
      union
      select e.group_id from fenceline.entry e where e.entry_number = any (p_reused)
      union
      select r.group_id from fenceline.outbox o
      join fenceline.group_root r on r.subscription_id = o.subscription_id and r.ordinal = o.confirmed_ordinal
      where o.index_id = p_index and o.subscription_id = any (p_subscriptions)
        and r.index_id = p_index and r.state = 'CURRENT'
      union
      select r.group_id from fenceline.group_root r join fenceline.subscription s using (subscription_id)
      where r.subscription_id = any (p_subscriptions) and s.derived and r.derived and r.state in ('PENDING', 'CURRENT')
      order by 1);
    exit when v_needed = v_locked;
    perform 1 from fenceline.entry_group g where g.group_id = any (v_needed) order by g.group_id for no key update;
    v_locked := v_needed;
  end loop;
end $$;

-- Decides what becomes of each version; everything it looks at is locked or fenced by the caller.
-- Result: `confirm`, or an outcome of `confirm_versions`, in the order of the subscriptions.
create or replace function fenceline.judge_confirm(
  p_index int, p_subscriptions bigint[], p_ordinals bigint[], p_tokens uuid[],
  p_written bigint[], p_written_for bigint[], p_written_parts bigint[], p_reused bigint[], p_reused_for bigint[]
) returns text[]
language sql volatile as $$
  with version as materialized (
    select i.subscription_id, i.ordinal, i.token, i.position, s.resource_id, p.subject_id, p.standing_revocations,
           fenceline.may_be_indexed(s) and v.generation = s.generation
             and (p.standing_revocations = 0 or not fenceline.is_revoked(p.subject_id, q.deny_hashes, 'reader')) as stands,
           o.confirmed_ordinal, o.claim_token = i.token and o.claim_until > fenceline.now() as claimed
    from unnest(p_subscriptions, p_ordinals, p_tokens) with ordinality i (subscription_id, ordinal, token, position)
    left join fenceline.subscription s on s.subscription_id = i.subscription_id
    left join fenceline.resource q on q.resource_id = s.resource_id
    left join fenceline.policy_scope p on p.scope_id = s.scope_id
    left join fenceline.resource_version v on v.subscription_id = i.subscription_id and v.ordinal = i.ordinal
    left join fenceline.outbox o on o.subscription_id = i.subscription_id and o.index_id = p_index
  ), written as materialized (
    select v.subscription_id, g.state, r.state as edge, v.standing_revocations > 0
             and fenceline.is_revoked(v.subject_id, part.deny_hashes, 'reader') as left_out
    from unnest(p_written, p_written_for, p_written_parts) w (group_id, subscription_id, part_id)
    join version v on v.subscription_id = w.subscription_id
    left join fenceline.resource part on part.resource_id = w.part_id
    left join fenceline.entry_group g on g.group_id = w.group_id and g.index_id = p_index
    left join fenceline.group_root r on r.group_id = g.group_id and r.subscription_id = v.subscription_id
      and r.ordinal = v.ordinal and r.part_id = w.part_id and r.ingredient = 0
  ), gone as (
    select w.subscription_id from written w
    where not coalesce(w.left_out, false) and (w.state is distinct from 'INTENT' or w.edge is distinct from 'PENDING')
    union
    select v.subscription_id
    from unnest(p_reused, p_reused_for) u (entry_number, subscription_id)
    join version v on v.subscription_id = u.subscription_id
    left join fenceline.entry e on e.entry_number = u.entry_number
    left join fenceline.entry_group g on g.group_id = e.group_id and g.index_id = p_index
      and g.resource_id = v.resource_id and g.kind = 'chunk'
    where g.state is distinct from 'PRESENT' or not g.settled
  ), unconfirmed as (
    select w.subscription_id from written w
    where not coalesce(w.left_out, false) and (w.state is distinct from 'PRESENT' or w.edge is distinct from 'CURRENT')
  )
  select array_agg(
    case
      when v.stands is not true then 'revoked'
      when (select i.retired_at is not null from fenceline.index i where i.index_id = p_index) then 'index_retired'
      when v.confirmed_ordinal = v.ordinal and v.subscription_id not in (select subscription_id from unconfirmed)
        then 'confirmed'
      when v.confirmed_ordinal >= v.ordinal then 'superseded'
      when v.claimed is not true then 'claim_lost'
      when v.subscription_id in (select subscription_id from gone) then 'group_gone'
      else 'confirm'
    end order by v.position)
  from version v
$$;

-- Whether a reader's revocation covers a part for the reader of a subscription.
create or replace function fenceline.is_part_covered(p_subscription bigint, p_part bigint) returns boolean
language sql stable as $$
  select p.standing_revocations > 0 and fenceline.is_revoked(p.subject_id, part.deny_hashes, 'reader')
  from fenceline.subscription s
  join fenceline.policy_scope p using (scope_id)
  join fenceline.resource part on part.resource_id = p_part
  where s.subscription_id = p_subscription
$$;

-- Takes the parts that are covered by a reader's revocation out of a confirm: groups written for them are given up, and the
-- subscription no longer counts as unchanged, so that its next read brings the part back once the revocation is lifted.
create or replace function fenceline.leave_out_covered_parts(
  p_written bigint[], p_written_for bigint[], p_written_parts bigint[], p_reused bigint[], p_reused_for bigint[],
  p_confirmed bigint[]
) returns void
language plpgsql volatile as $$
declare
  v_groups bigint[];
  v_subscriptions bigint[];
  v_parts bigint[];
begin
  select array_agg(u.group_id), array_agg(u.subscription_id), array_agg(u.part_id) into v_groups, v_subscriptions, v_parts
  from (
    select group_id, subscription_id, part_id
    from unnest(p_written, p_written_for, p_written_parts) w (group_id, subscription_id, part_id)
    union
    select g.group_id, u.subscription_id, g.part_id
    from unnest(p_reused, p_reused_for) u (entry_number, subscription_id)
    join fenceline.entry e using (entry_number) join fenceline.entry_group g using (group_id)
  ) u
  where u.subscription_id = any (p_confirmed) and fenceline.is_part_covered(u.subscription_id, u.part_id);
  if v_groups is null then
    return;
  end if;
  update fenceline.subscription set digest = null where subscription_id = any (v_subscriptions);
  perform fenceline.note_parts_left_out(v_subscriptions, v_parts);
  update fenceline.entry_group set state = 'ABANDONED', purge_due = true
  where group_id = any (v_groups) and group_id = any (p_written) and state = 'INTENT';
  update fenceline.group_root set state = 'REVOKED'
  where group_id = any (v_groups) and group_id = any (p_written) and state = 'PENDING';
end $$;

-- Where a version reuses some entries of a group and not all, those move to a group of their own, with the edges of
-- everybody who has them; the rest stays. Repeats until every version that is confirmed reuses whole groups.
create or replace function fenceline.split_reused_groups(p_reused bigint[], p_reused_for bigint[])
returns void
language plpgsql volatile as $$
declare
  v_group bigint;
  v_taken bigint[];
  v_new bigint;
begin
  loop
    select g.group_id, array_agg(distinct e.entry_number) into v_group, v_taken
    from unnest(p_reused, p_reused_for) u (entry_number, subscription_id)
    join fenceline.entry e using (entry_number) join fenceline.entry_group g using (group_id)
    group by g.group_id, g.entries, u.subscription_id
    having count(distinct e.entry_number) < g.entries
    order by g.group_id limit 1;
    exit when v_group is null;

    -- Due for a look: an edge copied here may be ending in a transaction that waits for the old group.
    insert into fenceline.entry_group (index_id, store_id, kind, resource_id, part_id, state, settled, entries, purge_due)
    select index_id, store_id, kind, resource_id, part_id, state, settled, cardinality(v_taken), true
    from fenceline.entry_group where group_id = v_group
    returning group_id into v_new;
    update fenceline.entry set group_id = v_new where entry_number = any (v_taken);
    update fenceline.entry_group set entries = entries - cardinality(v_taken) where group_id = v_group;
    insert into fenceline.group_root
      (group_id, subscription_id, ordinal, part_id, ingredient, scope_id, resource_id, index_id, state, derived)
    select v_new, subscription_id, ordinal, part_id, ingredient, scope_id, resource_id, index_id, state, derived
    from fenceline.group_root where group_id = v_group;
  end loop;
end $$;

-- Supersedes the edges of the versions before, and makes those of the confirmed versions CURRENT.
--   p_confirmed                                         the subscriptions that are confirmed
--   p_written, p_written_for, p_reused, p_reused_for    what is served from now on: groups and entries of these alone
create or replace function fenceline.swap_edges(
  p_index int, p_confirmed bigint[], p_subscriptions bigint[], p_ordinals bigint[], p_written bigint[],
  p_written_for bigint[], p_reused bigint[], p_reused_for bigint[]
) returns void
language plpgsql volatile as $$
declare
  v_superseded bigint[];
begin
  with superseded as (
    update fenceline.group_root r set state = 'SUPERSEDED'
    from fenceline.outbox o
    where o.index_id = p_index and o.subscription_id = any (p_confirmed)
      and r.subscription_id = o.subscription_id and r.ordinal = o.confirmed_ordinal
      and r.index_id = p_index and r.state = 'CURRENT'
    returning r.group_id
  )
  select array_agg(distinct s.group_id) into v_superseded from superseded s;

  perform fenceline.attach_reused(p_index, p_subscriptions, p_ordinals, p_reused, p_reused_for, false);
  perform fenceline.end_cached_embeddings(p_confirmed, p_subscriptions, p_ordinals);

  update fenceline.group_root r set state = 'CURRENT'
  from unnest(p_written, p_written_for) w (group_id, subscription_id)
  join unnest(p_subscriptions, p_ordinals) i (subscription_id, ordinal) on i.subscription_id = w.subscription_id
  where r.group_id = w.group_id and r.subscription_id = i.subscription_id and r.ordinal = i.ordinal and r.state = 'PENDING';
  update fenceline.entry_group g
  set state = 'PRESENT', settled = true, writer_lease_until = null, purge_due = false, claim_token = null
  where g.group_id = any (p_written);

  update fenceline.entry_group g set purge_due = true
  where g.group_id = any (v_superseded) and not g.purge_due and fenceline.is_group_dead(g.group_id);
end $$;

-- Makes versions stand on whole groups that they reuse, whose rows the caller holds.
--   p_subscriptions, p_ordinals  the versions
--   p_reused, p_reused_for       numbers of entries, each with the subscription
--   p_derived                    of cached embeddings, not of chunks
create or replace function fenceline.attach_reused(
  p_index int, p_subscriptions bigint[], p_ordinals bigint[], p_reused bigint[], p_reused_for bigint[], p_derived boolean
) returns void
language sql volatile as $$
  with reused as materialized (
    select distinct g.group_id, g.part_id, i.subscription_id, i.ordinal
    from unnest(p_reused, p_reused_for) u (entry_number, subscription_id)
    join unnest(p_subscriptions, p_ordinals) i (subscription_id, ordinal) on i.subscription_id = u.subscription_id
    join fenceline.entry e on e.entry_number = u.entry_number
    join fenceline.entry_group g on g.group_id = e.group_id
  ), passed as (
    -- Between its first version and its current one: a chunk that outlives a thousand versions would otherwise carry a
    -- thousand edges, and the guard reads them all.
    delete from fenceline.group_root r using reused u
    where r.group_id = u.group_id and r.subscription_id = u.subscription_id and r.state = 'SUPERSEDED'
      and r.ordinal > (select min(f.ordinal) from fenceline.group_root f
                       where f.group_id = r.group_id and f.subscription_id = r.subscription_id)
  )
  insert into fenceline.group_root (group_id, subscription_id, ordinal, part_id, scope_id, resource_id, index_id, state, derived)
  select u.group_id, u.subscription_id, u.ordinal, u.part_id, s.scope_id, s.resource_id, p_index, 'CURRENT', p_derived
  from reused u join fenceline.subscription s using (subscription_id)
  on conflict (group_id, subscription_id, ordinal, part_id, ingredient) do update set state = 'CURRENT';
$$;

-- Ends the cached embeddings whose text the confirmed versions have no more: nobody let them stand for these.
create or replace function fenceline.end_cached_embeddings(p_confirmed bigint[], p_subscriptions bigint[], p_ordinals bigint[])
returns void
language plpgsql volatile as $$
begin
  -- Most ledgers derive nothing, and ask no more than this.
  if exists (select 1 from fenceline.subscription s where s.subscription_id = any (p_confirmed) and s.derived) then
    perform fenceline.end_derived_edges(array(
      select distinct r.group_id
      from unnest(p_subscriptions, p_ordinals) i (subscription_id, ordinal)
      join fenceline.group_root r on r.subscription_id = i.subscription_id
      where i.subscription_id = any (p_confirmed) and r.derived and r.state in ('PENDING', 'CURRENT')
        and r.ordinal < i.ordinal
      order by r.group_id), p_subscriptions, p_ordinals);
  end if;
end $$;

-- Whether nothing holds a group any more: no edge at all, or an ingredient without a living alternative (L1, P3).
create or replace function fenceline.is_group_dead(p_group bigint) returns boolean
language sql stable as $$
  select coalesce(bool_or(i.dead), true)
  from (select not bool_or(r.state in ('CURRENT', 'PENDING')) as dead
        from fenceline.group_root r where r.group_id = p_group group by r.ingredient) i
$$;
