-- The catalogue (S4 to S8): what two successive complete scans agree on is published in batches, and only the last step names
-- it the catalogue and removes anything. An interrupted publication is begun again from its scans.

-- Whether two scans may be published. Asked before the batches, under the fence of each, and by the last step.
--   p_agreeing  false: for an unsettled publication, which needs two complete scans and nothing more (S4)
--   → 'agreed' | 'differing' | 'list_changed' | 'incomplete' | 'session_lost'
create or replace function fenceline.compare_scans(
  p_scope int, p_generation bigint, p_first bigint, p_second bigint, p_agreeing boolean
) returns text language plpgsql volatile as $$
declare
  v_first fenceline.scan;
  v_second fenceline.scan;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  select * into v_first from fenceline.scan where scan_id = p_first and scope_id = p_scope;
  select * into v_second from fenceline.scan where scan_id = p_second and scope_id = p_scope;
  -- Older ones come from somebody late: of what is no longer one of the last two the entries may be forgotten, and would all be
  -- taken for absent; and a catalogue never goes back.
  if exists (select 1 from fenceline.policy_scope c where c.scope_id = p_scope and c.catalog_scan_id > p_second)
    or fenceline.is_scan_superseded(p_scope, p_second) then
    return 'incomplete';
  end if;
  -- A proven snapshot needs no second scan; `list_changed` says that it is no longer the newest, not that it was none.
  if p_first = p_second then
    return case when v_second.verdict = 'SNAPSHOT_PROVEN' and v_second.session_generation = p_generation and not exists (
        select 1 from fenceline.session s
        where s.scope_id = p_scope and s.generation = p_generation and s.snapshots_distrusted)
      then 'agreed' else 'incomplete' end;
  end if;
  -- Two scans are successive if the second began after the first ended, both in this session, and no other between them: one
  -- that failed there starts over, as an invalid cursor does.
  if v_first.set_digest is null or v_second.set_digest is null
    or v_first.session_generation <> p_generation or v_second.session_generation <> p_generation
    or v_second.scan_id <= v_first.scan_id or v_second.started_at < v_first.ended_at
    or exists (
      select 1 from fenceline.scan x
      where x.scope_id = p_scope and x.scan_id > p_first and x.scan_id < p_second)
  then
    return 'incomplete';
  end if;
  if not p_agreeing then return 'agreed'; end if;
  if exists (
    select 1 from fenceline.policy_scope c
    where c.scope_id = p_scope and c.list_changed_number <> v_first.list_changed_number) then
    return 'list_changed';
  end if;
  return case when v_first.set_digest = v_second.set_digest then 'agreed' else 'differing' end;
end $$;

-- One batch of entries: new ones become DISCOVERED, known ones take the server's description.
-- A settled publication returns RECONCILIATION_REQUIRED to ACTIVE and reopens what was absent from a settled scan, or left out, and
-- is listed again, with a new generation (§3); what a revocation closed stays closed until its lift.
-- Until the last step names the catalogue, what a batch published is no more than a resource both scans list: read and served,
-- and nothing is concluded from the rest (S8).
--   p_settled  false: only what the first scan lists too (S4)
--   outcome    as compare_scans, which each batch asks again (S7)
--   last_id    the resource to go on after; null: there are no more
create or replace function fenceline.publish_entries(
  p_scope int, p_generation bigint, p_first bigint, p_scan bigint, p_settled boolean, p_after bigint, p_limit int
) returns table (outcome text, published int, discovered int, last_id bigint) language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_outcome text := fenceline.compare_scans(p_scope, p_generation, p_first, p_scan, p_settled);
  v_now timestamptz;
  v_last bigint;
  v_resources bigint[];
  v_discovered int;
