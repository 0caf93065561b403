-- What leaves our sight (L6): recorded with what it held, so that a revocation lists exactly what it could not reach.
--
-- 1. An export takes the shared fences of its roots' scopes, and of the audience an entry was made for: it comes before a revocation, and is listed, or after, and is refused.
-- 2. A batch of a revocation locks the exports it lists; acknowledging locks the revocations first, then the export, and looks
--    again. Whoever comes second sees what the first did, so none is complete but for exports that somebody dealt with.

-- A page of the newest accepted versions of a reader, each recorded as an export with the parts it held (L6). Left out: what is hidden, closed
-- by a revocation, not accepted in its present generation, covered by a reader's revocation; covered parts as well.
--   p_source, p_reader, p_destination  whose versions, and where they go
--   p_limit, p_after                   the page: subscriptions above this id
-- Result: as `claim_index_work`, without claims.
create or replace function fenceline.export_versions(
  p_source text, p_reader text, p_destination text, p_limit int, p_after bigint
) returns table (subscription_id bigint, ordinal bigint, source text, reader text, uri text, name text, title text,
                 mime_type text, parts json)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_scope int;
  v_subject bigint;
begin
  select p.scope_id, p.subject_id into v_scope, v_subject
  from fenceline.policy_scope p
  join fenceline.source src using (source_id)
  join fenceline.subject subj using (subject_id)
  where src.name = p_source and subj.name = p_reader;
  if v_scope is null then
    return;
  end if;
  perform fenceline.fence_shared(v_scope);
  return query
    with page as materialized (
      select s.subscription_id, v.ordinal, s.uri, s.name, s.title, v.mime_type
      from fenceline.subscription s
      join fenceline.resource q using (resource_id)
      join fenceline.resource_version v on v.subscription_id = s.subscription_id and v.ordinal = s.version_ordinal
      where s.scope_id = v_scope and s.subscription_id > p_after
        and s.hidden_because is null and s.closed_by is null and s.lifecycle <> 'RECONCILIATION_REQUIRED'
        and v.generation = s.generation
        and not fenceline.is_revoked(v_subject, q.deny_hashes, 'reader')
      order by s.subscription_id
      limit p_limit
    ), exported as (
      insert into fenceline.export as e (subscription_id, ordinal, destination, roots_known)
      select p.subscription_id, p.ordinal, p_destination, true from page p
      returning e.export_id, e.subscription_id, e.ordinal
    ), held as (
      insert into fenceline.export_root (export_id, subscription_id, part_id)
      select e.export_id, e.subscription_id, k.part_id
      from exported e
      cross join lateral (
        select b.part_id from fenceline.body b join fenceline.resource part on part.resource_id = b.part_id
        where b.subscription_id = e.subscription_id and b.ordinal = e.ordinal
          and not fenceline.is_revoked(v_subject, part.deny_hashes, 'reader')
        union
        select s.resource_id from fenceline.subscription s where s.subscription_id = e.subscription_id) k
    )
    select p.subscription_id, p.ordinal, p_source, p_reader, p.uri, p.name, p.title, p.mime_type,
           (select json_agg(json_build_object('partId', b.part_id, 'uri', b.part_uri, 'mimeType', b.mime_type,
                                              'text', b.text, 'bytes', encode(b.bytes, 'base64')) order by b.position)
            from fenceline.body b join fenceline.resource part on part.resource_id = b.part_id
            where b.subscription_id = p.subscription_id and b.ordinal = p.ordinal
              and not fenceline.is_revoked(v_subject, part.deny_hashes, 'reader'))
    from page p order by p.subscription_id;
end $$;

-- Records that entries an asker sees leave our sight, with the closure of each.
--   p_index, p_entries, p_asker  as of `visible_entries`
--   p_destination                where they go
-- Result: the exported ones; the others may not be seen.
create or replace function fenceline.export_entries(p_index text, p_entries bigint[], p_asker text[], p_destination text)
returns table (export_id bigint, entry_number bigint)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_subscriptions bigint[];
  v_audiences bigint[];
begin
  select array_agg(r.subscription_id), array_agg(r.audience_id) into v_subscriptions, v_audiences
  from (select distinct r.subscription_id, g.audience_id
        from fenceline.entry e join fenceline.entry_group g using (group_id) join fenceline.group_root r using (group_id)
        where e.entry_number = any (p_entries)) r;
  perform fenceline.fence_roots(v_subscriptions, v_audiences);
  return query
    with exported as (
      insert into fenceline.export as x (entry_number, group_id, destination, roots_known)
      select e.entry_number, e.group_id, p_destination, true
      from (select unnest(v.entry_numbers) as entry_number from fenceline.visible_entries(p_index, p_entries, p_asker) v offset 0) v
      join fenceline.entry e using (entry_number)
      order by e.entry_number
      returning x.export_id, x.entry_number, x.group_id
    ), held as (
      insert into fenceline.export_root (export_id, subscription_id, part_id)
      select distinct x.export_id, r.subscription_id, k.part_id
      from exported x
      join fenceline.group_root r on r.group_id = x.group_id and r.state = 'CURRENT'
      cross join lateral (values (r.part_id), (r.resource_id)) k (part_id)
    )
    select x.export_id, x.entry_number from exported x order by x.export_id;
