-- What of some entries an asker may see, and how fresh it is (G1, G2, §9), in one query.
--   p_index    name of the index, whichever version of it
--   p_entries  entry numbers
--   p_asker    names of the user (first) and its groups; those nobody ever named match nothing
-- Result: a row per visible entry: the version it stands for, its source, reader and URI (the part's), its freshness
-- (`fresh`, `expired`, `unverified`, `changed`) and when its content was last confirmed. Of several alternatives the freshest
-- counts, of several ingredients the least fresh.
create or replace function fenceline.visible_entries(p_index text, p_entries bigint[], p_asker text[])
returns table (entry_number bigint, index_id int, subscription_id bigint, ordinal bigint, source text, reader text,
               uri text, freshness text, verified_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query
    with asker as materialized (
      select s.subject_id, s.name = p_asker[1] as is_user from fenceline.subject s where s.name = any (p_asker)
    ), asked as materialized (
      select e.entry_number, e.group_id from fenceline.entry e where e.entry_number = any (p_entries)
    ), present as materialized (
      select g.group_id, g.index_id
      from (select distinct a.group_id from asked a) a
      join fenceline.entry_group g using (group_id)
      join fenceline.index i using (index_id)
      where g.state = 'PRESENT' and i.name = p_index
    ), edge as materialized (
      select r.group_id, r.ingredient, r.subscription_id, r.ordinal, p.source_id, p.subject_id as reader_id,
             q.segment_key, q.match_key, q.cover_hashes, part.resource_id as part_id, part.segment_key as part_segment_key,
             part.match_key as part_match_key, part.cover_hashes as part_cover_hashes,
             q.deny_hashes || part.deny_hashes as deny_hashes,
             case
               when s.notification_number > s.seen_notification or r.ordinal < s.version_ordinal then 3
               when p.suspended_at is not null then 2
               -- Without a holder whose lease stands, nobody hears of a change.
               when s.pushed and (t.epoch is distinct from s.seen_stream_epoch or x.ended_at is not null
                                  or x.expires_at is null or x.expires_at <= fenceline.now()) then 2
               when s.verified_at is null
                 or s.verified_at + src.staleness_ms * interval '1 millisecond' <= fenceline.now() then 1
               else 0
             end as rank,
             s.verified_at, src.name as source, coalesce(part.resource_key, s.uri) as uri
      from present a
      join fenceline.group_root r using (group_id)
      join fenceline.subscription s using (subscription_id)
      join fenceline.policy_scope p on p.scope_id = s.scope_id
      join fenceline.source src using (source_id)
      join fenceline.resource q on q.resource_id = r.resource_id
      left join fenceline.resource part on part.resource_id = r.part_id and r.part_id <> r.resource_id
      left join fenceline.stream t on t.scope_id = s.scope_id and t.shard = s.shard
      left join fenceline.session x on x.scope_id = p.scope_id and x.generation = p.session_generation
      -- A generation in which nothing was accepted yet serves nothing of those before it.
      where r.state = 'CURRENT' and s.hidden_because is null and s.lifecycle <> 'RECONCILIATION_REQUIRED'
        and s.digest_generation = s.generation
    ), denied as materialized (
      select d.hash, c.subject_id, c.as_reader, c.as_audience
      from (select distinct h.hash from edge e cross join unnest(e.deny_hashes) h (hash)) d
      join fenceline.revocation_cover c on c.hash = d.hash
      where c.subject_id in (select a.subject_id from asker a union all select e.reader_id from edge e)
    ), granted as materialized (
      select g.cover_hash, g.audience_id, g.reader_id, g.source_id, g.key_prefix, g.match_prefix
      from (select distinct h.hash from edge e cross join unnest(e.cover_hashes || e.part_cover_hashes) h (hash)) c
      cross join asker a
      join fenceline.access_grant g on g.cover_hash = c.hash and g.audience_id = a.subject_id
    ), visible as materialized (
      select distinct on (e.group_id, e.ingredient)
             e.group_id, e.ingredient, e.subscription_id, e.ordinal, e.source, e.reader_id, e.uri, e.rank, e.verified_at
      from edge e
      where not exists (
          select 1 from denied d
          where d.hash = any (e.deny_hashes)
            and (d.as_reader and d.subject_id = e.reader_id
              or d.as_audience and d.subject_id in (select a.subject_id from asker a where a.is_user)))
        and exists (
          select 1 from asker a
          where not exists (
              select 1 from denied d where d.as_audience and d.subject_id = a.subject_id and d.hash = any (e.deny_hashes))
            and (a.subject_id = e.reader_id
              or exists (
                  select 1 from granted g
                  where g.audience_id = a.subject_id and g.reader_id = e.reader_id and g.source_id = e.source_id
                    and g.cover_hash = any (e.cover_hashes)
                    and fenceline.grant_covers(g.key_prefix, g.match_prefix, e.segment_key, e.match_key))
                and (e.part_id is null or exists (
                  select 1 from granted g
                  where g.audience_id = a.subject_id and g.reader_id = e.reader_id and g.source_id = e.source_id
                    and g.cover_hash = any (e.part_cover_hashes)
                    and fenceline.grant_covers(g.key_prefix, g.match_prefix, e.part_segment_key, e.part_match_key)))))
      order by e.group_id, e.ingredient, e.rank, e.verified_at desc nulls last, e.subscription_id
    ), needed as materialized (
      -- Of every edge a group ever had: an ingredient whose edges are all dead hides the group.
      select r.group_id, count(distinct r.ingredient) as ingredients
      from present a join fenceline.group_root r using (group_id) group by r.group_id
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
           (array['fresh', 'expired', 'unverified', 'changed'])[s.rank + 1], s.verified_at
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
