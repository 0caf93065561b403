-- Scans (S1 to S5): recorded page by page, ended with a digest of what they list. What comes of them is in catalog.sql.
--
-- 1. A verdict is the ledger's: a caller reports pages, and that the list ended; never that a snapshot is proven (S3).
-- 2. A scan that ended takes no page, and ends once. Loop and budgets end it here, whether or not the caller noticed (S2).
-- 3. Without the extension, or once it is distrusted in a session, snapshot ids prove nothing and contradict nothing.

-- Begins a scan. Where the session's newest capability receipt has no resources, what the source lists is unknown: the scan is
-- INCOMPLETE from the start (S9). A session without a receipt belongs to a protocol that negotiates nothing.
--   p_templates     its list belongs to the scan as well
--   p_max_…         budgets (S2)
--   outcome  'begun' | 'session_lost' | 'no_resources_capability'
create or replace function fenceline.begin_scan(
  p_scope int, p_generation bigint, p_templates boolean, p_max_pages int, p_max_entries bigint, p_max_bytes bigint,
  out outcome text, out scan bigint
) language plpgsql volatile as $$
declare
  v_negotiated jsonb;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then
    outcome := 'session_lost';
    return;
  end if;
  select c.negotiated into v_negotiated
  from fenceline.session x join fenceline.capability_receipt c using (session_id)
  where x.scope_id = p_scope and x.generation = p_generation
  order by c.capability_receipt_id desc limit 1;
  insert into fenceline.scan (scope_id, session_generation, list_changed_number, templates, snapshot_negotiated,
    max_pages, max_entries, max_bytes)
  select p_scope, p_generation, c.list_changed_number, p_templates, coalesce((v_negotiated ->> 'snapshotId')::boolean, false),
    p_max_pages, p_max_entries, p_max_bytes
  from fenceline.policy_scope c where c.scope_id = p_scope
  returning scan_id into scan;
  outcome := 'begun';
  if not coalesce((v_negotiated ->> 'resources')::boolean, true) then
    perform fenceline.end_scan(scan, 'INCOMPLETE', 'no_resources_capability', null);
    outcome := 'no_resources_capability';
    scan := null;
  end if;
end $$;

-- Whether a scan is none of the last two of its scope: nothing may be concluded from it any more, unless it is the catalogue's.
create or replace function fenceline.is_scan_superseded(p_scope int, p_scan bigint) returns boolean language sql stable as $$
  select exists (select 1 from fenceline.scan n where n.scope_id = p_scope and n.scan_id > p_scan offset 1)
$$;

-- Whether the catalogue of its scope is this scan, or agreed with it.
create or replace function fenceline.is_scan_of_catalogue(p_scope int, p_scan bigint) returns boolean language sql stable as $$
  select exists (
    select 1 from fenceline.policy_scope c join fenceline.scan x on x.scan_id = c.catalog_scan_id
    where c.scope_id = p_scope and p_scan in (x.scan_id, x.agreed_with))
$$;

-- Deletes a batch of entries, and the pages and templates, of scans that nothing needs any more: neither the last two, which a
-- publication may take, nor the catalogue's, which a completeness task may take (S6). Without the fence: what goes is of no use
-- to a later holder either, and a revocation need not wait for it. One at a time for a scope: two would delete the same rows, in
-- any order, and wait for each other.
--   → entries deleted; 0 also where the session is lost, and where another call is at it
create or replace function fenceline.forget_scan_entries(p_scope int, p_generation bigint, p_limit int) returns int
language plpgsql volatile as $$
declare
  v_old bigint[];
  v_deleted int;
