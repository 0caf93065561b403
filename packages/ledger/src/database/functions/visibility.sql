-- What of some entries an asker may see, and how fresh it is (G1, G2, §9), in one query.
--   p_index    name of the index, whichever version of it
--   p_entries  entry numbers
--   p_asker    names of the user (first) and its groups; those nobody ever named match nothing. Whoever is named `user:…` or
--              `svc:…` counts as the user in whatever place.
-- Result: a row per visible entry: the version it stands for, its source, reader and URI (the part's), its freshness
-- (`fresh`, `expired`, `unverified`, `changed`) and when its content was last confirmed, and how long ago. Of several alternatives the freshest
-- counts, of several ingredients the least fresh.
create or replace function fenceline.visible_entries(p_index text, p_entries bigint[], p_asker text[])
returns table (entry_number bigint, index_id int, subscription_id bigint, ordinal bigint, source text, reader text,
               uri text, freshness text, verified_at timestamptz, age_ms bigint)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  v_users bigint[];
  v_asker bigint[];
  v_indexes int[];
begin
  select coalesce(array_agg(s.subject_id) filter (where s.name = p_asker[1] or s.name ~ '^(user|svc):'), '{}'),
         coalesce(array_agg(s.subject_id), '{}')
  into v_users, v_asker
  from fenceline.subject s where s.name = any (p_asker);
  v_indexes := array(select i.index_id from fenceline.index i where i.name = p_index and i.retired_at is null);
  if v_asker = '{}' or v_indexes = '{}' then
    return;
  end if;
  -- Edges are numbered, and all their hashes looked up at once; then only the edges that have one of those found are joined.
  -- Pairwise tests (`hash = any (array)` per edge), and joins of whole CTEs with one another, which are planned for ten rows,
  -- took several times as long, and so did an ordered aggregate per group, and `unnest` as a joined function. `is true` keeps
  -- `in` a hashed lookup, `offset 0` keeps it before the join.
  return query
    with asked as materialized (
      select e.group_id, array_agg(e.entry_number) as entries
      from fenceline.entry e where e.entry_number = any (p_entries) group by e.group_id
    ), present as materialized (
      select g.group_id, g.index_id, g.audience_id, g.ingredients, a.entries
      from asked a
      join fenceline.entry_group g using (group_id)
      where g.state = 'PRESENT' and g.index_id = any (v_indexes)
        and (g.audience_id is null or g.audience_id = any (v_asker))
    ), root as materialized (
      select row_number() over () as edge, g.*, r.ingredient, r.subscription_id, r.ordinal, r.scope_id, r.resource_id, r.part_id
      from present g join fenceline.group_root r on r.group_id = g.group_id and r.state = 'CURRENT'
    ), scope as materialized (
      -- What all edges of a scope share is looked up once.
      select p.scope_id, p.source_id, p.subject_id as reader_id, reader.name as reader, src.name as source, src.staleness_ms,
             p.suspended_at, p.restored_at,
             coalesce(x.ended_at is null and x.expires_at > fenceline.now(), false) as held
      from (select distinct r.scope_id from root r) c
      join fenceline.policy_scope p using (scope_id)
      join fenceline.source src using (source_id)
      join fenceline.subject reader on reader.subject_id = p.subject_id
      left join fenceline.session x on x.scope_id = p.scope_id and x.generation = p.session_generation
    ), edge as materialized (
      select r.edge, r.group_id, r.ingredient, r.subscription_id, r.ordinal, r.audience_id, r.index_id,
             r.ingredients, r.entries, p.source_id, p.reader_id, p.reader,
             q.segment_key, q.match_key, q.cover_hashes, part.resource_id as part_id, part.segment_key as part_segment_key,
             part.match_key as part_match_key, part.cover_hashes as part_cover_hashes,
             q.deny_hashes || part.deny_hashes as deny_hashes,
             case
               when s.notification_number > s.seen_notification or r.ordinal < s.version_ordinal then 3
               when p.suspended_at is not null then 2
               -- The database was restored from a backup, and nothing was read since (restore.sql).
               when s.verified_at < p.restored_at then 2
               -- Without a holder whose lease stands, nobody hears of a change.
               when s.pushed and (t.epoch is distinct from s.seen_stream_epoch or not p.held) then 2
               when s.verified_at is null
                 or s.verified_at + p.staleness_ms * interval '1 millisecond' <= fenceline.now() then 1
               else 0
             end as rank,
             s.verified_at, p.source, coalesce(part.resource_key, s.uri) as uri
      from root r
      join fenceline.subscription s using (subscription_id)
      join scope p on p.scope_id = r.scope_id
      join fenceline.resource q on q.resource_id = r.resource_id
      left join fenceline.resource part on part.resource_id = nullif(r.part_id, r.resource_id)
      left join fenceline.stream t on t.scope_id = s.scope_id and t.shard = s.shard
      -- A generation in which nothing was accepted yet serves nothing of those before it.
      where s.hidden_because is null and s.lifecycle <> 'RECONCILIATION_REQUIRED'
        and s.digest_generation = s.generation
    ), denial as materialized (
      select c.hash, c.subject_id, c.as_reader, c.as_audience
      from fenceline.revocation_cover c
      where c.hash = any (array(select distinct unnest(e.deny_hashes) from edge e))
        and (c.subject_id = any (v_asker) or c.subject_id in (select e.reader_id from edge e))
    ), denied as materialized (
      -- Few of the hashes are denied: those edges alone are joined.
      select h.edge, c.subject_id, c.as_reader and c.subject_id = h.reader_id as as_reader, c.as_audience
      from (select h.* from (select e.edge, e.reader_id, unnest(e.deny_hashes) as hash from edge e) h
            where exists (select 1 from denial) and (h.hash in (select d.hash from denial d)) is true offset 0) h
      join denial c on c.hash = h.hash
      where c.subject_id = any (v_asker) or c.subject_id = h.reader_id
    ), shared as materialized (
      -- Grants of one scope together: the text is compared once for all audiences that have it.
      select g.cover_hash, g.reader_id, g.source_id, g.key_prefix, g.match_prefix, array_agg(g.audience_id) as audiences
      from fenceline.access_grant g
      where g.audience_id = any (v_asker)
        and g.cover_hash = any (array(select distinct unnest(e.cover_hashes || e.part_cover_hashes) from edge e))
      group by g.cover_hash, g.reader_id, g.source_id, g.key_prefix, g.match_prefix
    ), granted as materialized (
      select e.edge, g.audiences, e.of_part, e.has_part
      from (
        select h.* from (
          select e.edge, e.reader_id, e.source_id, unnest(e.cover_hashes) as hash, e.segment_key, e.match_key, false as of_part,
                 e.part_id is not null as has_part
          from edge e
          union all
          select e.edge, e.reader_id, e.source_id, unnest(e.part_cover_hashes), e.part_segment_key, e.part_match_key, true, true
          from edge e where e.part_id is not null) h
        where (h.hash in (select g.cover_hash from shared g)) is true
        offset 0) e
      join shared g on g.cover_hash = e.hash and g.reader_id = e.reader_id and g.source_id = e.source_id
      where fenceline.grant_covers(g.key_prefix, g.match_prefix, e.segment_key, e.match_key)
    ), allowed as materialized (
      -- Some audience that is not revoked there; where there is a part, one that is granted both and revoked for neither.
      select g.edge from granted g
      where not g.has_part and (
        not (select exists (select 1 from denied d where d.as_audience and d.subject_id <> all (v_users)))
        or exists (
          select 1 from unnest(g.audiences) a (audience_id)
          where ((g.edge, a.audience_id) in (select d.edge, d.subject_id from denied d where d.as_audience)) is not true))
      union all
      select g.edge from granted g cross join unnest(g.audiences) a (audience_id)
      where g.has_part
        and ((g.edge, a.audience_id) in (select d.edge, d.subject_id from denied d where d.as_audience)) is not true
      group by g.edge, a.audience_id
      having bool_or(g.of_part) and bool_or(not g.of_part)
      union all
      select e.edge from edge e
      where e.reader_id = any (v_asker)
        and ((e.edge, e.reader_id) in (select d.edge, d.subject_id from denied d where d.as_audience)) is not true
    ), visible as materialized (
      select distinct on (e.group_id, e.ingredient)
             e.group_id, e.ingredient, e.ingredients, e.entries, e.index_id, e.subscription_id, e.ordinal, e.source,
             e.reader, e.uri, e.rank, e.verified_at
      from edge e
      where (e.edge in (select a.edge from allowed a)) is true
        and (e.edge in (select d.edge from denied d
                        where d.as_reader or d.as_audience and d.subject_id = any (v_users))) is not true
        -- What was made for one audience goes with it, whatever else would show it.
        and (e.audience_id is null
          or ((e.edge, e.audience_id) in (select d.edge, d.subject_id from denied d where d.as_audience)) is not true)
      order by e.group_id, e.ingredient, e.rank, e.verified_at desc nulls last, e.subscription_id
    ), shown as materialized (
      -- One row per group, of its first ingredient, with what all of them say. An ingredient whose edges are all dead, or not
      -- to be seen, hides the group.
      select distinct on (v.group_id) v.group_id, v.index_id, v.entries, v.subscription_id, v.ordinal, v.source, v.reader, v.uri,
             max(v.rank) over w as rank, min(v.verified_at) over w as verified_at,
             count(*) over w = v.ingredients as complete
      from visible v
      window w as (partition by v.group_id order by v.ingredient rows between unbounded preceding and unbounded following)
      order by v.group_id, v.ingredient
    )
    select unnest(s.entries), s.index_id, s.subscription_id, s.ordinal, s.source, s.reader, s.uri,
           (array['fresh', 'expired', 'unverified', 'changed'])[s.rank + 1], s.verified_at,
           greatest(0, floor(extract(epoch from fenceline.now() - s.verified_at) * 1000))::bigint
    from shown s
    where s.complete;
end $$;

-- Whether the texts of a grant begin both keys of a resource (F10): as written, and folded. chr(1) ends the text of one URI.
create or replace function fenceline.grant_covers(p_key_prefix text, p_match_prefix text, p_segment_key text, p_match_key text)
returns boolean language sql immutable parallel safe as $$
  select starts_with(p_segment_key || chr(1), p_key_prefix) and starts_with(p_match_key || chr(1), p_match_prefix)
$$;
