-- Grants (G1): who may see what a reader read. Each takes the shared fences of the reader and of the audience, so that it
-- stands before or after a revocation of either, never beside it.

-- The shared fences of one source under these subjects, in the order of the scopes; creates the scopes that are missing.
create or replace function fenceline.fence_grants(p_source int, p_subjects bigint[]) returns void
language plpgsql volatile as $$
begin
  perform fenceline.fence_shared(p.scope_id)
  from (select fenceline.ensure_policy_scope(p_source, s.subject_id) as scope_id
        from (select distinct unnest(p_subjects) as subject_id order by 1) s
        order by scope_id) p;
end $$;

-- Adds grants; those that are there stay as they are.
--   p_source, p_origin  one for all
--   p_readers, p_audiences, p_scope_texts, p_key_prefixes, p_match_prefixes, p_cover_hashes  parallel arrays
-- Result: how many were added.
create or replace function fenceline.add_grants(
  p_source int, p_origin text, p_readers text[], p_audiences text[], p_scope_texts text[], p_key_prefixes text[],
  p_match_prefixes text[], p_cover_hashes bigint[]
) returns int
language plpgsql volatile as $$
declare
  v_readers bigint[];
  v_audiences bigint[];
  v_added int;
begin
  perform fenceline.ensure_subjects(p_readers || p_audiences);
  select array_agg(r.subject_id order by g.position), array_agg(a.subject_id order by g.position)
  into v_readers, v_audiences
  from unnest(p_readers, p_audiences) with ordinality g (reader, audience, position)
  join fenceline.subject r on r.name = g.reader
  join fenceline.subject a on a.name = g.audience;
  perform fenceline.fence_grants(p_source, v_readers || v_audiences);
  insert into fenceline.access_grant
    (source_id, reader_id, audience_id, scope_text, key_prefix, match_prefix, cover_hash, origin)
  select p_source, g.reader_id, g.audience_id, g.scope_text, g.key_prefix, g.match_prefix, g.cover_hash, p_origin
  from unnest(v_readers, v_audiences, p_scope_texts, p_key_prefixes, p_match_prefixes, p_cover_hashes)
    g (reader_id, audience_id, scope_text, key_prefix, match_prefix, cover_hash)
  order by g.cover_hash, g.audience_id, g.reader_id
  on conflict do nothing;
  get diagnostics v_added = row_count;
  return v_added;
end $$;

-- Takes a grant back.
-- Result: how many there were, 0 or 1.
create or replace function fenceline.withdraw_grant(
  p_source int, p_origin text, p_reader text, p_audience text, p_key_prefix text, p_cover_hash bigint
) returns int
language plpgsql volatile as $$
declare
  v_reader bigint := (select subject_id from fenceline.subject where name = p_reader);
  v_audience bigint := (select subject_id from fenceline.subject where name = p_audience);
  v_withdrawn int;
begin
  if v_reader is null or v_audience is null then
    return 0;
  end if;
  perform fenceline.fence_grants(p_source, array[v_reader, v_audience]);
  delete from fenceline.access_grant
  where cover_hash = p_cover_hash and audience_id = v_audience and reader_id = v_reader and source_id = p_source
    and key_prefix = p_key_prefix and origin = p_origin;
  get diagnostics v_withdrawn = row_count;
  return v_withdrawn;
end $$;

-- Makes the grants of origin `config` for one source exactly these; the parameters are those of `add_grants`.
create or replace function fenceline.replace_configured_grants(
  p_source int, p_readers text[], p_audiences text[], p_scope_texts text[], p_key_prefixes text[],
  p_match_prefixes text[], p_cover_hashes bigint[], out added int, out withdrawn int
)
language plpgsql volatile as $$
declare
  v_subjects bigint[];
begin
  -- One process after the other: each withdraws what the other adds, and would wait for it.
  perform 1 from fenceline.source s where s.source_id = p_source for no key update;
  -- Every fence before any change, and in one order: those of what is withdrawn as well.
  perform fenceline.ensure_subjects(p_readers || p_audiences);
  v_subjects := array(
    select g.reader_id from fenceline.access_grant g where g.source_id = p_source and g.origin = 'config'
    union
    select g.audience_id from fenceline.access_grant g where g.source_id = p_source and g.origin = 'config'
    union
    select s.subject_id from fenceline.subject s where s.name = any (p_readers || p_audiences));
  perform fenceline.fence_grants(p_source, v_subjects);
  delete from fenceline.access_grant g
  where g.source_id = p_source and g.origin = 'config'
    and not exists (
      select 1 from unnest(p_readers, p_audiences, p_key_prefixes) k (reader, audience, key_prefix)
      join fenceline.subject r on r.name = k.reader
      join fenceline.subject a on a.name = k.audience
      where r.subject_id = g.reader_id and a.subject_id = g.audience_id and k.key_prefix = g.key_prefix);
  get diagnostics withdrawn = row_count;
  added := fenceline.add_grants(p_source, 'config', p_readers, p_audiences, p_scope_texts, p_key_prefixes,
                                p_match_prefixes, p_cover_hashes);
end $$;