begin
  if not fenceline.session_stands(p_scope, p_generation) then return 0; end if;
  if not pg_try_advisory_xact_lock(hashtext('fenceline.forget_scan_entries'), p_scope) then return 0; end if;
  -- A publication holds the scan that it names the catalogue, and a batch the one that it removes by.
  v_old := array(
    select x.scan_id from fenceline.scan x
    where x.scope_id = p_scope and fenceline.is_scan_superseded(p_scope, x.scan_id) and (
      exists (select 1 from fenceline.scan_entry e where e.scan_id = x.scan_id)
      or exists (select 1 from fenceline.scan_page p where p.scan_id = x.scan_id)
      or exists (select 1 from fenceline.scan_template t where t.scan_id = x.scan_id))
    order by x.scan_id for update skip locked);
  -- In the next statement, which sees a catalogue that was named before its scan was free.
  v_old := array_remove(v_old, (select c.catalog_scan_id from fenceline.policy_scope c where c.scope_id = p_scope));
  delete from fenceline.scan_entry e
  where (e.scan_id, e.resource_id) in (
    select o.scan_id, o.resource_id from fenceline.scan_entry o where o.scan_id = any (v_old) limit p_limit);
  get diagnostics v_deleted = row_count;
  delete from fenceline.scan_template t where t.scan_id = any (v_old);
  delete from fenceline.scan_page p where p.scan_id = any (v_old);
  return v_deleted;
end $$;

-- Adds a page, or a part of a long one. A cursor that came back with the same page is a loop (S2).
--   p_list                'resources' | 'templates'; the resources of the first exist (ensure_resources)
--   p_cursor_digest       of the cursor the page was asked with; null: a part, further ones of the page follow
--   p_page_digest         of all its entries and of the cursor that follows
--   p_ends                no cursor follows; null: not known
--   p_snapshot_id_digest  of the id the page binds; null: none
--   p_uris …              parallel; p_uri_templates: which template stands for each, null: it is listed
--   → 'recorded' | 'session_lost' | 'scan_ended'; or why it ended here: 'cursor_loop' | 'page_budget' | 'entry_budget' | 'byte_budget'
create or replace function fenceline.record_scan_page(
  p_scope int, p_generation bigint, p_source int, p_scan bigint, p_list text,
  p_cursor_digest bytea, p_page_digest bytea, p_ends boolean, p_snapshot_id_digest bytea,
  p_uris text[], p_key_digests bytea[], p_names text[], p_titles text[], p_mime_types text[], p_descriptor_digests bytea[],
  p_uri_templates text[]
) returns text language plpgsql volatile as $$
declare
  v_scan fenceline.scan;
  v_added int := 0;
  v_stop text;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  select * into v_scan from fenceline.scan x
  where x.scan_id = p_scan and x.scope_id = p_scope and x.session_generation = p_generation and x.ended_at is null for update;
  if not found then return 'scan_ended'; end if;
  v_scan.listed := v_scan.listed + cardinality(p_uris);
  v_scan.bytes := v_scan.bytes + (
    select coalesce(sum(octet_length(i.uri) + coalesce(octet_length(i.name), 0) + coalesce(octet_length(i.title), 0)
      + coalesce(octet_length(i.mime_type), 0) + octet_length(i.descriptor_digest)), 0)
    from unnest(p_uris, p_names, p_titles, p_mime_types, p_descriptor_digests) as i (uri, name, title, mime_type, descriptor_digest));
  v_stop := case
    when v_scan.listed > v_scan.max_entries then 'entry_budget'
    when v_scan.bytes > v_scan.max_bytes then 'byte_budget'
    when p_cursor_digest is null then null
    when v_scan.pages >= v_scan.max_pages then 'page_budget'
    when exists (
      select 1 from fenceline.scan_page p
      where p.scan_id = p_scan and p.cursor_digest = p_cursor_digest and p.list = p_list and p.page_digest = p_page_digest)
      then 'cursor_loop'
  end;
  if v_stop is not null then
    perform fenceline.end_scan(p_scan, 'INCOMPLETE', v_stop, null);
    return v_stop;
  end if;
  if p_list = 'templates' then
    insert into fenceline.scan_template (scan_id, template_digest, uri_template, name, title, mime_type, descriptor_digest)
    select p_scan, i.key_digest, i.uri, i.name, i.title, i.mime_type, i.descriptor_digest
    from unnest(p_uris, p_key_digests, p_names, p_titles, p_mime_types, p_descriptor_digests)
      as i (uri, key_digest, name, title, mime_type, descriptor_digest)
    on conflict do nothing;
  else
    v_added := fenceline.add_scan_entries(
      p_source, p_scan, p_uris, p_key_digests, p_names, p_titles, p_mime_types, p_descriptor_digests, p_uri_templates);
  end if;
  if p_cursor_digest is not null then
    insert into fenceline.scan_page (scan_id, page, list, cursor_digest, page_digest, ends, entries)
    values (p_scan, v_scan.pages, p_list, p_cursor_digest, p_page_digest, p_ends, cardinality(p_uris));
    v_scan.pages := v_scan.pages + 1;
  end if;
  update fenceline.scan x
  set entries = x.entries + v_added, listed = v_scan.listed, bytes = v_scan.bytes, pages = v_scan.pages,
    page_snapshot_digest = case when v_scan.pages = 1 and x.pages = 0 then p_snapshot_id_digest else x.page_snapshot_digest end,
    snapshot_fault = case
      when not x.snapshot_negotiated or p_cursor_digest is null or x.snapshot_fault is not null then x.snapshot_fault
      when p_snapshot_id_digest is null then 'snapshot_id_missing'
      when x.pages > 0 and x.page_snapshot_digest <> p_snapshot_id_digest then 'snapshot_id_changed'
    end
  where x.scan_id = p_scan;
  return 'recorded';
