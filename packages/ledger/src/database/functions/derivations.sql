-- Entries derived from versions or from other entries (L1): summaries, answers, stored documents, cached embeddings.
--
-- 1. L2: recorded before they are written, like chunks; the purge path takes what was never confirmed.
-- 2. `group_root` holds the closure, flattened when it is recorded (derived-roots.ts): each ingredient needs a living root.
-- 3. Recording and confirming hold the shared fences of the scopes of *all* roots, and of the audience under each of their
--    sources, in the order of their ids: each comes before or after a revocation, never beside it.
-- 4. What was derived ends with the newest version it came from: at the acceptance of the next one. A cached embedding stands
--    for a text: it ends when the next version is confirmed without it (`swap_edges`).

-- What one root says against an entry made of it. Under the fence of its scope and with its subscription locked.
--   p_audience  whom the entry is for; null: whoever is granted it
-- Result: null (it lives), 'parent_unknown', 'parent_revoked', 'parent_hidden', 'parent_superseded'.
create or replace function fenceline.root_problem(p_subscription bigint, p_ordinal bigint, p_part bigint, p_audience bigint)
returns text language sql stable as $$
  select nullif(coalesce((
    select case
        when v.ordinal is null then 'parent_unknown'
        when s.closed_by is not null or fenceline.is_revoked(p.subject_id, q.deny_hashes, 'reader')
          or fenceline.is_revoked(p.subject_id, part.deny_hashes, 'reader')
          or fenceline.is_revoked(p_audience, q.deny_hashes, 'audience')
          or fenceline.is_revoked(p_audience, part.deny_hashes, 'audience') then 'parent_revoked'
        when s.hidden_because is not null or s.lifecycle = 'RECONCILIATION_REQUIRED' then 'parent_hidden'
        when v.generation <> s.generation or v.ordinal is distinct from s.version_ordinal then 'parent_superseded'
        else ''
      end
    from fenceline.subscription s
    join fenceline.policy_scope p using (scope_id)
    join fenceline.resource q using (resource_id)
    join fenceline.resource part on part.resource_id = p_part
    left join fenceline.resource_version v on v.subscription_id = s.subscription_id and v.ordinal = p_ordinal
    where s.subscription_id = p_subscription), 'parent_unknown'), '')
$$;

-- The roots of parents, before anything is fenced: what the closure is made of. Whether they live is decided when it is recorded.
--   p_entries                            numbers of entries, null where the parent is a version
--   p_subscriptions, p_ordinals, p_parts  versions; key digest of one of their parts, or null: all of them
-- Result: a row per root; `parent` is its position from 1. A parent without a row is unknown, or has no living root.
create or replace function fenceline.parent_roots(
  p_entries bigint[], p_subscriptions bigint[], p_ordinals bigint[], p_parts bytea[]
) returns table (parent int, group_id bigint, ingredient int, subscription_id bigint, ordinal bigint, part_id bigint)
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
begin
  return query
    select i.position::int, e.group_id, r.ingredient::int, r.subscription_id, r.ordinal, r.part_id
    from unnest(p_entries) with ordinality i (entry_number, position)
    join fenceline.entry e using (entry_number)
    join fenceline.group_root r using (group_id)
    where r.state = 'CURRENT'
    union all
    select i.position::int, null, (dense_rank() over (partition by i.position order by k.part_id))::int,
           i.subscription_id, i.ordinal, k.part_id
    from unnest(p_subscriptions, p_ordinals, p_parts) with ordinality i (subscription_id, ordinal, part, position)
    join fenceline.resource_version v using (subscription_id, ordinal)
    cross join lateral (
      select b.part_id from fenceline.body b join fenceline.resource q on q.resource_id = b.part_id
      where b.subscription_id = i.subscription_id and b.ordinal = i.ordinal and (i.part is null or q.key_digest = i.part)
      union
      -- Whoever got the version before a revocation took a part of it made something of that part as well (P4).
      select t.part_id from fenceline.part_taken t join fenceline.resource q on q.resource_id = t.part_id
      where t.subscription_id = i.subscription_id and t.ordinal = i.ordinal and (i.part is null or q.key_digest = i.part)
      union
      -- A version without content, or one whose body went: of its own URI.
      select s.resource_id from fenceline.subscription s join fenceline.resource q using (resource_id)
      where s.subscription_id = i.subscription_id and (i.part is null or q.key_digest = i.part)
        and not exists (
          select 1 from fenceline.body b where b.subscription_id = i.subscription_id and b.ordinal = i.ordinal)
        and not exists (
          select 1 from fenceline.part_taken t where t.subscription_id = i.subscription_id and t.ordinal = i.ordinal)) k
    order by 1, 3, 4, 5, 6;
