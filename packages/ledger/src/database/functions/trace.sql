-- Where an entry came from, and what a URI became, both ways and through every derivation (L4). An id that a purge took is still
-- known: its number is kept with its group, without content (P8).

-- The group of an entry, also of one whose row a purge deleted; null where there never was one.
create or replace function fenceline.group_of_entry(p_entry bigint) returns bigint language sql stable as $$
  select coalesce(
    (select e.group_id from fenceline.entry e where e.entry_number = p_entry),
    (select u.group_id from (
       select d.group_id, d.last_number from fenceline.purged_entry d
       where d.first_number <= p_entry order by d.first_number desc limit 1) u
     where u.last_number >= p_entry))
$$;

-- Whether there was such an entry, and a purge deleted its row.
create or replace function fenceline.was_purged(p_entry bigint) returns boolean language sql stable as $$
  select fenceline.group_of_entry(p_entry) is not null
    and not exists (select 1 from fenceline.entry e where e.entry_number = p_entry)
$$;

-- Keeps the numbers of groups whose entry rows are about to be deleted, in runs: those of one group nearly always follow one
-- another.
create or replace function fenceline.remember_purged_entries(p_groups bigint[]) returns void
language sql volatile as $$
  insert into fenceline.purged_entry (first_number, last_number, group_id)
  select min(n.entry_number), max(n.entry_number), n.group_id
  from (select e.group_id, e.entry_number,
               e.entry_number - row_number() over (partition by e.group_id order by e.entry_number) as run
        from fenceline.entry e join fenceline.entry_group g using (group_id)
        where e.group_id = any (p_groups) and fenceline.is_write_over(g)) n
  group by n.group_id, n.run
  on conflict (first_number) do nothing
$$;

-- Numbers of a group's entries, those a purge took included.
create or replace function fenceline.numbers_of_group(p_group bigint) returns setof bigint language sql stable as $$
  select e.entry_number from fenceline.entry e where e.group_id = p_group
  union all
  select n from fenceline.purged_entry d, generate_series(d.first_number, d.last_number) n where d.group_id = p_group
$$;

-- Versions with where they came from and what was derived from them at any depth: `group_root` is flattened.
--   p_key_digest  of a resource key: versions of that URI in any source, and of those it is a part of; or
--   p_entry       an entry number: the versions it stands for
-- Result: newest first. `entries` are JSON; for an entry, that one alone.
create or replace function fenceline.trace(p_key_digest bytea, p_entry bigint)
returns table (subscription_id bigint, ordinal bigint, uri text, digest text, accepted_at timestamptz, source text,
               reader text, read_id uuid, session_id bigint, scan_id bigint, server text, entries json)
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_group bigint := fenceline.group_of_entry(p_entry);
begin
  return query
  with asked as materialized (
    select q.resource_id from fenceline.resource q where q.key_digest = p_key_digest
  ), traced as materialized (
    select v.subscription_id, v.ordinal, null::bigint as part_id
    from asked a join fenceline.subscription s using (resource_id)
    join fenceline.resource_version v using (subscription_id)
    union
    select r.subscription_id, r.ordinal, r.part_id
    from asked a join fenceline.group_root r on r.part_id = a.resource_id and r.part_id <> r.resource_id
    union
    select b.subscription_id, b.ordinal, b.part_id
    from asked a join fenceline.body b on b.part_id = a.resource_id
    join fenceline.subscription s on s.subscription_id = b.subscription_id and s.resource_id <> a.resource_id
    union
    select t.subscription_id, t.ordinal, t.part_id
    from asked a join fenceline.part_taken t on t.part_id = a.resource_id
    join fenceline.subscription s on s.subscription_id = t.subscription_id and s.resource_id <> a.resource_id
    union
    select r.subscription_id, r.ordinal, null from fenceline.group_root r where r.group_id = v_group
  )
  select t.subscription_id, t.ordinal, s.uri, encode(v.digest, 'hex'), v.accepted_at, src.name, subj.name, rd.request_id,
         x.session_id, v.scan_id, x.server_name || coalesce(' ' || x.server_version, ''),
         (select json_agg(json_build_object('index', i.name, 'indexId', i.index_id, 'store', st.name, 'kind', g.kind,
                            'number', n.entry_number,
                            'state', case g.state when 'PRESENT' then r.state::text else g.state::text end)
                          order by n.entry_number)
          from (
            select r.group_id, min(r.state) as state from fenceline.group_root r
            where r.subscription_id = t.subscription_id and r.ordinal = t.ordinal
              and (t.part_id is null or r.part_id = t.part_id) and (v_group is null or r.group_id = v_group)
            group by r.group_id) r
          join fenceline.entry_group g using (group_id)
          cross join lateral (
            select coalesce(p_entry, k) as entry_number from fenceline.numbers_of_group(r.group_id) k
            where p_entry is null or k = p_entry) n
          join fenceline.index i on i.index_id = g.index_id
          join fenceline.store st on st.store_id = g.store_id)
  from traced t
  join fenceline.resource_version v using (subscription_id, ordinal)
  join fenceline.subscription s using (subscription_id)
  join fenceline.policy_scope p using (scope_id)
  join fenceline.source src using (source_id)
  join fenceline.subject subj using (subject_id)
  left join fenceline.read rd on rd.subscription_id = t.subscription_id and rd.ordinal = t.ordinal
  left join fenceline.session x on x.scope_id = p.scope_id and x.generation = rd.session_generation
  order by v.accepted_at desc, t.subscription_id, t.ordinal desc;
