-- Tasks that need completeness (S6): they take a proven snapshot, and ask about it again under the fence of every batch, so
-- that one which lost its proof meanwhile stops there. What was done before was right when it was done.
--
-- *Absent* is what was once listed, is not deleted, and is not in the snapshot. What was never listed is nobody's to conclude about
-- (F7), nor what a configuration leaves out, which is in no scan. The floor of S8 holds for these tasks as for a publication: an emptied list proves only what the server said.

-- Why a snapshot is none that may be used now; null: it is.
--   p_mark        of the ledger that made it
--   p_set_digest  of the scan it was made of
--   → 'another_ledger' | 'session_lost' | 'not_proven' | 'distrusted' | 'superseded' (by a later scan or catalogue) | 'list_changed'
create or replace function fenceline.snapshot_objection(
  p_scope int, p_generation bigint, p_scan bigint, p_set_digest bytea, p_mark text
) returns text language sql stable as $$
  select case
    when not exists (select 1 from fenceline.identity i where i.mark = p_mark) then 'another_ledger'
    when not fenceline.session_stands(p_scope, p_generation) then 'session_lost'
    when not exists (
      select 1 from fenceline.scan x
      where x.scan_id = p_scan and x.scope_id = p_scope and x.session_generation = p_generation
        and x.verdict = 'SNAPSHOT_PROVEN' and x.set_digest = p_set_digest) then 'not_proven'
    when exists (
      select 1 from fenceline.session s
      where s.scope_id = p_scope and s.generation = p_generation and s.snapshots_distrusted) then 'distrusted'
    when exists (select 1 from fenceline.scan x where x.scope_id = p_scope and x.scan_id > p_scan)
      or not exists (
        select 1 from fenceline.policy_scope c
        where c.scope_id = p_scope and c.catalog_scan_id = p_scan and c.catalog_verdict = 'SNAPSHOT_PROVEN') then 'superseded'
    when not exists (
      select 1 from fenceline.policy_scope c join fenceline.scan x on x.scan_id = p_scan
      where c.scope_id = p_scope and c.list_changed_number = x.list_changed_number) then 'list_changed'
  end
$$;

-- The catalogue of a session's scope, where it is a snapshot that may be used now.
create or replace function fenceline.proven_snapshot(p_scope int, p_generation bigint)
returns table (scan_id bigint, set_digest bytea, mark text, resources bigint, measured_at timestamptz)
language sql stable as $$
  select x.scan_id, x.set_digest, i.mark, x.entries, x.measured_at
  from fenceline.policy_scope c
  join fenceline.scan x on x.scan_id = c.catalog_scan_id
  cross join fenceline.identity i
  where c.scope_id = p_scope
    and fenceline.snapshot_objection(p_scope, p_generation, x.scan_id, x.set_digest, i.mark) is null
$$;

-- Weighs what a task is about to remove or revoke against the floor; batches go on only after it said 'allowed'.
--   objection  as snapshot_objection
--   held       the floor holds it back (S8): until a later proven snapshot agrees and a person confirmed it
create or replace function fenceline.weigh_absence(
  p_scope int, p_generation bigint, p_scan bigint, p_set_digest bytea, p_mark text, p_floor_count bigint, p_floor_share float8,
  out objection text, out held boolean, out known bigint, out absent bigint
) language plpgsql volatile as $$
declare
  v_gone record;
begin
  -- Before the fence, as in finish_publication.
  select * into v_gone from fenceline.absent_from_scan(p_scope, p_scan, true);
  perform fenceline.fence_shared(p_scope);
  perform fenceline.fence_catalogue_exclusive(p_scope);
  objection := fenceline.snapshot_objection(p_scope, p_generation, p_scan, p_set_digest, p_mark);
  if objection is not null then return; end if;
  known := v_gone.known;
  absent := v_gone.absent;
  -- What a person confirmed for the publication of this very snapshot needs no second confirmation.
  if exists (
    select 1 from fenceline.held_removal h
    where h.scope_id = p_scope and h.carried_out_scan_id = p_scan and h.vanished_digest = v_gone.absent_digest) then
    held := false;
    update fenceline.held_removal set ended_at = fenceline.now()
    where scope_id = p_scope and task = 'completeness' and ended_at is null;
  else
    held := fenceline.weigh_removal(
      p_scope, 'completeness', p_scan, v_gone.known, v_gone.absent, v_gone.absent_digest,
      (select x.entries from fenceline.scan x where x.scan_id = p_scan), p_floor_count, p_floor_share, fenceline.now());
  end if;
  update fenceline.scan x set absence_allowed = not held where x.scan_id = p_scan;
end $$;

-- As snapshot_objection, for a batch under the fence: holds the catalogue as it is until the transaction ends.
--   → also 'held' (weigh_absence did not allow it)
create or replace function fenceline.batch_objection(
  p_scope int, p_generation bigint, p_scan bigint, p_set_digest bytea, p_mark text
) returns text language plpgsql volatile as $$
begin
  perform fenceline.fence_catalogue_shared(p_scope);
  return coalesce(
    fenceline.snapshot_objection(p_scope, p_generation, p_scan, p_set_digest, p_mark),
    (select 'held' from fenceline.scan x where x.scan_id = p_scan and not x.absence_allowed));
