-- Revocations (P1 to P5).
--
-- 1. P2: effective when the row commits. The guard and every fence ask `revocation_cover`, not the state of other rows.
-- 2. Batches hold the revocation's row and stop when it was lifted; a lift holds the same row. So no batch works for a
--    revocation that does not stand, and the row can be finished without upgrading a lock.
-- 3. What a revocation has to see purged is in `revocation_group`: groups that it found dead and not yet purged. Nothing
--    covered is confirmed after it committed, so the set is complete when every edge is marked. What is intended later is
--    dead from the start and never shown; the purge path takes it when its writer's lease has ended (P4).

-- Revokes.
--   p_request_id  idempotency key
--   p_source      null: every source
--   p_subject, p_role, p_scope_text, p_reason, p_requested_by  as asked
--   p_key_from .. p_match_to  ranges of the scope's texts (uri-scope.ts)
--   p_hashes      hashes of the scope's texts
--   p_nothing_covered  whether it covers nothing known (P1), where that was found before; else `note_coverage` says so afterwards
-- Result: outcome `revoked`, `known` (this request was made before), `request_id_reused`; and the revocation.
create or replace function fenceline.revoke(
  p_request_id text, p_source int, p_subject text, p_role fenceline.revocation_role, p_scope_text text, p_reason text,
  p_requested_by text, p_key_from text, p_key_to text, p_match_from text, p_match_to text, p_hashes bigint[],
  p_nothing_covered boolean default false, out outcome text, out id bigint
)
language plpgsql volatile as $$
declare
  v_subject bigint := fenceline.ensure_subject(p_subject);
  v_scopes int[];
  v_epoch bigint;
begin
  v_scopes := fenceline.fence_revocation(p_source, v_subject);
  select v.revocation_id,
         case when v.source_id is not distinct from p_source and v.subject_id = v_subject and v.role = p_role
                and (v.key_from, v.key_to, v.match_from, v.match_to) = (p_key_from, p_key_to, p_match_from, p_match_to)
                and v.reason = p_reason
           then 'known' else 'request_id_reused' end
  into id, outcome
  from fenceline.revocation v where v.request_id = p_request_id;
  if found then
    return;
  end if;

  v_epoch := fenceline.next_policy_epoch(p_source, v_subject, v_scopes);
  update fenceline.policy_scope
  set policy_epoch = v_epoch, standing_revocations = standing_revocations + 1
  where scope_id = any (v_scopes);
  insert into fenceline.revocation
    (request_id, source_id, subject_id, role, scope_text, match_from, match_to, key_from, key_to, reason, requested_by,
     policy_epoch, nothing_covered)
  values (p_request_id, p_source, v_subject, p_role, p_scope_text, p_match_from, p_match_to, p_key_from, p_key_to,
          p_reason, p_requested_by, v_epoch, p_nothing_covered)
  on conflict (request_id) do nothing
  returning revocation_id into id;
  if id is null then
    -- The same request of another subject or source won while this one held other fences; nothing of this one may stay.
    raise exception 'the request % was made before with other contents', quote_literal(p_request_id)
      using errcode = 'unique_violation', column = 'request_id', hint = 'Use a new request_id for a new request.';
  end if;
  insert into fenceline.revocation_cover (hash, subject_id, revocation_id, as_reader, as_audience)
  select h.hash, v_subject, id, p_role <> 'audience', p_role <> 'reader' from unnest(p_hashes) h (hash);
  insert into fenceline.receipt (scope_id, kind, detail)
  select p.scope_id, 'revoked', jsonb_build_object('revocation', id, 'policyEpoch', p.policy_epoch)
  from fenceline.policy_scope p where p.scope_id = any (v_scopes);
  perform fenceline.announce_revocation(id);
  outcome := 'revoked';
end $$;

-- The exclusive fences of a revocation or a lift, in order; the scope of a single source is created where it is missing.
-- Result: the scopes.
create or replace function fenceline.fence_revocation(p_source int, p_subject bigint) returns int[]
language plpgsql volatile as $$
declare
  v_scopes int[];
begin
  if p_source is null then
    perform fenceline.fence_subject_exclusive(p_subject);
    v_scopes := array(select p.scope_id from fenceline.policy_scope p where p.subject_id = p_subject order by p.scope_id);
  else
    v_scopes := array[fenceline.ensure_policy_scope(p_source, p_subject)];
  end if;
  perform fenceline.fence_exclusive(s.scope_id) from unnest(v_scopes) s (scope_id);
  return v_scopes;
end $$;

-- Answers whether a revocation covers anything known (P1). After it took effect, and outside the fence: a reader of few
-- resources among many of others takes 25 us for each of these.
create or replace function fenceline.note_coverage(p_revocation bigint) returns void
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_nothing boolean := (select fenceline.covers_nothing_known(v) from fenceline.revocation v where v.revocation_id = p_revocation);
begin
  update fenceline.revocation set nothing_covered = v_nothing
  where revocation_id = p_revocation and coalesce(covered_resources, 0) = 0;
end $$;