begin
  if v_outcome <> 'agreed' then
    return query select v_outcome, 0, 0, null::bigint;
    return;
  end if;
  v_now := fenceline.now();
  v_resources := array(
    select e.resource_id from fenceline.scan_entry e
    where e.scan_id = p_scan and e.resource_id > p_after order by e.resource_id limit p_limit);
  v_last := v_resources[p_limit];
  if not p_settled then
    v_resources := array(
      select e.resource_id from fenceline.scan_entry e where e.scan_id = p_first and e.resource_id = any (v_resources));
  end if;
  insert into fenceline.subscription
    (scope_id, resource_id, uri, name, title, mime_type, descriptor_digest, uri_template, listed_scan_id, lifecycle, lifecycle_event)
  select p_scope, e.resource_id, e.uri, e.name, e.title, e.mime_type, e.descriptor_digest, e.uri_template, p_scan,
    'DISCOVERED', 'listed'
  from fenceline.scan_entry e
  where e.scan_id = p_scan and e.resource_id = any (v_resources)
    and not exists (
      select 1 from fenceline.subscription s where s.scope_id = p_scope and s.resource_id = e.resource_id)
  order by e.resource_id
  on conflict (scope_id, resource_id) do nothing;
  get diagnostics v_discovered = row_count;
  perform fenceline.publish_known(p_scope, p_scan, p_settled, v_resources, v_now);
  return query select v_outcome, cardinality(v_resources), v_discovered, v_last;
end $$;

-- The part of publish_entries for subscriptions that exist; each row is decided on after it was locked. What is listed in two
-- spellings described differently is to be reconciled, also what was discovered just now (F10).
create or replace function fenceline.publish_known(
  p_scope int, p_scan bigint, p_settled boolean, p_resources bigint[], p_now timestamptz
) returns void language plpgsql volatile as $$
declare
  v_ids bigint[];
begin
  -- A catalogue that did not change writes nothing: a million rows would be rewritten at every review.
  v_ids := array(
    select s.subscription_id
    from fenceline.subscription s join fenceline.scan_entry e on e.scan_id = p_scan and e.resource_id = s.resource_id
    where s.scope_id = p_scope and s.resource_id = any (p_resources)
      and (s.listed_scan_id is null or s.vanished_scan_id is not null or s.excluded or e.ambiguous
        or s.lifecycle = 'RECONCILIATION_REQUIRED' or s.hidden_because in ('tombstoned', 'tombstone_pending')
        or (s.uri, s.name, s.title, s.mime_type, s.descriptor_digest, s.uri_template)
          is distinct from (e.uri, e.name, e.title, e.mime_type, e.descriptor_digest, e.uri_template))
    order by s.subscription_id for no key update of s);
  with listed as (
    select s.subscription_id, e.*,
      case
        when e.ambiguous and s.lifecycle in ('DISCOVERED', 'SUBSCRIBING', 'ACTIVE', 'RECONCILIATION_REQUIRED')
          then 'identity_unclear'
        when p_settled and not e.ambiguous and s.lifecycle = 'RECONCILIATION_REQUIRED' then 'scan_settled'
        when p_settled and s.lifecycle = 'CLOSED' and s.closed_by is null and (s.vanished_scan_id is not null or s.excluded)
          and not e.ambiguous then 'listed'
      end as event,
      s.vanished_scan_id is not null or s.hidden_because in ('tombstoned', 'tombstone_pending') as returned
    from fenceline.subscription s join fenceline.scan_entry e on e.scan_id = p_scan and e.resource_id = s.resource_id
    where s.subscription_id = any (v_ids))
  update fenceline.subscription s
  set uri = l.uri, name = l.name, title = l.title, mime_type = l.mime_type, descriptor_digest = l.descriptor_digest,
    uri_template = l.uri_template, listed_scan_id = p_scan,
    -- What is listed again in two spellings that differ stays closed, and absent until one of them is gone. What is not yet
    -- unsubscribed stays absent too: the scan after that opens it again (U9).
    vanished_scan_id = case when not p_settled or s.lifecycle = 'CLOSED' and l.ambiguous
      or s.lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN') then s.vanished_scan_id end,
    excluded = s.excluded and l.event is distinct from 'listed',
    lifecycle = case l.event when 'identity_unclear' then 'RECONCILIATION_REQUIRED' when 'scan_settled' then 'ACTIVE'
      when 'listed' then 'SUBSCRIBING' else s.lifecycle::text end::fenceline.lifecycle,
    lifecycle_event = coalesce(l.event, s.lifecycle_event),
    generation = s.generation + case when l.event in ('scan_settled', 'listed') then 1 else 0 end,
    session_generation = case when l.event in ('scan_settled', 'listed') then null else s.session_generation end,
    close_ordinal = case when l.event = 'listed' then null else s.close_ordinal end,
    close_policy_epoch = case when l.event = 'listed' then null else s.close_policy_epoch end,
    pushed = s.pushed and l.event is distinct from 'listed',
    digest = case when l.event is null then s.digest end,
    hidden_because = case when l.event = 'identity_unclear' then 'unreconciled' else s.hidden_because end,
    due_at = case when l.event = 'identity_unclear' then null
      when l.event is not null or l.returned then fenceline.due_by(s, p_now) else s.due_at end
  from listed l where s.subscription_id = l.subscription_id;