end $$;

-- The entries of a page; those of one key are merged. Two spellings that are described differently are taken to differ in
-- content, which only reading both would tell (F10).
--   → entries that are new to the scan
create or replace function fenceline.add_scan_entries(
  p_source int, p_scan bigint, p_uris text[], p_key_digests bytea[], p_names text[], p_titles text[], p_mime_types text[],
  p_descriptor_digests bytea[], p_uri_templates text[]
) returns int language sql volatile as $$
  with page as (
    select r.resource_id, i.*,
      i.uri <> first_value(i.uri) over same_key
        and (i.name, i.title, i.mime_type) is distinct from
          (first_value(i.name) over same_key, first_value(i.title) over same_key, first_value(i.mime_type) over same_key) as ambiguous
    from unnest(p_uris, p_key_digests, p_names, p_titles, p_mime_types, p_descriptor_digests, p_uri_templates)
      with ordinality as i (uri, key_digest, name, title, mime_type, descriptor_digest, uri_template, place)
    join fenceline.resource r on r.source_id = p_source and r.key_digest = i.key_digest
    window same_key as (partition by r.resource_id order by i.place)),
  listed as (
    select distinct on (p.resource_id) p.resource_id, p.uri, p.name, p.title, p.mime_type, p.descriptor_digest, p.uri_template,
      bool_or(p.ambiguous) over (partition by p.resource_id) as ambiguous
    from page p order by p.resource_id, p.place),
  -- Two pages may list one key: the first spelling stays, and what is listed is not a template's.
  written as (
    insert into fenceline.scan_entry as e
      (scan_id, resource_id, uri, name, title, mime_type, descriptor_digest, ambiguous, uri_template)
    select p_scan, l.resource_id, l.uri, l.name, l.title, l.mime_type, l.descriptor_digest, l.ambiguous, l.uri_template from listed l
    on conflict (scan_id, resource_id) do update
    set ambiguous = e.ambiguous or excluded.ambiguous or e.uri <> excluded.uri
      and (e.name, e.title, e.mime_type) is distinct from (excluded.name, excluded.title, excluded.mime_type),
      uri_template = case when excluded.uri_template is not null then e.uri_template end
    returning (xmax = 0) as added)
  select (count(*) filter (where added))::int from written
$$;

