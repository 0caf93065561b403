-- Sources and sessions. A session's generation is what later writes are fenced by; its lease decides who may begin something.

-- Registers a source or brings its settings up to date. A digest that changed leaves a receipt: the name points elsewhere now.
create or replace function fenceline.register_source(p_name text, p_endpoint_digest bytea, p_staleness_ms bigint)
returns int language plpgsql volatile as $$
declare
  v_source fenceline.source;
begin
  insert into fenceline.source (name, endpoint_digest, staleness_ms)
  values (p_name, p_endpoint_digest, coalesce(p_staleness_ms, 900000))
  on conflict (name) do nothing;
  select * into strict v_source from fenceline.source where name = p_name for update;
  if v_source.endpoint_digest <> p_endpoint_digest then
    insert into fenceline.receipt (kind, detail)
    values ('source_endpoint_changed', jsonb_build_object('source', p_name));
  end if;
  update fenceline.source
  set endpoint_digest = coalesce(p_endpoint_digest, endpoint_digest), staleness_ms = coalesce(p_staleness_ms, staleness_ms),
    retired_at = null
  where source_id = v_source.source_id
    and (retired_at is not null or endpoint_digest is distinct from coalesce(p_endpoint_digest, endpoint_digest)
      or staleness_ms <> coalesce(p_staleness_ms, staleness_ms));
  return v_source.source_id;
end $$;

-- How much of a source lives: what was accepted, is not deleted, and is not revoked for its reader.
create or replace function fenceline.living_resources(p_source text) returns bigint language sql stable as $$
  select count(*)
  from fenceline.source o
  join fenceline.policy_scope p using (source_id)
  join fenceline.subscription s using (scope_id)
  join fenceline.resource r on r.resource_id = s.resource_id
  where o.name = p_source and s.version_ordinal is not null and s.hidden_because is distinct from 'tombstoned'
    and (p.standing_revocations = 0 or not fenceline.is_revoked(p.subject_id, r.deny_hashes, 'reader'))
$$;

-- No configuration names a source any more, as somebody confirmed. Nothing else about it changes.
--   → 'retired' | 'unknown'
create or replace function fenceline.retire_source(p_name text) returns text language plpgsql volatile as $$
begin
  perform 1 from fenceline.source where name = p_name for update;
  if not found then return 'unknown'; end if;
  update fenceline.source set retired_at = fenceline.now() where name = p_name and retired_at is null;
  if found then
    insert into fenceline.receipt (kind, detail) values ('source_retired', jsonb_build_object('source', p_name));
  end if;
  return 'retired';
end $$;