end $$;

-- The shared fences of the scopes of these subscriptions and, where an entry is for one audience, of that audience under
-- their sources; creates the scopes that are missing.
--   p_subscriptions, p_audiences  pairwise; a null audience is none
create or replace function fenceline.fence_roots(p_subscriptions bigint[], p_audiences bigint[]) returns void
language plpgsql volatile as $$
declare
  v_scopes int[];
begin
  v_scopes := array(
    select fenceline.ensure_policy_scope(a.source_id, a.audience_id)
    from (select distinct p.source_id, i.audience_id
          from unnest(p_subscriptions, p_audiences) i (subscription_id, audience_id)
          join fenceline.subscription s using (subscription_id) join fenceline.policy_scope p using (scope_id)
          where i.audience_id is not null order by i.audience_id, p.source_id) a);
  perform fenceline.fence_shared(x.scope_id)
  from (select distinct s.scope_id from fenceline.subscription s where s.subscription_id = any (p_subscriptions)
        union select unnest(v_scopes) order by 1) x;
end $$;

-- Records derived entries before they are written anywhere (L2), unless one of their parents is gone. A refused one leaves no
-- row: nothing may be written for it.
--   p_index, p_lease_ms          the index, and how long write and confirm may take
--   p_kinds, p_audiences         one element per group; audience: a name, or null
--   p_digests, p_digest_of       keyed digests of the contents in order, each with the position of its group
--   p_parent_*                   parents as they were named, each with the position of its group and its ingredient
--   p_root_*                     the closure, likewise
-- Result: a row per group: outcome, its id, the numbers of its entries in the order of the digests.
--   recorded          intended; confirm it within the lease
--   parent_unknown    no such version or entry
--   parent_gone       an entry that is not, or no longer, in its store
--   parent_revoked    a standing revocation of its reader, or of the audience, covers it
--   parent_hidden     its resource is hidden: forbidden, being deleted, or to be reconciled
--   parent_superseded a newer version was accepted, or its subscription has another generation by now
--   parent_for_others an entry made for another audience alone
--   index_retired
create or replace function fenceline.record_derived(
  p_index int, p_lease_ms bigint, p_kinds text[], p_audiences text[], p_digests bytea[], p_digest_of int[],
  p_parent_of int[], p_parent_ingredients int[], p_parent_entries bigint[], p_parent_subscriptions bigint[],
  p_parent_ordinals bigint[], p_parent_parts bytea[],
  p_root_of int[], p_root_ingredients int[], p_root_subscriptions bigint[], p_root_ordinals bigint[], p_root_parts bigint[]
) returns table (place int, outcome text, group_id bigint, entry_numbers bigint[])
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_audiences bigint[];
  v_outcomes text[];
  v_groups bigint[];
