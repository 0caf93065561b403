-- What follows the lift of a revocation (P2), batch by batch: what it closed is reopened with a new generation and due at once,
-- what it took a part of is read again. Served again when a read of the new generation is accepted; unchanged content makes
-- a new version (F6).
--
-- A batch holds the scopes' fences shared: a revocation that comes meanwhile waits, and then covers what was reopened; one
-- that stands is seen, and keeps what it covers closed.

-- One batch; the order of its locks is that of fence.sql, and the revocation's row keeps a second worker's batch apart.
-- Result: `more` or `done`.
create or replace function fenceline.reopen_batch(p_revocation bigint, p_limit int) returns text
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_closed bigint[];
  v_partly bigint[];
begin
  v_closed := array(
    select s.subscription_id from fenceline.subscription s
    where s.closed_by = p_revocation and s.lifecycle = 'CLOSED' order by s.subscription_id limit p_limit);
  v_partly := array(
    select x.subscription_id from fenceline.revocation_part x
    where x.revocation_id = p_revocation order by x.subscription_id limit p_limit - cardinality(v_closed));
  perform fenceline.fence_scopes_of(v_closed || v_partly);
  perform 1 from fenceline.revocation v where v.revocation_id = p_revocation for no key update;
  if cardinality(v_closed || v_partly) = 0 then
    -- A lift stands, and what is closed afterwards is reopened by who closes it: nothing can be left.
    update fenceline.revocation set reopening = false where revocation_id = p_revocation and reopening;
    return 'done';
  end if;
  perform 1 from fenceline.subscription s
    where s.subscription_id = any (v_closed || v_partly) order by s.subscription_id for no key update;
  perform fenceline.reopen_subscriptions(p_revocation, v_closed);
  update fenceline.subscription s set due_at = fenceline.due_by(s, fenceline.now())
  where s.subscription_id = any (v_partly) and s.lifecycle = 'ACTIVE' and s.hidden_because is distinct from 'tombstoned';
  delete from fenceline.revocation_part where revocation_id = p_revocation and subscription_id = any (v_partly);
  perform fenceline.announce_discovery(array(
    select distinct s.scope_id from fenceline.subscription s where s.subscription_id = any (v_closed || v_partly)));
  return 'more';
end $$;

-- Takes note of parts that a standing revocation of their reader keeps out of what is accepted or indexed, so that its lift reads
-- them again. The caller holds the fences of the scopes and the rows of the subscriptions.
--   p_subscriptions, p_parts  pairwise
create or replace function fenceline.note_parts_left_out(p_subscriptions bigint[], p_parts bigint[]) returns void
language sql volatile set enable_seqscan = off as $$
  insert into fenceline.revocation_part (revocation_id, subscription_id)
  select distinct c.revocation_id, i.subscription_id
  from unnest(p_subscriptions, p_parts) i (subscription_id, part_id)
  join fenceline.subscription s using (subscription_id)
  join fenceline.policy_scope p using (scope_id)
  join fenceline.resource part on part.resource_id = i.part_id
  join fenceline.revocation_cover c on c.hash = any (part.deny_hashes) and c.subject_id = p.subject_id and c.as_reader
  order by 1, 2
  on conflict do nothing
$$;

-- Reopens, of these subscriptions, those that a lifted revocation closed. What another standing one covers stays closed and is
-- that one's to reopen; what was to be reconciled still is (F10); what is not CLOSED yet is left to who settles it (U9).
-- The caller holds the fences of their scopes (shared is enough) and their rows.
-- Result: those reopened.
create or replace function fenceline.reopen_subscriptions(p_revocation bigint, p_subscriptions bigint[]) returns bigint[]
language plpgsql volatile as $$
declare
  v_ids bigint[];
begin
  v_ids := array(
    select s.subscription_id
    from fenceline.revocation v
    join fenceline.subscription s on s.closed_by = v.revocation_id
    where v.revocation_id = p_revocation and v.state = 'LIFTED' and s.subscription_id = any (p_subscriptions)
      and s.lifecycle = 'CLOSED');
  with successor as (
    select s.subscription_id, min(c.revocation_id) as revocation_id
    from fenceline.subscription s
    join fenceline.policy_scope p using (scope_id)
    join fenceline.resource q using (resource_id)
    join fenceline.revocation_cover c on c.subject_id = p.subject_id and c.as_reader and c.hash = any (q.deny_hashes)
    where s.subscription_id = any (v_ids)
    group by s.subscription_id
  )
  update fenceline.subscription s set closed_by = n.revocation_id
  from successor n where s.subscription_id = n.subscription_id;
  v_ids := array(
    select s.subscription_id from fenceline.subscription s
    where s.subscription_id = any (v_ids) and s.closed_by = p_revocation order by s.subscription_id);
  update fenceline.subscription s
  set lifecycle = 'SUBSCRIBING', lifecycle_event = 'lifted', generation = s.generation + 1, closed_by = null, close_ordinal = null,
      close_policy_epoch = null, digest = null, session_generation = null, due_at = fenceline.now()
  where s.subscription_id = any (v_ids);
  update fenceline.subscription s
  set lifecycle = 'RECONCILIATION_REQUIRED', lifecycle_event = 'identity_unclear', due_at = null
  where s.subscription_id = any (v_ids) and s.hidden_because = 'unreconciled';
  return v_ids;
end $$;

-- Tells the holders of these scopes that there is something to open.
create or replace function fenceline.announce_discovery(p_scopes int[]) returns void language sql volatile as $$
  select pg_notify('fenceline.wake',
                   json_build_object('kind', 'discovery', 'source', src.name, 'reader', reader.name)::text)
  from fenceline.policy_scope p
  join fenceline.source src using (source_id) join fenceline.subject reader using (subject_id)
  where p.scope_id = any (p_scopes)
$$;