-- The digest of a scan's set of (resource, spelling, descriptor), and of its templates where it has their list. Built in chunks,
-- so that a million entries need no more memory than a thousand.
create or replace function fenceline.scan_set_digest(p_scan bigint) returns bytea language sql stable as $$
  with resources as (
    select sha256(coalesce(string_agg(c.digest, ''::bytea order by c.chunk), ''::bytea)) as digest
    from (
      select e.chunk, sha256(string_agg(e.digest, ''::bytea order by e.place)) as digest
      from (
        select (row_number() over by_id - 1) / 1000 as chunk, row_number() over by_id as place,
          sha256(int8send(resource_id) || sha256(convert_to(uri, 'UTF8')) || descriptor_digest
            || case when ambiguous then '\x01'::bytea else ''::bytea end) as digest
        from fenceline.scan_entry where scan_id = p_scan
        window by_id as (order by resource_id)) e
      group by e.chunk) c),
  templates as (
    select string_agg(t.template_digest || t.descriptor_digest, ''::bytea order by t.template_digest) as digests
    from fenceline.scan_template t where t.scan_id = p_scan)
  select case when x.templates then sha256(r.digest || sha256(coalesce(t.digests, ''::bytea))) else r.digest end
  from fenceline.scan x cross join resources r cross join templates t where x.scan_id = p_scan
$$;

-- Ends a scan: all of its lists ended, or the caller gave up. Which verdict follows is decided in end_scan.
--   p_verdict  null: complete; else 'INCOMPLETE' | 'VOID'; 'VOID' distrusts the snapshot extension as well
--   p_faults   what was not valid in its lists; null: not told
--   → 'complete' | 'proven' | 'void' | 'incomplete' | 'session_lost' | 'scan_ended'
create or replace function fenceline.finish_scan(
  p_scope int, p_generation bigint, p_scan bigint, p_verdict fenceline.scan_verdict, p_reason text, p_faults jsonb
) returns text language plpgsql volatile as $$
declare
  v_before fenceline.scan;
  v_digest bytea;
  v_scan fenceline.scan;
begin
  -- Before the fence: nobody but this session adds to the scan, and a million entries take a second.
  if p_verdict is null then
    select * into v_before from fenceline.scan x where x.scan_id = p_scan and x.scope_id = p_scope;
    v_digest := fenceline.scan_set_digest(p_scan);
  end if;
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  select * into v_scan from fenceline.scan x
  where x.scan_id = p_scan and x.scope_id = p_scope and x.session_generation = p_generation and x.ended_at is null for update;
  if not found then return 'scan_ended'; end if;
  update fenceline.scan x set faults = p_faults where x.scan_id = p_scan and p_faults is not null;
  if p_verdict is not null then return fenceline.end_scan(p_scan, p_verdict, p_reason, null); end if;
  -- `listed` also counts the parts of a page whose last one has not come.
  if (v_scan.pages, v_scan.listed) <> (v_before.pages, v_before.listed) then
    return fenceline.end_scan(p_scan, 'INCOMPLETE', 'page_after_the_end', null);
  end if;
  -- Its entries may have been forgotten, and what is left of them is no set.
  if fenceline.is_scan_superseded(p_scope, p_scan) then
    return fenceline.end_scan(p_scan, 'INCOMPLETE', 'superseded', null);
  end if;
  -- A list that was never asked for is no empty list (S8, S9).
  if not fenceline.list_ended(p_scan, 'resources') or v_scan.templates and not fenceline.list_ended(p_scan, 'templates') then
    return fenceline.end_scan(p_scan, 'INCOMPLETE', 'list_not_ended', null);
  end if;
  return fenceline.end_scan(p_scan, null, null, v_digest);
end $$;

-- Whether the last page of a list said that none follows, or did not say.
create or replace function fenceline.list_ended(p_scan bigint, p_list text) returns boolean language sql stable as $$
  select coalesce((
    select p.ends is not false from fenceline.scan_page p
    where p.scan_id = p_scan and p.list = p_list order by p.page desc limit 1), false)
$$;

-- The one place that gives a scan its end, for callers that hold its row. Where every page had to bind one snapshot id (S3): one
-- that did not, or an id known in this scope with another set, makes it VOID and the extension distrusted for the rest of the
-- session; else the scan is proven.
--   p_verdict  null: complete
--   → 'complete' | 'proven' | 'void' | 'incomplete'
create or replace function fenceline.end_scan(p_scan bigint, p_verdict fenceline.scan_verdict, p_reason text, p_set_digest bytea)
returns text language plpgsql volatile as $$
declare
  v_scan fenceline.scan;
  v_verdict fenceline.scan_verdict := p_verdict;
  v_reason text := p_reason;
  v_binds boolean;