begin
  perform fenceline.ensure_subjects(p_audiences);
  v_audiences := array(
    select s.subject_id from unnest(p_audiences) with ordinality a (name, position)
    left join fenceline.subject s on s.name = a.name order by a.position);
  perform fenceline.fence_roots(p_root_subscriptions, array(
    select v_audiences[r.of] from unnest(p_root_of) with ordinality r (of, position) order by r.position));
  perform 1 from fenceline.subscription s
    where s.subscription_id = any (p_root_subscriptions) and not s.derived order by s.subscription_id for no key update;
  v_outcomes := fenceline.judge_derived(
    p_index, v_audiences, p_parent_of, p_parent_entries, p_parent_subscriptions, p_parent_ordinals,
    p_root_of, p_root_ingredients, p_root_subscriptions, p_root_ordinals, p_root_parts);
  v_groups := array(
    select case when o.outcome = 'recorded' then nextval('fenceline.entry_group_group_id_seq') end
    from unnest(v_outcomes) with ordinality o (outcome, position) order by o.position);
  update fenceline.subscription s set derived = true
  where not s.derived and s.subscription_id = any (array(
    select r.subscription_id from unnest(p_root_of, p_root_subscriptions) r (of, subscription_id)
    where v_groups[r.of] is not null));
  insert into fenceline.entry_group
    (group_id, index_id, store_id, kind, audience_id, resource_id, part_id, ingredients, entries, writer_lease_until, purge_due)
    overriding system value
  select g.group_id, p_index, i.store_id, k.kind, v_audiences[g.place], own.resource_id, own.part_id,
         (select count(distinct r.ingredient) from unnest(p_root_of, p_root_ingredients) r (of, ingredient) where r.of = g.place),
         (select count(*) from unnest(p_digest_of) d (of) where d.of = g.place),
         fenceline.now() + fenceline.milliseconds(p_lease_ms), true
  from unnest(v_groups) with ordinality g (group_id, place)
  join unnest(p_kinds) with ordinality k (kind, place) on k.place = g.place
  join fenceline.index i on i.index_id = p_index
  -- A cached embedding is looked up by the (source, URI) whose text it stands for (L5).
  left join lateral (
    select s.resource_id, r.part_id
    from unnest(p_root_of, p_root_subscriptions, p_root_parts) r (of, subscription_id, part_id)
    join fenceline.subscription s using (subscription_id)
    where k.kind = 'embedding' and r.of = g.place limit 1) own on true
  where g.group_id is not null;
  insert into fenceline.group_root
    (group_id, subscription_id, ordinal, part_id, ingredient, scope_id, resource_id, index_id, derived)
  select v_groups[r.of], r.subscription_id, r.ordinal, r.part_id, r.ingredient, s.scope_id, s.resource_id, p_index, true
  from unnest(p_root_of, p_root_ingredients, p_root_subscriptions, p_root_ordinals, p_root_parts)
    r (of, ingredient, subscription_id, ordinal, part_id)
  join fenceline.subscription s using (subscription_id)
  where v_groups[r.of] is not null;
  insert into fenceline.group_parent
    (group_id, ingredient, position, parent_group, parent_entry, subscription_id, ordinal, part_id)
  select v_groups[n.of], n.ingredient, row_number() over (partition by n.of, n.ingredient order by n.place),
         e.group_id, n.entry_number, n.subscription_id, n.ordinal,
         (select q.resource_id from fenceline.subscription s join fenceline.policy_scope p using (scope_id)
          join fenceline.resource q on q.source_id = p.source_id and q.key_digest = n.part
          where s.subscription_id = n.subscription_id)
  from unnest(p_parent_of, p_parent_ingredients, p_parent_entries, p_parent_subscriptions, p_parent_ordinals, p_parent_parts)
    with ordinality n (of, ingredient, entry_number, subscription_id, ordinal, part, place)
  left join fenceline.entry e using (entry_number)
  where v_groups[n.of] is not null and p_kinds[n.of] <> 'embedding';
  return query
    with entries as (
      insert into fenceline.entry as e (entry_number, group_id, position, chunk_digest)
      select nextval('fenceline.entry_number'), v_groups[d.of], row_number() over (partition by d.of order by d.position),
             d.digest
      from unnest(p_digests, p_digest_of) with ordinality d (digest, of, position)
      where v_groups[d.of] is not null
      returning e.group_id, e.entry_number, e.position
    )
    select o.place::int, o.outcome, v_groups[o.place],
           (select array_agg(e.entry_number order by e.position) from entries e where e.group_id = v_groups[o.place])
    from unnest(v_outcomes) with ordinality o (outcome, place);
end $$;

