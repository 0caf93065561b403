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
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_users bigint[] := array(
    select s.subject_id from fenceline.subject s
    where s.name = p_asker[1] or s.name = any (p_asker) and s.name ~ '^(user|svc):');
  v_asker bigint[] := array(select s.subject_id from fenceline.subject s where s.name = any (p_asker));
begin
  -- Edges are numbered, and their hashes collected with the numbers of those that have them: each hash is looked up once,
  -- and what is found goes back to its edges without a join. Pairwise tests (`hash = any (array)`), and joins of one CTE with
  -- another, which are planned for ten rows, took several times as long. `is true` keeps `in` a hashed lookup.
  return query
    with asked as materialized (
      select e.entry_number, e.group_id from fenceline.entry e where e.entry_number = any (p_entries)
    ), present as materialized (
      select g.group_id, g.index_id, g.audience_id
      from (select distinct a.group_id from asked a) a
      join fenceline.entry_group g using (group_id)
      join fenceline.index i using (index_id)
      where g.state = 'PRESENT' and i.name = p_index and i.retired_at is null
        and (g.audience_id is null or g.audience_id = any (v_asker))
    ), root as materialized (
      select r.group_id, r.ingredient, r.subscription_id, r.ordinal, r.resource_id, a.audience_id,
             nullif(r.part_id, r.resource_id) as part_id, r.state = 'CURRENT' as current
      from present a join fenceline.group_root r using (group_id)
    ), edge as materialized (
      select row_number() over () as edge, r.group_id, r.ingredient, r.subscription_id, r.ordinal, r.audience_id, p.source_id,
             p.subject_id as reader_id,
             q.segment_key, q.match_key, q.cover_hashes, part.resource_id as part_id, part.segment_key as part_segment_key,
             part.match_key as part_match_key, part.cover_hashes as part_cover_hashes,
             q.deny_hashes || part.deny_hashes as deny_hashes,
             case
               when s.notification_number > s.seen_notification or r.ordinal < s.version_ordinal then 3
               when p.suspended_at is not null then 2
               -- The database was restored from a backup, and nothing was read since (restore.sql).
               when s.verified_at < p.restored_at then 2
               -- Without a holder whose lease stands, nobody hears of a change.
               when s.pushed and (t.epoch is distinct from s.seen_stream_epoch or x.ended_at is not null
                                  or x.expires_at is null or x.expires_at <= fenceline.now()) then 2
               when s.verified_at is null
                 or s.verified_at + src.staleness_ms * interval '1 millisecond' <= fenceline.now() then 1
               else 0
             end as rank,
             s.verified_at, src.name as source, coalesce(part.resource_key, s.uri) as uri
      from root r
      join fenceline.subscription s using (subscription_id)
      join fenceline.policy_scope p on p.scope_id = s.scope_id
      join fenceline.source src using (source_id)
      join fenceline.resource q on q.resource_id = r.resource_id
      left join fenceline.resource part on part.resource_id = r.part_id
      left join fenceline.stream t on t.scope_id = s.scope_id and t.shard = s.shard
      left join fenceline.session x on x.scope_id = p.scope_id and x.generation = p.session_generation
      -- A generation in which nothing was accepted yet serves nothing of those before it.
      where r.current and s.hidden_because is null and s.lifecycle <> 'RECONCILIATION_REQUIRED'
        and s.digest_generation = s.generation
    ), denial as materialized (
      select h.hash, e.reader_id, array_agg(e.edge) as edges
      from edge e cross join unnest(e.deny_hashes) h (hash) group by h.hash, e.reader_id
    ), denied as materialized (
      select d.edge, c.subject_id, c.as_reader and c.subject_id = h.reader_id as as_reader, c.as_audience
      from denial h
      join fenceline.revocation_cover c on c.hash = h.hash
      cross join unnest(h.edges) d (edge)
      where c.subject_id = any (v_asker) or c.subject_id = h.reader_id
    ), cover as materialized (
      select c.hash, c.reader_id, c.source_id, c.of_part, array_agg(c.edge) as edges, array_agg(c.segment_key) as segment_keys,
             array_agg(c.match_key) as match_keys, array_agg(c.has_part) as have_parts
      from (
        select h.hash, e.reader_id, e.source_id, false as of_part, e.edge, e.segment_key, e.match_key,
               e.part_id is not null as has_part
        from edge e cross join unnest(e.cover_hashes) h (hash)
        union all
        select h.hash, e.reader_id, e.source_id, true, e.edge, e.part_segment_key, e.part_match_key, true
        from edge e cross join unnest(e.part_cover_hashes) h (hash)) c
      group by c.hash, c.reader_id, c.source_id, c.of_part
    ), granted as materialized (
      select c.edge, g.audience_id, h.of_part, c.has_part
      from cover h
      join fenceline.access_grant g on g.cover_hash = h.hash and g.audience_id = any (v_asker)
        and g.reader_id = h.reader_id and g.source_id = h.source_id
      cross join unnest(h.edges, h.segment_keys, h.match_keys, h.have_parts) c (edge, segment_key, match_key, has_part)
      where fenceline.grant_covers(g.key_prefix, g.match_prefix, c.segment_key, c.match_key)
      union all
      select e.edge, e.reader_id, false, false from edge e where e.reader_id = any (v_asker)
    ), allowed as materialized (
      -- One audience has to be granted both the resource and its part, and not be revoked for either.
      select g.edge from granted g
      where ((g.edge, g.audience_id) in (select d.edge, d.subject_id from denied d where d.as_audience)) is not true
      group by g.edge, g.audience_id
      having bool_or(not g.of_part) and (bool_or(g.of_part) or not bool_and(g.has_part))
    ), visible as materialized (
      select distinct on (e.group_id, e.ingredient)
             e.group_id, e.ingredient, e.subscription_id, e.ordinal, e.source, e.reader_id, e.uri, e.rank, e.verified_at
      from edge e
      where (e.edge in (select a.edge from allowed a)) is true
        and (e.edge in (select d.edge from denied d
                        where d.as_reader or d.as_audience and d.subject_id = any (v_users))) is not true
        -- What was made for one audience goes with it, whatever else would show it.
        and (e.audience_id is null
          or ((e.edge, e.audience_id) in (select d.edge, d.subject_id from denied d where d.as_audience)) is not true)
      order by e.group_id, e.ingredient, e.rank, e.verified_at desc nulls last, e.subscription_id
    ), needed as materialized (
      -- Of every edge a group ever had: an ingredient whose edges are all dead hides the group.
      select r.group_id, count(distinct r.ingredient) as ingredients from root r group by r.group_id
    ), shown as materialized (
      select v.group_id, max(v.rank) as rank, min(v.verified_at) as verified_at,
             (array_agg(v.subscription_id order by v.ingredient))[1] as subscription_id,
             (array_agg(v.ordinal order by v.ingredient))[1] as ordinal,
             (array_agg(v.source order by v.ingredient))[1] as source,
             (array_agg(v.reader_id order by v.ingredient))[1] as reader_id,
             (array_agg(v.uri order by v.ingredient))[1] as uri
      from visible v join needed n using (group_id)
      group by v.group_id, n.ingredients
      having count(*) = n.ingredients
    )
    select a.entry_number, p.index_id, s.subscription_id, s.ordinal, s.source, reader.name, s.uri,
           (array['fresh', 'expired', 'unverified', 'changed'])[s.rank + 1], s.verified_at,
           greatest(0, floor(extract(epoch from fenceline.now() - s.verified_at) * 1000))::bigint
    from asked a
    join present p using (group_id)
    join shown s using (group_id)
    join fenceline.subject reader on reader.subject_id = s.reader_id;
end $$;

-- Whether the texts of a grant begin both keys of a resource (F10): as written, and folded. chr(1) ends the text of one URI.
create or replace function fenceline.grant_covers(p_key_prefix text, p_match_prefix text, p_segment_key text, p_match_key text)
returns boolean language sql immutable parallel safe as $$
  select starts_with(p_segment_key || chr(1), p_key_prefix) and starts_with(p_match_key || chr(1), p_match_prefix)
$$;