end $$;

-- Lists the exports that held one of these resources, as read by the revocation's subject or made for it alone. Called in
-- batches of a revocation, whose row is held.
--   p_resources  as of `close_and_mark`
create or replace function fenceline.record_covered_exports(v fenceline.revocation, p_source int, p_resources bigint[]) returns void
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_scope int := (select p.scope_id from fenceline.policy_scope p
                  where p.source_id = p_source and p.subject_id = v.subject_id);
  v_exports bigint[];
begin
  v_exports := array(
    select x.export_id from fenceline.export_root x join fenceline.subscription s using (subscription_id)
    where v.role <> 'audience' and x.part_id = any (p_resources) and s.scope_id = v_scope
    union
    -- Of those made before their parts were noted: whatever is of a version that holds such a part, or may have.
    select e.export_id from fenceline.export e join fenceline.subscription s using (subscription_id)
    where v.role <> 'audience' and not e.roots_known and s.scope_id = v_scope and (
      s.resource_id = any (p_resources)
      or exists (select 1 from fenceline.group_root r
                 where r.part_id = any (p_resources) and r.part_id <> r.resource_id and r.subscription_id = s.subscription_id)
      or exists (select 1 from fenceline.body b where b.part_id = any (p_resources) and b.subscription_id = s.subscription_id))
    union
    select e.export_id
    from fenceline.entry_group g join fenceline.export e using (group_id) join fenceline.export_root x using (export_id)
    where v.role <> 'reader' and g.audience_id = v.subject_id and x.part_id = any (p_resources));
  if cardinality(v_exports) = 0 then
    return;
  end if;
  perform 1 from fenceline.export e where e.export_id = any (v_exports) order by e.export_id for no key update;
  insert into fenceline.revocation_export (revocation_id, export_id)
  select v.revocation_id, e from unnest(v_exports) e on conflict do nothing;
end $$;

-- Takes note that somebody dealt with an export; revocations that waited for nothing else are complete.
-- Result: whether there was such an export, not acknowledged before. Null: nothing was done, call again: a batch listed it
-- meanwhile for a revocation that can no longer be locked in the order of all locks.
create or replace function fenceline.acknowledge_export(p_export bigint) returns boolean
language plpgsql volatile as $$
declare
  v_revocations bigint[];
begin
  v_revocations := array(
    select v.revocation_id from fenceline.revocation v
    where v.revocation_id in (select x.revocation_id from fenceline.revocation_export x where x.export_id = p_export)
    order by v.revocation_id for no key update);
  perform 1 from fenceline.export e where e.export_id = p_export and e.acknowledged_at is null for no key update;
  if not found then
    return false;
  end if;
  if exists (
    select 1 from fenceline.revocation_export x where x.export_id = p_export and x.revocation_id <> all (v_revocations))
  then
    return null;
  end if;
  update fenceline.export set acknowledged_at = fenceline.now() where export_id = p_export;
  perform fenceline.complete_revocation(r.revocation_id)
  from unnest(v_revocations) r (revocation_id)
  join fenceline.revocation v using (revocation_id) where v.state = 'COMPLETE_EXCEPT_EXPORTS';
  return true;
end $$;

-- Exports in the order of their ids, with the standing revocations that could not reach them.
--   p_after, p_limit  the page: ids above this one
--   p_open            true: those a standing revocation lists and nobody acknowledged; false: the others; null: all
--   p_revocation      those that this revocation lists, or null
create or replace function fenceline.export_feed(p_after bigint, p_limit int, p_open boolean, p_revocation bigint)
returns table (export_id bigint, entry_number bigint, index_id int, roots json, destination text, exported_at timestamptz,
               acknowledged_at timestamptz, revocations bigint[])
language sql stable as $$
  with listed as (
    select e.*, array(
             select x.revocation_id from fenceline.revocation_export x join fenceline.revocation v using (revocation_id)
             where x.export_id = e.export_id and v.state <> 'LIFTED' order by x.revocation_id) as revocations
    from fenceline.export e where e.export_id > p_after
  )
  select e.export_id, e.entry_number, g.index_id,
         (select json_agg(json_build_object('lineageId', r.lineage_id, 'source', src.name, 'reader', subj.name, 'uri', s.uri)
                          order by s.subscription_id)
          from (select e.subscription_id, e.subscription_id || '.' || e.ordinal as lineage_id where e.subscription_id is not null
                union
                select r.subscription_id, r.subscription_id || '.' || max(r.ordinal) from fenceline.group_root r
                where r.group_id = e.group_id group by r.subscription_id) r
          join fenceline.subscription s using (subscription_id)
          join fenceline.policy_scope p using (scope_id)
          join fenceline.source src using (source_id)
          join fenceline.subject subj using (subject_id)),
         e.destination, e.at, e.acknowledged_at, e.revocations
  from listed e left join fenceline.entry_group g using (group_id)
  where (p_open is null or p_open = (e.acknowledged_at is null and e.revocations <> '{}'))
    and (p_revocation is null or p_revocation = any (e.revocations))
  order by e.export_id limit p_limit
$$;
