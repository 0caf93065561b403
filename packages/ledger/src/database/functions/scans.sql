-- Scans (S1 to S5): recorded page by page, ended with a digest of what they list. What comes of them is in catalog.sql.

--   → scan id; null: session lost
create or replace function fenceline.begin_scan(p_scope int, p_generation bigint) returns bigint language plpgsql volatile as $$
declare
  v_scan bigint;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return null; end if;
  insert into fenceline.scan (scope_id, session_generation, list_changed_number)
  select p_scope, p_generation, c.list_changed_number from fenceline.policy_scope c where c.scope_id = p_scope
  returning scan_id into v_scan;
  return v_scan;
end $$;

-- Deletes a batch of entries, and the pages, of scans before the last two, which a publication may still need.
--   → entries deleted
create or replace function fenceline.forget_scan_entries(p_scope int, p_limit int) returns int language plpgsql volatile as $$
declare
  v_deleted int;
begin
  delete from fenceline.scan_entry e
  where (e.scan_id, e.resource_id) in (
    select o.scan_id, o.resource_id
    from (
      select x.scan_id from fenceline.scan x
      where x.scope_id = p_scope order by x.scan_id desc offset 2) old
    join fenceline.scan_entry o on o.scan_id = old.scan_id
    limit p_limit);
  get diagnostics v_deleted = row_count;
  delete from fenceline.scan_page p
  where p.scan_id in (
    select x.scan_id from fenceline.scan x where x.scope_id = p_scope order by x.scan_id desc offset 2);
  return v_deleted;
end $$;

-- Adds one page; entries of one key are merged. Two spellings that are described differently are taken to differ in content, which
-- only reading both would tell (F10).
--   p_uris …  parallel; the resources exist (ensure_resources)
--   → 'recorded' | 'session_lost' | 'scan_ended'
create or replace function fenceline.record_scan_page(
  p_scope int, p_generation bigint, p_source int, p_scan bigint, p_cursor_digest bytea,
  p_uris text[], p_key_digests bytea[], p_names text[], p_titles text[], p_mime_types text[], p_descriptor_digests bytea[]
) returns text language plpgsql volatile as $$
declare
  v_added int;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  perform 1 from fenceline.scan x
  where x.scan_id = p_scan and x.scope_id = p_scope and x.session_generation = p_generation and x.ended_at is null for update;
  if not found then return 'scan_ended'; end if;
  with page as (
    select r.resource_id, i.*,
      i.uri <> first_value(i.uri) over same_key
        and (i.name, i.title, i.mime_type) is distinct from
          (first_value(i.name) over same_key, first_value(i.title) over same_key, first_value(i.mime_type) over same_key) as ambiguous
    from unnest(p_uris, p_key_digests, p_names, p_titles, p_mime_types, p_descriptor_digests)
      with ordinality as i (uri, key_digest, name, title, mime_type, descriptor_digest, place)
    join fenceline.resource r on r.source_id = p_source and r.key_digest = i.key_digest
    window same_key as (partition by r.resource_id order by i.place)),
  listed as (
    select distinct on (p.resource_id) p.resource_id, p.uri, p.name, p.title, p.mime_type, p.descriptor_digest,
      bool_or(p.ambiguous) over (partition by p.resource_id) as ambiguous
    from page p order by p.resource_id, p.place),
  -- Two pages may list one key: the first spelling stays.
  written as (
    insert into fenceline.scan_entry as e
      (scan_id, resource_id, uri, name, title, mime_type, descriptor_digest, ambiguous)
    select p_scan, l.resource_id, l.uri, l.name, l.title, l.mime_type, l.descriptor_digest, l.ambiguous from listed l
    on conflict (scan_id, resource_id) do update
    set ambiguous = e.ambiguous or excluded.ambiguous or e.uri <> excluded.uri
      and (e.name, e.title, e.mime_type) is distinct from (excluded.name, excluded.title, excluded.mime_type)
    returning (xmax = 0) as added)
  select count(*) filter (where added) into v_added from written;
  insert into fenceline.scan_page (scan_id, page, cursor_digest, entries)
  select p_scan, count(*), p_cursor_digest, cardinality(p_uris) from fenceline.scan_page where scan_id = p_scan;
  update fenceline.scan set entries = entries + v_added where scan_id = p_scan;
  return 'recorded';