end $$;

-- What was listed, is not deleted, and is absent from a scan, among what is known (S8). The digest, of the ids of the absent, is
-- built in chunks, as a scan's is.
create or replace function fenceline.absent_from_scan(
  p_scope int, p_scan bigint, p_vanished_before boolean, out known bigint, out absent bigint, out absent_digest bytea
) language sql stable as $$
  with listed as materialized (
    select s.resource_id,
      not exists (select 1 from fenceline.scan_entry e where e.scan_id = p_scan and e.resource_id = s.resource_id) as absent
    from fenceline.subscription s
    where s.scope_id = p_scope and s.listed_scan_id is not null and (p_vanished_before or s.vanished_scan_id is null)
      and s.hidden_because is distinct from 'tombstoned'
      and s.lifecycle in ('DISCOVERED', 'SUBSCRIBING', 'ACTIVE', 'RECONCILIATION_REQUIRED')),
  counted as (select count(*) as known, count(*) filter (where l.absent) as absent from listed l)
  select n.known, n.absent, (
    select sha256(coalesce(string_agg(c.digest, ''::bytea order by c.chunk), ''::bytea))
    from (
      select a.chunk, sha256(string_agg(int8send(a.resource_id), ''::bytea order by a.resource_id)) as digest
      from (
        select l.resource_id, (row_number() over (order by l.resource_id) - 1) / 1000 as chunk from listed l where l.absent) a
      group by a.chunk) c)
  from counted n
$$;

