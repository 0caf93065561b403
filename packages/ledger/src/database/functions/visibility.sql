-- What of some entries an asker may see, and how fresh it is (G1, G2, §9), in one query.
--   p_index    name of the index, whichever version of it
--   p_entries  entry numbers
--   p_asker    names of the user (first) and its groups; those nobody ever named match nothing. Whoever is named `user:…` or
--              `svc:…` counts as the user in whatever place.
-- Result: a row per group of visible entries: the version they stand for, its source, reader and URI (the part's), its freshness
-- (`fresh`, `expired`, `unverified`, `changed`) and when its content was last confirmed, and how long ago. Of several alternatives the freshest
-- counts, of several ingredients the least fresh.
create or replace function fenceline.visible_entries(p_index text, p_entries bigint[], p_asker text[])
returns table (entry_numbers bigint[], index_id int, subscription_id bigint, ordinal bigint, source text, reader text,
               uri text, freshness text, verified_at timestamptz, age_ms bigint)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_memoize = off as $$
#variable_conflict use_column
declare
  v_users bigint[];
  v_asker bigint[];
  v_denied bigint[]; -- of the asker, whom anything was revoked of as an audience
  v_indexes int[];
  v_now timestamptz := fenceline.now();
begin
  select coalesce(array_agg(s.subject_id) filter (where s.name = p_asker[1] or s.name ~ '^(user|svc):'), '{}'),
         coalesce(array_agg(s.subject_id), '{}'),
         coalesce(array_agg(s.subject_id) filter (where exists (
           select 1 from fenceline.revocation v
           where v.subject_id = s.subject_id and v.state <> 'LIFTED' and v.role <> 'reader')), '{}')
  into v_users, v_asker, v_denied
  from fenceline.subject s where s.name = any (p_asker);
  v_indexes := array(select i.index_id from fenceline.index i where i.name = p_index and i.retired_at is null);
  if v_asker = '{}' or v_indexes = '{}' then
    return;
  end if;
  -- Each edge asks the two indexes for what covers it. To look all hashes up at once, and join the edges with what was found,
  -- took half as long again: most of it went into numbering, hashing and sorting them.
  return query
    with edge as materialized (
      select a.group_id, a.entries, g.index_id, g.ingredients, r.ingredient, r.subscription_id, r.ordinal, r.scope_id,
             s.notification_number > s.seen_notification or r.ordinal < s.version_ordinal as changed,
             s.pushed, s.shard, s.seen_stream_epoch, s.verified_at, coalesce(part.resource_key, s.uri) as uri
      from (select e.group_id, array_agg(e.entry_number) as entries
            from fenceline.entry e where e.entry_number = any (p_entries) group by e.group_id offset 0) a
      join fenceline.entry_group g on g.group_id = a.group_id
      join fenceline.group_root r on r.group_id = a.group_id
      join fenceline.subscription s on s.subscription_id = r.subscription_id
      join fenceline.policy_scope p on p.scope_id = r.scope_id
      join fenceline.resource q on q.resource_id = r.resource_id
      left join fenceline.resource part on part.resource_id = nullif(r.part_id, r.resource_id)
      cross join lateral (
        -- Who of the asker was revoked here as an audience.
        select case when v_denied = '{}' then v_denied else array(
          select c.subject_id from fenceline.revocation_cover c
          where c.hash = any (q.deny_hashes || part.deny_hashes) and c.subject_id = any (v_denied) and c.as_audience) end as audiences
        offset 0
      ) d
      where g.state = 'PRESENT' and g.index_id = any (v_indexes)
        and r.state = 'CURRENT'
        -- A generation in which nothing was accepted yet serves nothing of those before it.
        and s.hidden_because is null and s.lifecycle <> 'RECONCILIATION_REQUIRED' and s.digest_generation = s.generation
        and not d.audiences && v_users
        -- What was made for one audience goes with it, whatever else would show it.
        and (g.audience_id is null or g.audience_id = any (v_asker) and g.audience_id <> all (d.audiences))
        and not (p.standing_revocations > 0 and exists (
          select 1 from fenceline.revocation_cover c
          where c.hash = any (q.deny_hashes || part.deny_hashes) and c.subject_id = p.subject_id and c.as_reader))
        -- Some audience that is not revoked there; where there is a part, one that is granted both.
        and (p.subject_id = any (v_asker) and p.subject_id <> all (d.audiences)
          or exists (
            select 1 from fenceline.first_grants(q.cover_hashes) f
            where f.audience_id = any (v_asker) and f.audience_id <> all (d.audiences)
              and f.reader_id = p.subject_id and f.source_id = p.source_id
              and fenceline.grant_covers(f.key_prefix, f.match_prefix, q.segment_key, q.match_key)
              and (part.resource_id is null or (
                select true from fenceline.access_grant g
                where g.cover_hash = any (part.cover_hashes) and g.audience_id = f.audience_id
                  and g.reader_id = f.reader_id and g.source_id = f.source_id
                  and fenceline.grant_covers(g.key_prefix, g.match_prefix, part.segment_key, part.match_key)
                limit 1)))
          or (select count(*) from fenceline.first_grants(q.cover_hashes)) = 200
            and fenceline.is_granted_among_many(v_asker, d.audiences, p.subject_id, p.source_id, q.resource_id, part.resource_id))
    ), scope as materialized (
      -- What all edges of a scope share is looked up once.
      select p.scope_id, reader.name as reader, src.name as source, src.staleness_ms * interval '1 millisecond' as staleness,
             p.suspended_at, p.restored_at, coalesce(x.ended_at is null and x.expires_at > v_now, false) as held
      from (select distinct e.scope_id from edge e) c
      join fenceline.policy_scope p using (scope_id)
      join fenceline.source src using (source_id)
      join fenceline.subject reader on reader.subject_id = p.subject_id
      left join fenceline.session x on x.scope_id = p.scope_id and x.generation = p.session_generation
    ), visible as (
      -- The freshest alternative of each ingredient.
      select distinct on (e.group_id, e.ingredient) e.*
      from (
        select e.*, p.source, p.reader, case
            when e.changed then 3
            when p.suspended_at is not null then 2
            -- The database was restored from a backup, and nothing was read since (restore.sql).
            when e.verified_at < p.restored_at then 2
            -- Without a holder whose lease stands, nobody hears of a change.
            when e.pushed and (not p.held or e.seen_stream_epoch is distinct from (
              select t.epoch from fenceline.stream t where t.scope_id = e.scope_id and t.shard = e.shard)) then 2
            -- It was pushed when it was last read: of a change since then nobody heard (U4).
            when not e.pushed and e.seen_stream_epoch is not null then 2
            when e.verified_at is null or e.verified_at + p.staleness <= v_now then 1
            else 0
          end as rank
        from edge e join scope p using (scope_id)) e
      order by e.group_id, e.ingredient, e.rank, e.verified_at desc nulls last, e.subscription_id
    ), shown as (
      -- One row per group, of its first ingredient, with what all of them say. An ingredient whose edges are all dead, or not
      -- to be seen, hides the group.
      select distinct on (v.group_id) v.*, max(v.rank) over w as worst,
             min(coalesce(v.verified_at, '-infinity')) over w as confirmed_at, count(*) over w = v.ingredients as complete
      from visible v
      window w as (partition by v.group_id order by v.ingredient rows between unbounded preceding and unbounded following)
      order by v.group_id, v.ingredient
    )
    select s.entries, s.index_id, s.subscription_id, s.ordinal, s.source, s.reader, s.uri,
           (array['fresh', 'expired', 'unverified', 'changed'])[s.worst + 1], c.at,
           case when c.at is not null then greatest(0, floor(date_part('epoch', v_now - c.at) * 1000))::bigint end
    from shown s cross join lateral (select nullif(s.confirmed_at, '-infinity') as at) c
    where s.complete;
end $$;

-- Of the grants that may cover a resource with these cover hashes the first 200: nearly always all there are. Where one place is
-- granted to thousands, to read them all for each entry would take longer than all else.
create or replace function fenceline.first_grants(p_cover_hashes bigint[]) returns setof fenceline.access_grant
language sql stable as $$
  select * from fenceline.access_grant g where g.cover_hash = any (p_cover_hashes) limit 200
$$;

-- Whether one of these audiences is granted the resource, and its part where there is one: a step of the index for each
-- audience and hash, however many others are granted it.
create or replace function fenceline.is_granted_among_many(
  p_audiences bigint[], p_denied bigint[], p_reader bigint, p_source int, p_resource bigint, p_part bigint
) returns boolean language plpgsql stable set enable_seqscan = off as $$
begin
  return exists (
    select 1 from unnest(p_audiences) a (audience_id)
    where a.audience_id <> all (p_denied)
      and fenceline.is_granted(a.audience_id, p_reader, p_source, p_resource)
      and (p_part is null or fenceline.is_granted(a.audience_id, p_reader, p_source, p_part)));
end $$;

create or replace function fenceline.is_granted(p_audience bigint, p_reader bigint, p_source int, p_resource bigint)
returns boolean language plpgsql stable set enable_seqscan = off as $$
begin
  return exists (
    select 1 from fenceline.resource q
    cross join lateral (
      select 1 from fenceline.access_grant g
      where g.cover_hash = any (q.cover_hashes) and g.audience_id = p_audience and g.reader_id = p_reader and g.source_id = p_source
        and fenceline.grant_covers(g.key_prefix, g.match_prefix, q.segment_key, q.match_key)
      limit 1) g
    where q.resource_id = p_resource);
end $$;

-- Whether the texts of a grant begin both keys of a resource (F10): as written, and folded. chr(1) ends the text of one URI.
create or replace function fenceline.grant_covers(p_key_prefix text, p_match_prefix text, p_segment_key text, p_match_key text)
returns boolean language sql immutable parallel safe as $$
  select starts_with(p_segment_key || chr(1), p_key_prefix) and starts_with(p_match_key || chr(1), p_match_prefix)
$$;