-- Decides which derived groups may be recorded; under the fences of `record_derived`. The parents are looked at as they were
-- named, and each ingredient of the closure needs a living root.
-- Result: outcomes of `record_derived`, in order.
create or replace function fenceline.judge_derived(
  p_index int, p_audiences bigint[], p_parent_of int[], p_parent_entries bigint[], p_parent_subscriptions bigint[],
  p_parent_ordinals bigint[], p_root_of int[], p_root_ingredients int[], p_root_subscriptions bigint[], p_root_ordinals bigint[],
  p_root_parts bigint[]
) returns text[]
language sql volatile as $$
  with parent as materialized (
    select n.of, case
        when n.subscription_id is not null then
          case when not exists (select 1 from fenceline.resource_version v
                                where v.subscription_id = n.subscription_id and v.ordinal = n.ordinal) then 'parent_unknown' end
        when e.entry_number is null then
          case when fenceline.was_purged(n.entry_number) then 'parent_gone' else 'parent_unknown' end
        when g.state <> 'PRESENT' or i.retired_at is not null then 'parent_gone'
        when fenceline.is_group_dead(g.group_id) then (
          select case when bool_or(r.state = 'REVOKED') then 'parent_revoked' else 'parent_superseded' end
          from fenceline.group_root r where r.group_id = g.group_id)
        when g.audience_id is not null and g.audience_id is distinct from p_audiences[n.of] then 'parent_for_others'
      end as problem
    from unnest(p_parent_of, p_parent_entries, p_parent_subscriptions, p_parent_ordinals)
      n (of, entry_number, subscription_id, ordinal)
    left join fenceline.entry e using (entry_number)
    left join fenceline.entry_group g using (group_id)
    left join fenceline.index i on i.index_id = g.index_id
  ), ingredient as materialized (
    select r.of, r.ingredient, min(r.problem) filter (where r.problem is not null) as problem, bool_or(r.problem is null) as lives
    from (select r.of, r.ingredient,
                 fenceline.root_problem(r.subscription_id, r.ordinal, r.part_id, p_audiences[r.of]) as problem
          from unnest(p_root_of, p_root_ingredients, p_root_subscriptions, p_root_ordinals, p_root_parts)
            r (of, ingredient, subscription_id, ordinal, part_id)) r
    group by r.of, r.ingredient
  )
  select array_agg(coalesce(
      (select 'index_retired' from fenceline.index i where i.index_id = p_index and i.retired_at is not null),
      (select min(p.problem) from parent p where p.of = a.place),
      (select min(i.problem) from ingredient i where i.of = a.place and not i.lives),
      -- No closure: a parent had no root, as a part has none that the version does not hold.
      case when not exists (select 1 from ingredient i where i.of = a.place) then 'parent_unknown' end,
      'recorded') order by a.place)
  from unnest(p_audiences) with ordinality a (audience_id, place)
$$;

-- Serves derived groups that were recorded and written, if every ingredient still has a living root; gives up the others.
--   p_groups  group ids, once each
-- Result: an outcome per group: `confirmed` (also again), an outcome of `record_derived` (given up; delete what was written),
-- `group_gone` (its lease ran out and the purge took it, or it was given up).
create or replace function fenceline.confirm_derived(p_groups bigint[]) returns table (group_id bigint, outcome text)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_subscriptions bigint[];
  v_audiences bigint[];
  v_groups bigint[];
  v_outcomes text[];
begin
  select array_agg(r.subscription_id), array_agg(g.audience_id) into v_subscriptions, v_audiences
  from fenceline.entry_group g join fenceline.group_root r using (group_id)
  where g.group_id = any (p_groups) and g.kind <> 'chunk';
  perform fenceline.fence_roots(v_subscriptions, v_audiences);
  -- An acceptance that ends one of the roots comes before or after.
  perform 1 from fenceline.subscription s
    where s.subscription_id = any (v_subscriptions) order by s.subscription_id for share;
  perform 1 from fenceline.entry_group g where g.group_id = any (p_groups) order by g.group_id for no key update;

  with ingredient as materialized (
    select r.group_id, r.ingredient, min(r.problem) as problem, bool_or(r.problem is null) as lives
    from (select r.group_id, r.ingredient, case r.state
              when 'REVOKED' then 'parent_revoked' when 'TOMBSTONED' then 'parent_hidden'
              when 'SUPERSEDED' then 'parent_superseded'
              else fenceline.root_problem(r.subscription_id, r.ordinal, r.part_id, g.audience_id) end as problem
          from fenceline.entry_group g join fenceline.group_root r using (group_id)
          where g.group_id = any (p_groups) and g.state = 'INTENT') r
    group by r.group_id, r.ingredient
  )
  select array_agg(i.group_id), array_agg(case
      when g.state = 'PRESENT' and g.kind <> 'chunk' then 'confirmed'
      when g.state is distinct from 'INTENT' or g.kind = 'chunk' then 'group_gone'
      when x.retired_at is not null then 'index_retired'
      else coalesce((select min(n.problem) from ingredient n where n.group_id = g.group_id and not n.lives), 'confirm')
    end)
  into v_groups, v_outcomes
  from unnest(p_groups) i (group_id)
  left join fenceline.entry_group g using (group_id)
  left join fenceline.index x using (index_id);

  update fenceline.group_root r
  set state = case coalesce(fenceline.root_problem(r.subscription_id, r.ordinal, r.part_id, g.audience_id), 'lives')
      when 'lives' then case o.outcome when 'confirm' then 'CURRENT' else 'SUPERSEDED' end
      when 'parent_revoked' then 'REVOKED'
      else 'SUPERSEDED' end::fenceline.edge_state
  from unnest(v_groups, v_outcomes) o (group_id, outcome) join fenceline.entry_group g using (group_id)
  where r.group_id = o.group_id and r.state = 'PENDING' and g.state = 'INTENT' and g.kind <> 'chunk';
  update fenceline.entry_group g
  set state = case when o.outcome = 'confirm' then 'PRESENT' else 'ABANDONED' end::fenceline.group_state,
      settled = o.outcome = 'confirm', purge_due = o.outcome <> 'confirm',
      writer_lease_until = case when o.outcome <> 'confirm' then g.writer_lease_until end
  from unnest(v_groups, v_outcomes) o (group_id, outcome)
  where g.group_id = o.group_id and g.state = 'INTENT' and g.kind <> 'chunk';
  return query
    select o.group_id, case o.outcome when 'confirm' then 'confirmed' else o.outcome end
    from unnest(v_groups, v_outcomes) o (group_id, outcome);