end $$;

-- An entry, all that it was derived from and all that was derived from it, entry by entry.
--   p_entry  its number
-- Result: a row per entry, `place` 0 for itself, -1 and below for what it came from, 1 and above for what came from it; no row
-- where there never was one. `parents` are JSON; a chunk's are the versions it stands for.
create or replace function fenceline.trace_derivations(p_entry bigint)
returns table (entry_number bigint, place int, index_id int, index text, store text, kind text, state text, audience text,
               purged_at timestamptz, receipts bigint[], parents json)
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
begin
  return query
  with recursive above as (
    select p_entry as entry_number, 0 as place
    union
    select p.parent_entry, a.place - 1
    from above a join fenceline.group_parent p on p.group_id = fenceline.group_of_entry(a.entry_number)
    where p.parent_entry is not null
  ), below as (
    select p_entry as entry_number, 0 as place
    union
    select n, b.place + 1
    from below b
    join fenceline.group_parent p on p.parent_entry = b.entry_number
    cross join lateral fenceline.numbers_of_group(p.group_id) n
  ), found as (
    select f.entry_number, (array_agg(f.place order by abs(f.place)))[1] as place
    from (select * from above union select * from below) f group by f.entry_number
  )
  select f.entry_number, f.place, i.index_id, i.name, st.name, g.kind, g.state::text, audience.name, g.purged_at,
         array(select r.purge_receipt_id from fenceline.purge_receipt_group r where r.group_id = g.group_id order by 1),
         case when exists (select 1 from fenceline.group_parent n where n.group_id = g.group_id) then (
           select json_agg(json_build_object('ingredient', n.ingredient,
                    'as', case when n.alternatives > 1 then 'alternative' else 'ingredient' end, 'index', n.index_id,
                    'number', n.parent_entry, 'lineageId', n.subscription_id || '.' || n.ordinal, 'uri', part.resource_key)
                  order by n.ingredient, n.position)
           from (select n.*, o.index_id, count(*) over (partition by n.ingredient) as alternatives
                 from fenceline.group_parent n left join fenceline.entry_group o on o.group_id = n.parent_group
                 where n.group_id = g.group_id) n
           left join fenceline.resource part on part.resource_id = n.part_id)
         else (
           select json_agg(json_build_object('ingredient', r.ingredient, 'as', 'alternative', 'index', null, 'number', null,
                    'lineageId', r.subscription_id || '.' || r.ordinal, 'uri', part.resource_key)
                  order by r.subscription_id, r.ordinal, r.part_id)
           from fenceline.group_root r join fenceline.resource part on part.resource_id = r.part_id
           where r.group_id = g.group_id)
         end
  from found f
  join fenceline.entry_group g on g.group_id = fenceline.group_of_entry(f.entry_number)
  join fenceline.index i on i.index_id = g.index_id
  join fenceline.store st on st.store_id = g.store_id
  left join fenceline.subject audience on audience.subject_id = g.audience_id
  order by f.place, f.entry_number;
end $$;