-- Takes the session of a source under a reader. Exclusive: whoever is writing under the old generation ends first.
--   outcome  'opened' | 'held' (owner and expires_at tell by whom and until when) | 'source_unknown'
create or replace function fenceline.open_session(p_source text, p_reader text, p_owner text, p_lease_ms int)
returns table (
  outcome text, session_id bigint, scope_id int, source_id int, generation bigint, owner text, expires_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_source int;
  v_scope int;
  v_now timestamptz;
  v_holder fenceline.session;
  v_session fenceline.session;
begin
  select s.source_id into v_source from fenceline.source s where s.name = p_source;
  if v_source is null then
    return query select 'source_unknown', null::bigint, null::int, null::int, null::bigint, null::text, null::timestamptz;
    return;
  end if;
  v_scope := fenceline.ensure_policy_scope(v_source, fenceline.ensure_subject(p_reader));
  perform fenceline.fence_exclusive(v_scope);
  v_now := fenceline.now();
  select x.* into v_holder
  from fenceline.session x join fenceline.policy_scope c on c.scope_id = x.scope_id and c.session_generation = x.generation
  where x.scope_id = v_scope and x.ended_at is null;
  if v_holder.expires_at > v_now then
    return query select 'held', null::bigint, v_scope, v_source, null::bigint, v_holder.owner, v_holder.expires_at;
    return;
  end if;
  -- The session before its subscriptions: a revocation's batch shares the session, and then locks them.
  perform 1 from fenceline.session x where x.session_id = v_holder.session_id for no key update;
  if v_holder.session_id is not null then perform fenceline.lose_session(v_scope); end if;
  perform fenceline.leave_session(v_scope, v_holder.session_id, v_now);
  -- Sessions of a lost time line may have held a scope that had none yet in the backup (restore.sql). Of such a scope a restore takes
  -- no fence: one that begins an incarnation is waited for here.
  perform 1 from fenceline.policy_scope c cross join fenceline.identity i
  where c.scope_id = v_scope and c.session_generation = 0 for key share of i;
  update fenceline.policy_scope c
  set session_generation = 1 + case when c.session_generation = 0 and i.incarnation > 1 then fenceline.beyond_lost(0)
    else c.session_generation end
  from fenceline.identity i where c.scope_id = v_scope;
  insert into fenceline.session as x (scope_id, generation, owner, lease_ms, expires_at, started_at)
  select v_scope, c.session_generation, p_owner, p_lease_ms, v_now + fenceline.milliseconds(p_lease_ms), v_now
  from fenceline.policy_scope c where c.scope_id = v_scope
  returning x.* into v_session;
  insert into fenceline.receipt (scope_id, kind, detail)
  values (v_scope, 'session_opened', jsonb_build_object('generation', v_session.generation, 'owner', p_owner,
    'taken_over_from', v_holder.owner));
  return query
    select 'opened', v_session.session_id, v_scope, v_source, v_session.generation, v_session.owner, v_session.expires_at;
end $$;

-- What the end of a session leaves behind, under the exclusive fence: its streams carry nothing any more (U4), and an
-- unsubscription whose answer is unknown is settled by it (U9).
create or replace function fenceline.leave_session(p_scope int, p_session bigint, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
  v_unsettled bigint[];
begin
  update fenceline.session set ended_at = p_now where session_id = p_session and ended_at is null;
  update fenceline.stream set epoch = epoch + 1, broken_at = coalesce(broken_at, p_now) where scope_id = p_scope;
  v_unsettled := array(
    select s.subscription_id from fenceline.subscription s
    where s.scope_id = p_scope and s.lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN')
    order by s.subscription_id for no key update);
  perform fenceline.close_unsubscribed(v_unsettled, 'session_closed');
end $$;

-- A holder that lost its lease may still be connected to its server: what it was unsubscribing is unknown until the takeover
-- ends its session for it. Under the exclusive fence.
create or replace function fenceline.lose_session(p_scope int) returns void language plpgsql volatile as $$
declare
  v_unsubscribing bigint[];
begin
  v_unsubscribing := array(
    select s.subscription_id from fenceline.subscription s
    where s.scope_id = p_scope and s.lifecycle = 'UNSUBSCRIBING'
    order by s.subscription_id for no key update);
  update fenceline.subscription set lifecycle = 'UNSUBSCRIBE_UNKNOWN', lifecycle_event = 'session_lost'
  where subscription_id = any (v_unsubscribing);
end $$;

--   → 'held' | 'lost'
create or replace function fenceline.heartbeat(p_scope int, p_generation bigint) returns text language plpgsql volatile as $$
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'lost'; end if;
  update fenceline.session set expires_at = fenceline.now() + fenceline.milliseconds(lease_ms)
  where scope_id = p_scope and generation = p_generation;
  return 'held';
end $$;

--   → 'ended' | 'session_lost' (its lease or itself had ended, or another holder took over)
create or replace function fenceline.end_session(p_scope int, p_generation bigint) returns text language plpgsql volatile as $$
begin
  perform fenceline.fence_exclusive(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  perform fenceline.leave_session(p_scope, x.session_id, fenceline.now())
  from fenceline.session x where x.scope_id = p_scope and x.generation = p_generation;
  insert into fenceline.receipt (scope_id, kind, detail)
  values (p_scope, 'session_ended', jsonb_build_object('generation', p_generation));
  return 'ended';
end $$;

-- Keeps what was negotiated as a capability receipt (U1).
--   → 'recorded' | 'session_lost'
create or replace function fenceline.record_capabilities(p_scope int, p_generation bigint, p_negotiated jsonb)
returns text language plpgsql volatile as $$
declare
  v_session bigint;
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  update fenceline.session
  set server_name = p_negotiated #>> '{server,name}', server_version = p_negotiated #>> '{server,version}',
    protocol_version = p_negotiated ->> 'protocolVersion'
  where scope_id = p_scope and generation = p_generation
  returning session_id into v_session;
  insert into fenceline.capability_receipt (session_id, negotiated) values (v_session, p_negotiated);
  return 'recorded';
end $$;

-- A 401 makes the scope unverified (P7); resuming, or a read that is accepted, ends that.
--   p_cause  null: resume
--   → 'suspended' | 'resumed' | 'session_lost'
create or replace function fenceline.suspend_scope(p_scope int, p_generation bigint, p_cause text)
returns text language plpgsql volatile as $$
begin
  perform fenceline.fence_shared(p_scope);
  if not fenceline.session_stands(p_scope, p_generation) then return 'session_lost'; end if;
  if p_cause is null then
    perform fenceline.mark_resumed(p_scope, 'request', fenceline.now());
    return 'resumed';
  end if;
  perform fenceline.mark_suspended(p_scope, p_cause, fenceline.now());
  return 'suspended';
end $$;

-- suspended_at is the time of the last refusal or attempt: the next attempt counts from there.
create or replace function fenceline.mark_suspended(p_scope int, p_cause text, p_now timestamptz) returns void language plpgsql volatile as $$
begin
  -- Under the shared fence two refusals may come at once: the row's lock tells which one suspends.
  update fenceline.policy_scope set suspended_at = p_now where scope_id = p_scope and suspended_at is null;
  if found then
    insert into fenceline.receipt (scope_id, kind, detail, at)
    values (p_scope, 'suspended', jsonb_build_object('cause', left(p_cause, 500)), p_now);
    return;
  end if;
  update fenceline.policy_scope set suspended_at = p_now where scope_id = p_scope;
end $$;

create or replace function fenceline.mark_resumed(p_scope int, p_by text, p_now timestamptz) returns void language plpgsql volatile as $$
begin
  update fenceline.policy_scope set suspended_at = null where scope_id = p_scope and suspended_at is not null;
  if found then
    insert into fenceline.receipt (scope_id, kind, detail, at)
    values (p_scope, 'resumed', jsonb_build_object('by', p_by), p_now);
  end if;
end $$;