-- The policy epoch of a revocation or a lift that holds the exclusive fences of these scopes: above every one that covers
-- anything in them, also where scopes of several sources had come to different ones (F2).
create or replace function fenceline.next_policy_epoch(p_source int, p_subject bigint, p_scopes int[]) returns bigint
language sql stable as $$
  select 1 + greatest(
    (select max(p.policy_epoch) from fenceline.policy_scope p where p.scope_id = any (p_scopes)),
    (select max(v.policy_epoch) from fenceline.revocation v
     where v.subject_id = p_subject and v.source_id is null and p_source is null),
    0)
$$;

-- NOTHING_COVERED (P1): the subject read nothing in the range, and no grant to it overlaps the range.
create or replace function fenceline.covers_nothing_known(v fenceline.revocation) returns boolean
language sql stable as $$
  select not exists (
      -- A subject that never held a session read nothing: an audience, of which there are many.
      select 1 from fenceline.policy_scope p
      join fenceline.resource q on q.source_id = p.source_id
      where p.subject_id = v.subject_id and (v.source_id is null or p.source_id = v.source_id) and p.session_generation > 0
        and left(q.match_key, 600) >= left(v.match_from, 600) and left(q.match_key, 600) <= left(v.match_to, 600)
        and q.match_key >= v.match_from and q.match_key < v.match_to
        and fenceline.was_read_in(p.scope_id, q.resource_id))
    and not exists (
      select 1 from fenceline.policy_scope p
      join fenceline.resource q on q.source_id = p.source_id
      where p.subject_id = v.subject_id and (v.source_id is null or p.source_id = v.source_id) and p.session_generation > 0
        and left(q.segment_key, 600) >= left(v.key_from, 600) and left(q.segment_key, 600) <= left(v.key_to, 600)
        and q.segment_key >= v.key_from and q.segment_key < v.key_to
        and fenceline.was_read_in(p.scope_id, q.resource_id))
    and (v.role = 'reader' or not exists (
      select 1 from fenceline.access_grant g
      where g.audience_id = v.subject_id and (v.source_id is null or g.source_id = v.source_id)
        and (g.match_prefix >= v.match_from and g.match_prefix <= v.match_to
          or starts_with(v.match_from, g.match_prefix) or starts_with(v.match_to, g.match_prefix))))
$$;

-- Whether a resource is subscribed in a scope, or a part of what is (F5).
create or replace function fenceline.was_read_in(p_scope int, p_resource bigint) returns boolean
language sql stable as $$
  select exists (
      select 1 from fenceline.subscription s where s.resource_id = p_resource and s.scope_id = p_scope)
    or exists (
      select 1 from fenceline.group_root r
      where r.part_id = p_resource and r.part_id <> r.resource_id and r.scope_id = p_scope)
    or exists (
      select 1 from fenceline.body b join fenceline.subscription s using (subscription_id)
      where b.part_id = p_resource and s.scope_id = p_scope)
$$;

-- Completes a revocation whose batches are done and whose groups are purged; the caller holds its row.
create or replace function fenceline.complete_revocation(p_revocation bigint) returns void
language sql volatile as $$
  update fenceline.revocation v
  set completed_at = coalesce(v.completed_at, fenceline.now()),
      state = case when exists (
          select 1 from fenceline.revocation_export x join fenceline.export e using (export_id)
          where x.revocation_id = v.revocation_id and e.acknowledged_at is null)
        then 'COMPLETE_EXCEPT_EXPORTS'::fenceline.revocation_state else 'COMPLETE' end
  where v.revocation_id = p_revocation and v.state in ('EFFECTIVE', 'COMPLETE_EXCEPT_EXPORTS')
    and v.closed_all and v.marked_all
    and not exists (
      select 1 from fenceline.revocation_group r join fenceline.entry_group g using (group_id)
      where r.revocation_id = v.revocation_id and fenceline.awaits_purge(g))
$$;

-- Whether a revocation has to wait for a group: not yet purged, and not held by another reader who attached to it since.
create or replace function fenceline.awaits_purge(g fenceline.entry_group) returns boolean
language sql stable as $$
  select g.state <> 'PURGED' and (g.state <> 'PRESENT' or fenceline.is_group_dead(g.group_id))
$$;

-- Lifts a revocation (P2): from the commit on it denies nothing. What it closed is reopened by `advance_revocation`, batch by
-- batch; the exclusive fences are held for this small transaction alone (0.46 s when 20,000 were reopened inside it).
-- Result: `lifted` (also when it was lifted before) or `unknown`.
create or replace function fenceline.lift_revocation(p_revocation bigint) returns text
language plpgsql volatile as $$
declare
  v fenceline.revocation;
  v_scopes int[];
