-- Who and where: subjects, policy scopes, resources. Each creates what is missing and answers with its id.

create or replace function fenceline.ensure_subject(p_name text) returns bigint language plpgsql volatile as $$
declare
  v_subject bigint;
begin
  select subject_id into v_subject from fenceline.subject where name = p_name;
  if v_subject is null then
    insert into fenceline.subject (name) values (p_name) on conflict (name) do nothing;
    select subject_id into strict v_subject from fenceline.subject where name = p_name;
  end if;
  return v_subject;
end $$;

-- Subjects by their names, in one order: of two calls that create the same ones in different orders each would wait for the other.
create or replace function fenceline.ensure_subjects(p_names text[]) returns void language plpgsql volatile as $$
begin
  perform fenceline.ensure_subject(n.name)
  from (select distinct i.name from unnest(p_names) i (name) where i.name is not null order by 1) n;
end $$;

-- The policy scope of a source under a subject. A new one takes in the revocations of every source that stand for the subject:
-- without the subject's fence one that commits at the same time would be counted by neither side.
create or replace function fenceline.ensure_policy_scope(p_source int, p_subject bigint) returns int language plpgsql volatile as $$
declare
  v_scope int;
begin
  select scope_id into v_scope from fenceline.policy_scope where source_id = p_source and subject_id = p_subject;
  if v_scope is not null then return v_scope; end if;
  perform fenceline.fence_subject_shared(p_subject);
  insert into fenceline.policy_scope (source_id, subject_id, policy_epoch, standing_revocations)
  select p_source, p_subject, coalesce(max(v.policy_epoch), 0), count(*) filter (where v.state <> 'LIFTED')
  from fenceline.revocation v where v.subject_id = p_subject and v.source_id is null
  on conflict (source_id, subject_id) do nothing;
  select scope_id into strict v_scope from fenceline.policy_scope where source_id = p_source and subject_id = p_subject;
  return v_scope;
end $$;

-- Which of these keys (by their digests) have no resource yet. A resource is never deleted.
create or replace function fenceline.unknown_resources(p_source int, p_key_digests bytea[]) returns setof bytea
language sql stable as $$
  select i.key_digest from unnest(p_key_digests) as i (key_digest)
  where not exists (select 1 from fenceline.resource r where r.source_id = p_source and r.key_digest = i.key_digest)
$$;

-- Resources of a source by key (F10), created where missing, by the holder of a session: nothing where it is lost. A statement of its
-- own: it takes no lock beside its own rows.
--   p_*  parallel arrays, distinct by key; hashes as array literals (resource-rows.ts)
create or replace function fenceline.ensure_resources(
  p_scope int, p_generation bigint, p_source int, p_resource_keys text[], p_key_digests bytea[], p_segment_keys text[], p_match_keys text[],
  p_cover_hashes text[], p_deny_hashes text[]
) returns void language plpgsql volatile as $$
begin
  if not fenceline.session_stands(p_scope, p_generation) then return; end if;
  -- Sorted, because two calls that create the same keys wait for each other. Only missing ones reach the insert: `on
  -- conflict` would draw an id for each. Planned anew for each call: a plan made while there were few resources would be kept,
  -- and go on reading all of them.
  execute $statement$
    insert into fenceline.resource
      (source_id, resource_key, key_digest, segment_key, match_key, cover_hashes, deny_hashes)
    select $1, i.resource_key, i.key_digest, i.segment_key, i.match_key, i.cover_hashes::bigint[], i.deny_hashes::bigint[]
    from unnest($2, $3, $4, $5, $6, $7)
      as i (resource_key, key_digest, segment_key, match_key, cover_hashes, deny_hashes)
    where not exists (
      select 1 from fenceline.resource r where r.source_id = $1 and r.key_digest = i.key_digest)
    order by i.key_digest
    on conflict (source_id, key_digest) do nothing
  $statement$ using p_source, p_resource_keys, p_key_digests, p_segment_keys, p_match_keys, p_cover_hashes, p_deny_hashes;
end $$;