end $$;

-- Ends what was derived from older versions of subscriptions whose newest one was just accepted; the caller holds their rows.
create or replace function fenceline.supersede_derived(p_subscriptions bigint[]) returns void
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_groups bigint[] := array(
    select distinct r.group_id
    from fenceline.group_root r
    join fenceline.subscription s using (subscription_id)
    join fenceline.entry_group g using (group_id)
    where r.subscription_id = any (p_subscriptions) and r.derived and r.state in ('PENDING', 'CURRENT')
      and r.ordinal < s.version_ordinal and g.kind <> 'embedding'
    order by r.group_id);
begin
  perform fenceline.end_derived_edges(v_groups, p_subscriptions, array(
    select s.version_ordinal
    from unnest(p_subscriptions) with ordinality i (subscription_id, position)
    join fenceline.subscription s using (subscription_id) order by i.position));
end $$;

-- Ends the derived edges of these groups that are below these versions, whose subscriptions the caller holds.
create or replace function fenceline.end_derived_edges(p_groups bigint[], p_subscriptions bigint[], p_ordinals bigint[])
returns void
language plpgsql volatile as $$
begin
  if cardinality(p_groups) = 0 then
    return;
  end if;
  perform 1 from fenceline.entry_group g where g.group_id = any (p_groups) order by g.group_id for no key update;
  update fenceline.group_root r set state = 'SUPERSEDED'
  from unnest(p_subscriptions, p_ordinals) i (subscription_id, ordinal)
  where r.group_id = any (p_groups) and r.subscription_id = i.subscription_id and r.ordinal < i.ordinal and r.derived
    and r.state in ('PENDING', 'CURRENT');
  update fenceline.entry_group g set purge_due = true
  where g.group_id = any (p_groups) and not g.purge_due and fenceline.is_group_dead(g.group_id);
end $$;

-- Marks what was made for a revoked audience alone (P3): the edges to these resources of groups that are for it. Called in
-- batches of a revocation, whose row is held; nobody else sees these groups, so they go when an ingredient is lost.
--   v                       the revocation, of role `audience` or `both`
--   p_source, p_resources   as of `close_and_mark`
create or replace function fenceline.mark_entries_of_audience(v fenceline.revocation, p_source int, p_resources bigint[])
returns void
language plpgsql volatile as $$
declare
  v_groups bigint[] := array(
    select distinct g.group_id
    from fenceline.entry_group g join fenceline.group_root r using (group_id)
    where g.audience_id = v.subject_id and g.state <> 'PURGED'
      and (r.resource_id = any (p_resources) or r.part_id = any (p_resources))
    order by g.group_id);
begin
  if cardinality(v_groups) = 0 then
    return;
  end if;
  perform 1 from fenceline.entry_group g where g.group_id = any (v_groups) order by g.group_id for no key update;
  update fenceline.group_root r set state = 'REVOKED'
  where r.group_id = any (v_groups) and r.state in ('PENDING', 'CURRENT')
    and (r.resource_id = any (p_resources) or r.part_id = any (p_resources));
  perform fenceline.leave_dead_to_purge(v.revocation_id, v_groups);
end $$;