begin
  select * into v from fenceline.revocation where revocation_id = p_revocation;
  if not found then
    return 'unknown';
  end if;
  v_scopes := fenceline.fence_revocation(v.source_id, v.subject_id);
  select * into v from fenceline.revocation where revocation_id = p_revocation for no key update;
  if v.state = 'LIFTED' then
    return 'lifted';
  end if;
  v.policy_epoch := fenceline.next_policy_epoch(v.source_id, v.subject_id, v_scopes);
  update fenceline.policy_scope
  set policy_epoch = v.policy_epoch, standing_revocations = standing_revocations - 1
  where scope_id = any (v_scopes);
  -- In this order: what covers takes its epoch from the revocation's row when it goes (F2).
  update fenceline.revocation
  set state = 'LIFTED', lifted_at = fenceline.now(), policy_epoch = v.policy_epoch, reopening = v.role <> 'audience'
  where revocation_id = p_revocation;
  delete from fenceline.revocation_cover where revocation_id = p_revocation;
  insert into fenceline.receipt (scope_id, kind, detail)
  select p.scope_id, 'lifted', jsonb_build_object('revocation', p_revocation, 'policyEpoch', p.policy_epoch)
  from fenceline.policy_scope p where p.scope_id = any (v_scopes);
  perform fenceline.announce_revocation(p_revocation);
  return 'lifted';
end $$;

-- Tells running pools that a revocation has batches to be done.
create or replace function fenceline.announce_revocation(p_revocation bigint) returns void language sql volatile as $$
  select pg_notify('fenceline.wake', json_build_object('kind', 'revocation', 'revocationId', p_revocation)::text)
$$;

-- Revocations with what became of them, newest first.
--   p_revocation  one, or null for all
--   p_open        null: any state; true: still to be completed; false: the others
create or replace function fenceline.revocation_status(p_revocation bigint, p_open boolean)
returns table (revocation_id bigint, request_id text, state text, nothing_covered boolean, subject text, role text,
               source text, scope_text text, reason text, requested_by text, effective_at timestamptz,
               completed_at timestamptz, covered_resources int, batches_left boolean, stores json, exports int)
language sql stable as $$
  select v.revocation_id, v.request_id, v.state::text, v.nothing_covered, subj.name, v.role::text, src.name, v.scope_text,
         v.reason, v.requested_by, v.effective_at, v.completed_at, coalesce(v.covered_resources, 0),
         v.reopening or v.state = 'EFFECTIVE' and not (v.closed_all and v.marked_all), fenceline.revocation_stores(v.revocation_id),
         (select count(*)::int from fenceline.revocation_export x join fenceline.export e using (export_id)
          where x.revocation_id = v.revocation_id and e.acknowledged_at is null)
  from fenceline.revocation v
  join fenceline.subject subj using (subject_id)
  left join fenceline.source src using (source_id)
  where (p_revocation is null or v.revocation_id = p_revocation)
    and (p_open is null or (v.state in ('EFFECTIVE', 'COMPLETE_EXCEPT_EXPORTS')) = p_open)
  order by v.revocation_id desc
$$;
-- What a revocation has to see removed, per store, as JSON: entries, what remains, and what the remaining waits for (P5).
create or replace function fenceline.revocation_stores(p_revocation bigint) returns json
language sql stable as $$
  with waited as (
    select g.store_id, g.entries, fenceline.awaits_purge(g) as remains,
           case when fenceline.awaits_purge(g) then fenceline.purge_waits_for(g, fenceline.now()) end as because,
           case g.state when 'INTENT' then g.writer_lease_until else g.claim_until end as until
    from fenceline.revocation_group x join fenceline.entry_group g using (group_id)
    where x.revocation_id = p_revocation
  ), reasons as (
    select w.store_id, json_agg(json_build_object('because', w.because, 'entries', w.entries, 'until', w.until) order by w.because) as waits
    from (select store_id, because, sum(entries) as entries,
                 case when because <> 'due' then extract(epoch from max(until)) * 1000 end as until
          from waited where remains group by store_id, because) w
    group by w.store_id
  )
  select json_agg(s order by s.store)
  from (
    select st.name as store, sum(w.entries) as entries, coalesce(sum(w.entries) filter (where w.remains), 0) as remaining,
           (select extract(epoch from max(r.absent_at)) * 1000 from fenceline.purge_receipt r
            where r.revocation_id = p_revocation and r.store_id = st.store_id) as "absentAt",
           (select min(r.claim) from fenceline.purge_receipt r
            where r.revocation_id = p_revocation and r.store_id = st.store_id) as claim,
           st.failure, (select r.waits from reasons r where r.store_id = st.store_id) as waits
    from waited w join fenceline.store st using (store_id)
    group by st.store_id, st.name, st.failure) s
$$;

-- Why a group that must go is still there.
-- Result: `writer` (its writer's lease runs), `claimed` (a process is removing it), `failing` (the store failed; tried again
-- later), `due` (nobody took it: no process that runs removes from its store, or it is about to).
create or replace function fenceline.purge_waits_for(g fenceline.entry_group, p_now timestamptz) returns text
language sql immutable as $$
  select case
    when g.state = 'INTENT' then case when g.writer_lease_until > p_now then 'writer' else 'due' end
    when g.claim_until > p_now then case when g.claim_token is null then 'failing' else 'claimed' end
    else 'due' end
$$;