end $$;

-- One batch of removing what is absent, without the second evidence that an unproven catalogue needs (F7). What is of the ACTIVE
-- family becomes a tombstone; what was never read is only marked as vanished.
--   objection  as batch_objection
--   last_id    the subscription to go on after; null: there are no more
create or replace function fenceline.remove_absent(
  p_scope int, p_generation bigint, p_scan bigint, p_set_digest bytea, p_mark text, p_after bigint, p_limit int,
  out objection text, out removed int, out last_id bigint
) language plpgsql volatile set enable_sort = off set enable_bitmapscan = off as $$
declare
  v_now timestamptz;
  v_ids bigint[];
  v_active bigint[];
begin
  perform fenceline.fence_shared(p_scope);
  objection := fenceline.batch_objection(p_scope, p_generation, p_scan, p_set_digest, p_mark);
  if objection is not null then return; end if;
  v_now := fenceline.now();
  v_ids := array(
    select s.subscription_id from fenceline.subscription s
    where s.scope_id = p_scope and s.subscription_id > p_after and s.listed_scan_id is not null and not s.excluded
      and s.hidden_because is distinct from 'tombstoned'
      and not exists (select 1 from fenceline.scan_entry e where e.scan_id = p_scan and e.resource_id = s.resource_id)
    order by s.subscription_id limit p_limit for no key update of s);
  last_id := v_ids[p_limit];
  with vanished as (
    update fenceline.subscription s set vanished_scan_id = p_scan
    where s.subscription_id = any (v_ids) and s.vanished_scan_id is null
    returning s.subscription_id)
  insert into fenceline.receipt (scope_id, subscription_id, kind, detail, at)
  select p_scope, subscription_id, 'vanished', jsonb_build_object('scan', p_scan), v_now from vanished;
  v_active := array(
    select s.subscription_id from fenceline.subscription s
    where s.subscription_id = any (v_ids) and s.lifecycle = 'ACTIVE' order by s.subscription_id);
  perform fenceline.confirm_tombstones(p_scope, v_active, 'absent from a proven snapshot', v_now);
  removed := cardinality(v_active);
end $$;

-- A page of what is absent, for revoking it one by one; also what is closed, whose content stays (U10).
create or replace function fenceline.absent_resources(p_scope int, p_scan bigint, p_after bigint, p_limit int)
returns table (subscription_id bigint, resource_id bigint, uri text, key_digest bytea)
language plpgsql stable set enable_sort = off set enable_bitmapscan = off as $$
begin
  return query
    select s.subscription_id, s.resource_id, s.uri, r.key_digest
    from fenceline.subscription s join fenceline.resource r on r.resource_id = s.resource_id
    where s.scope_id = p_scope and s.subscription_id > p_after and s.listed_scan_id is not null and not s.excluded
      and s.hidden_because is distinct from 'tombstoned'
      and not exists (select 1 from fenceline.scan_entry e where e.scan_id = p_scan and e.resource_id = s.resource_id)
    order by s.subscription_id limit p_limit;
end $$;

-- Revokes one absent resource by its URI, for the reader that listed or for an audience.
--   p_resource             it has to be absent still
--   p_request_id …         as fenceline.revoke takes them
--   outcome  'revoked' | 'known' | 'request_id_reused' | 'listed' (it is not absent), or as batch_objection
create or replace function fenceline.revoke_absent(
  p_scope int, p_generation bigint, p_scan bigint, p_set_digest bytea, p_mark text, p_resource bigint,
  p_request_id text, p_subject text, p_role fenceline.revocation_role, p_scope_text text, p_reason text, p_requested_by text,
  p_key_from text, p_key_to text, p_match_from text, p_match_to text, p_hashes bigint[]
) returns text language plpgsql volatile as $$
declare
  v_source int := (select c.source_id from fenceline.policy_scope c where c.scope_id = p_scope);
  v_revoked int := fenceline.ensure_policy_scope(v_source, fenceline.ensure_subject(p_subject));
  v_outcome text;
begin
  -- Both scopes by id, as everybody takes them; the one that is revoked in exclusively.
  if p_scope < v_revoked then perform fenceline.fence_shared(p_scope); end if;
  perform fenceline.fence_exclusive(v_revoked);
  if p_scope > v_revoked then perform fenceline.fence_shared(p_scope); end if;
  v_outcome := fenceline.batch_objection(p_scope, p_generation, p_scan, p_set_digest, p_mark);
  if v_outcome is not null then return v_outcome; end if;
  if exists (select 1 from fenceline.scan_entry e where e.scan_id = p_scan and e.resource_id = p_resource) then return 'listed'; end if;
  select r.outcome into v_outcome
  from fenceline.revoke(p_request_id, v_source, p_subject, p_role, p_scope_text, p_reason, p_requested_by, p_key_from, p_key_to,
    p_match_from, p_match_to, p_hashes) r;
  return v_outcome;
end $$;