begin
  select * into strict v_scan from fenceline.scan where scan_id = p_scan;
  v_binds := v_scan.snapshot_negotiated and not exists (
    select 1 from fenceline.session s
    where s.scope_id = v_scan.scope_id and s.generation = v_scan.session_generation and s.snapshots_distrusted);
  if v_binds and v_scan.snapshot_fault is not null then
    v_verdict := 'VOID';
    v_reason := v_scan.snapshot_fault;
  elsif v_binds and p_verdict is null then
    insert into fenceline.snapshot_id (scope_id, id_digest, set_digest, scan_id)
    values (v_scan.scope_id, v_scan.page_snapshot_digest, p_set_digest, p_scan)
    on conflict do nothing;
    v_verdict := case when exists (
        select 1 from fenceline.snapshot_id i
        where i.scope_id = v_scan.scope_id and i.id_digest = v_scan.page_snapshot_digest and i.set_digest = p_set_digest)
      then 'SNAPSHOT_PROVEN' else 'VOID' end;
    v_reason := case v_verdict when 'VOID' then 'snapshot_id_forged' end;
  end if;
  if v_verdict = 'VOID' then
    update fenceline.session set snapshots_distrusted = true
    where scope_id = v_scan.scope_id and generation = v_scan.session_generation;
  end if;
  update fenceline.scan x
  set ended_at = fenceline.now(), verdict = v_verdict, reason = v_reason,
    set_digest = case when v_verdict is distinct from 'VOID' then p_set_digest end,
    snapshot_id_digest = case when v_verdict = 'SNAPSHOT_PROVEN' then x.page_snapshot_digest end,
    list_changed_until = (select c.list_changed_number from fenceline.policy_scope c where c.scope_id = x.scope_id)
  where x.scan_id = p_scan;
  insert into fenceline.receipt (scope_id, kind, detail)
  values (v_scan.scope_id, 'scan_finished',
    jsonb_build_object('scan', p_scan, 'entries', v_scan.entries, 'verdict', v_verdict, 'reason', v_reason));
  return case v_verdict when 'SNAPSHOT_PROVEN' then 'proven' when 'VOID' then 'void' when 'INCOMPLETE' then 'incomplete' else 'complete' end;
end $$;

-- Makes the next scan due now and calls off every scan that began before (S4, S9). Of many in a row only the first leaves a
-- receipt: until a scan begins, or the next review is put off, a further one says nothing new.
--   → 'recorded' | 'coalesced' | 'session_lost'
create or replace function fenceline.record_list_changed(p_scope int, p_generation bigint) returns text language plpgsql volatile as $$
declare
  v_scope fenceline.policy_scope;
  v_now timestamptz;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  perform fenceline.fence_catalogue_exclusive(p_scope);
  select * into strict v_scope from fenceline.policy_scope where scope_id = p_scope;
  v_now := fenceline.now();
  update fenceline.policy_scope set list_changed_number = list_changed_number + 1, next_review_at = least(next_review_at, v_now)
  where scope_id = p_scope;
  if v_scope.next_review_at <= v_now and v_scope.list_changed_number > 0 and not exists (
    select 1 from (
      select x.list_changed_number from fenceline.scan x where x.scope_id = p_scope order by x.scan_id desc limit 1) newest
    where newest.list_changed_number = v_scope.list_changed_number)
  then
    return 'coalesced';
  end if;
  insert into fenceline.receipt (scope_id, kind) values (p_scope, 'list_changed');
  return 'recorded';
end $$;

-- When the scope's list is to be scanned (S5, S9), in milliseconds from now; null: a scan never came to anything, or the session
-- is lost.
create or replace function fenceline.milliseconds_to_next_review(p_scope int, p_generation bigint) returns bigint
language sql volatile as $$
  select ceil(extract(epoch from greatest(c.next_review_at, fenceline.now()) - fenceline.now()) * 1000)::bigint
  from fenceline.policy_scope c
  where c.scope_id = p_scope and c.next_review_at is not null and fenceline.session_stands(p_scope, p_generation)
$$;