end $$;

-- Ends a scan. A complete one gets the digest of its set of (resource, spelling, descriptor), built in chunks so that a
-- million entries need no more memory than a thousand.
-- A snapshot id that is known in this scope with another digest is forged: the scan is VOID, and the extension is distrusted for
-- the rest of the session, whose later scans count like any other (S3).
--   p_verdict             null: complete; else 'INCOMPLETE' | 'VOID'; 'VOID' distrusts the extension as well
--   p_snapshot_id_digest  null: not every page bound one id
--   → 'complete' | 'proven' | 'void' | 'incomplete' | 'session_lost' | 'scan_ended'
create or replace function fenceline.finish_scan(
  p_scope int, p_generation bigint, p_scan bigint, p_verdict fenceline.scan_verdict, p_reason text, p_snapshot_id_digest bytea
) returns text language plpgsql volatile as $$
declare
  v_digest bytea;
  v_verdict fenceline.scan_verdict := p_verdict;
  v_reason text := p_reason;
begin
  -- Before the fence: nobody but this session adds to the scan, and a million entries take a second.
  if p_verdict is null then
    select sha256(coalesce(string_agg(c.digest, ''::bytea order by c.chunk), ''::bytea)) into v_digest
    from (
      select e.chunk, sha256(string_agg(e.digest, ''::bytea order by e.place)) as digest
      from (
        select (row_number() over by_id - 1) / 1000 as chunk, row_number() over by_id as place,
          sha256(int8send(resource_id) || sha256(convert_to(uri, 'UTF8')) || descriptor_digest) as digest
        from fenceline.scan_entry where scan_id = p_scan
        window by_id as (order by resource_id)) e
      group by e.chunk) c;
  end if;
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  if p_verdict is null and p_snapshot_id_digest is not null then
    if exists (
      select 1 from fenceline.scan
      where scope_id = p_scope and snapshot_id_digest = p_snapshot_id_digest and set_digest <> v_digest) then
      v_verdict := 'VOID';
      v_reason := 'snapshot_id_forged';
    elsif not exists (
      select 1 from fenceline.session
      where scope_id = p_scope and generation = p_generation and snapshots_distrusted) then
      v_verdict := 'SNAPSHOT_PROVEN';
    end if;
  end if;
  if v_verdict = 'VOID' then
    update fenceline.session set snapshots_distrusted = true where scope_id = p_scope and generation = p_generation;
  end if;
  update fenceline.scan
  set ended_at = fenceline.now(), set_digest = case when v_verdict is distinct from 'VOID' then v_digest end,
    snapshot_id_digest = case when v_verdict = 'SNAPSHOT_PROVEN' then p_snapshot_id_digest end,
    verdict = v_verdict, reason = v_reason
  where scan_id = p_scan and scope_id = p_scope and session_generation = p_generation and ended_at is null;
  if not found then return 'scan_ended'; end if;
  insert into fenceline.receipt (scope_id, kind, detail)
  select p_scope, 'scan_finished',
    jsonb_build_object('scan', scan_id, 'entries', entries, 'verdict', verdict, 'reason', reason)
  from fenceline.scan where scan_id = p_scan;
  return case v_verdict when 'SNAPSHOT_PROVEN' then 'proven' when 'VOID' then 'void' when 'INCOMPLETE' then 'incomplete' else 'complete' end;
end $$;

--   → 'recorded' | 'session_lost'
create or replace function fenceline.record_list_changed(p_scope int, p_generation bigint) returns text language plpgsql volatile as $$
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  update fenceline.policy_scope set list_changed_number = list_changed_number + 1, next_review_at = fenceline.now()
  where scope_id = p_scope;
  insert into fenceline.receipt (scope_id, kind) values (p_scope, 'list_changed');
  return 'recorded';
end $$;