-- The last step of a publication: compares once more, weighs what vanished against the floor (S8), and names the catalogue.
--   p_first = p_second            a proven snapshot
--   p_floor_count, p_floor_share  more than the greater of both is held back; so is an empty list of three or more
--   outcome   as compare_scans, 'agreed' having become 'published'
--   vanished  known, listed before, and absent from both scans; held: they stay as they are
create or replace function fenceline.finish_publication(
  p_scope int, p_generation bigint, p_first bigint, p_second bigint, p_floor_count bigint, p_floor_share float8, p_review_ms bigint
) returns table (outcome text, resources bigint, vanished bigint, held boolean, measured_at timestamptz, staleness_ms bigint,
                 next_review_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_outcome text;
  v_now timestamptz;
  v_gone record;
  v_scope fenceline.policy_scope;
  v_scan fenceline.scan;
  v_verdict fenceline.scan_verdict := case when p_first = p_second then 'SNAPSHOT_PROVEN' else 'SNAPSHOT_UNPROVEN' end;
  v_held boolean;
begin
  -- Before the fence: nobody but this session lists or removes.
  select * into v_gone from fenceline.absent_from_scan(p_scope, p_second, false);
  -- A list_changed comes before, and is seen, or waits and has the last word on when the next review is.
  perform fenceline.fence_shared(p_scope);
  perform fenceline.fence_catalogue_exclusive(p_scope);
  select * into strict v_scope from fenceline.policy_scope c where c.scope_id = p_scope;
  -- Whose entries are not forgotten before it is the catalogue's, nor then.
  perform 1 from fenceline.scan x
  where x.scan_id in (p_first, p_second) and x.scope_id = p_scope order by x.scan_id for no key update;
  v_outcome := fenceline.compare_scans(p_scope, p_generation, p_first, p_second, true);
  if v_outcome <> 'agreed' then
    return query select v_outcome, 0::bigint, 0::bigint, false, null::timestamptz, null::bigint, null::timestamptz;
    return;
  end if;
  v_now := fenceline.now();
  select * into strict v_scan from fenceline.scan x where x.scan_id = p_second;
  v_held := fenceline.weigh_removal(
    p_scope, 'catalogue', p_second, v_gone.known, v_gone.absent, v_gone.absent_digest, v_scan.entries, p_floor_count,
    p_floor_share, v_now);
  update fenceline.scan x
  set verdict = coalesce(x.verdict, v_verdict), agreed_with = p_first, measured_at = v_now, removal_held = v_held,
    staleness_ms = (select o.staleness_ms from fenceline.source o where o.source_id = v_scope.source_id),
    -- A list that changed while it was proven has a newer state already (S9).
    next_review_at = case when v_scope.list_changed_number = v_scan.list_changed_number
      then v_now + fenceline.milliseconds(p_review_ms) else v_now end
  where x.scan_id = p_second
  returning x.* into v_scan;
  update fenceline.scan x set verdict = v_verdict where x.scan_id = p_first and x.verdict is null;
  update fenceline.policy_scope c
  set catalog_scan_id = p_second, catalog_verdict = v_verdict, catalog_measured_at = v_now, next_review_at = v_scan.next_review_at
  where c.scope_id = p_scope;
  insert into fenceline.receipt (scope_id, kind, detail, at)
  values (p_scope, 'catalog_published', jsonb_build_object('first', p_first, 'second', p_second, 'resources', v_scan.entries,
    'verdict', v_verdict, 'vanished', v_gone.absent, 'held', v_held), v_now);
  return query
    select 'published', v_scan.entries, v_gone.absent, v_held, v_scan.measured_at, v_scan.staleness_ms, v_scan.next_review_at;
end $$;

-- The last step of an unsettled publication (S4): reported and reviewed, but never the catalogue (S7).
--   p_attempts  pairs of scans that did not agree
--   → 'published', or as compare_scans
create or replace function fenceline.finish_unsettled(
  p_scope int, p_generation bigint, p_first bigint, p_second bigint, p_attempts int, p_review_ms bigint
) returns text language plpgsql volatile as $$
declare
  v_outcome text;
  v_now timestamptz;
begin
  perform fenceline.fence_shared(p_scope);
  perform fenceline.fence_catalogue_exclusive(p_scope);
  v_outcome := fenceline.compare_scans(p_scope, p_generation, p_first, p_second, false);
  if v_outcome <> 'agreed' then return v_outcome; end if;
  v_now := fenceline.now();
  update fenceline.scan set verdict = 'UNSETTLED', attempts = p_attempts where scan_id in (p_first, p_second) and verdict is null;
  update fenceline.policy_scope
  set catalog_verdict = 'UNSETTLED', next_review_at = v_now + fenceline.milliseconds(p_review_ms) where scope_id = p_scope;
  insert into fenceline.receipt (scope_id, kind, detail, at)
  values (p_scope, 'catalog_unsettled', jsonb_build_object('first', p_first, 'second', p_second, 'attempts', p_attempts), v_now);
  return 'published';
end $$;

-- Weighs a removal against the floor (S8), and keeps the one open removal of a scope and task: another finding ends it; the same
-- one in a later full scan is the agreement that lets it go on, above the share once a person has confirmed it.
--   p_task     'catalogue' (a publication) | 'completeness' (a task on a proven snapshot)
--   p_entries  of the scan: an empty list of three or more is held back at any floor
--   → whether the removal is held back
create or replace function fenceline.weigh_removal(
  p_scope int, p_task text, p_scan bigint, p_known bigint, p_vanished bigint, p_digest bytea, p_entries bigint,
  p_floor_count bigint, p_floor_share float8, p_now timestamptz
) returns boolean language plpgsql volatile as $$
declare
  v_above boolean := p_vanished > greatest(p_floor_count, p_known * p_floor_share) or p_entries = 0 and p_known >= 3;
  v_open fenceline.held_removal;
  v_carried boolean;
begin
  select * into v_open from fenceline.held_removal where scope_id = p_scope and task = p_task and ended_at is null for update;
  if v_open.held_removal_id is not null and (not v_above or v_open.vanished_digest <> p_digest) then
    update fenceline.held_removal set ended_at = p_now where held_removal_id = v_open.held_removal_id;
    v_open := null;
  end if;
  if not v_above then return false; end if;
  if v_open.held_removal_id is null then
    insert into fenceline.held_removal (scope_id, task, scan_id, known, vanished, vanished_digest, held_at)
    values (p_scope, p_task, p_scan, p_known, p_vanished, p_digest, p_now);
    insert into fenceline.receipt (scope_id, kind, detail, at)
    values (p_scope, 'removal_held',
      jsonb_build_object('scan', p_scan, 'task', p_task, 'known', p_known, 'vanished', p_vanished), p_now);
    return true;
  end if;
  -- The scan that found it does not agree with itself.
  if p_scan <= v_open.scan_id then return true; end if;
  v_carried := v_open.confirmed_at is not null or p_vanished <= p_known * p_floor_share;
  update fenceline.held_removal
  set agreed_scan_id = coalesce(agreed_scan_id, p_scan), carried_out = v_carried,
    carried_out_scan_id = case when v_carried then p_scan end, ended_at = case when v_carried then p_now end
  where held_removal_id = v_open.held_removal_id;
  return not v_carried;
end $$;

-- A person confirms a removal the floor held back (S8); the next settled scan that agrees carries it out.
--   → 'confirmed' | 'unknown' (no such removal, or it has ended)
create or replace function fenceline.confirm_removal(p_removal bigint, p_by text) returns text language plpgsql volatile as $$
begin
  update fenceline.held_removal set confirmed_at = coalesce(confirmed_at, fenceline.now()), confirmed_by = coalesce(confirmed_by, p_by)
  where held_removal_id = p_removal and ended_at is null;
  if not found then return 'unknown'; end if;
  insert into fenceline.receipt (scope_id, kind, detail)
  select scope_id, 'removal_confirmed', jsonb_build_object('removal', p_removal, 'by', p_by)
  from fenceline.held_removal where held_removal_id = p_removal;
  return 'confirmed';
end $$;

-- One batch of what the published catalogue no longer lists: due for a fenced read of reason `vanished` (F7). What was
-- answered "not found" before this scan began, and once listed, is a confirmed deletion.
--   → the id to go on after; null: there are no more, the session is lost, or this is not a catalogue whose removals may go on
create or replace function fenceline.make_vanished_due(p_scope int, p_generation bigint, p_scan bigint, p_after bigint, p_limit int)
returns bigint language plpgsql volatile set enable_sort = off set enable_bitmapscan = off as $$
declare
  v_now timestamptz;
  v_ids bigint[];
  v_confirmed bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return null; end if;
  -- Another catalogue may follow between two statements, and then its entries would be forgotten: all would be absent.
  perform 1 from fenceline.scan x where x.scan_id = p_scan and x.scope_id = p_scope for key share;
  if not exists (
    select 1 from fenceline.policy_scope c join fenceline.scan x on x.scan_id = c.catalog_scan_id
    where c.scope_id = p_scope and x.scan_id = p_scan and not x.removal_held) then
    return null;
  end if;
  v_now := fenceline.now();
  v_ids := array(
    select s.subscription_id from fenceline.subscription s
    where s.scope_id = p_scope and s.subscription_id > p_after
      and s.listed_scan_id is not null and not s.excluded
      and (s.vanished_scan_id is null or s.hidden_because = 'tombstone_pending')
      and not exists (select 1 from fenceline.scan_entry e where e.scan_id = p_scan and e.resource_id = s.resource_id)
    order by s.subscription_id limit p_limit for no key update of s);
  v_confirmed := array(
    select s.subscription_id from fenceline.subscription s join fenceline.scan x on x.scan_id = p_scan
    where s.subscription_id = any (v_ids) and s.lifecycle = 'ACTIVE' and s.hidden_because = 'tombstone_pending'
      and s.not_found_at < x.started_at);
  with vanished as (
    update fenceline.subscription s
    set vanished_scan_id = p_scan,
      due_at = case when s.lifecycle = 'ACTIVE' and s.hidden_because is distinct from 'tombstoned' then fenceline.due_by(s, v_now) else s.due_at end
    where s.subscription_id = any (v_ids) and s.vanished_scan_id is null
    returning s.subscription_id)
  insert into fenceline.receipt (scope_id, subscription_id, kind, detail, at)
  select p_scope, subscription_id, 'vanished', jsonb_build_object('scan', p_scan), v_now from vanished;
  perform fenceline.confirm_tombstones(p_scope, v_confirmed, 'absent from a settled scan', v_now);
  return v_ids[p_limit];
end $$;
