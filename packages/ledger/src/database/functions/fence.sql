-- The scope fence (P2): an advisory transaction lock on a policy scope. Shared for discover, issue, accept, confirm and grant;
-- exclusive for revoke, lift, takeover and stream break. Whoever takes it decides in the *next* statement, which
-- sees everything that committed before. Order of all locks: subject → scopes by id → catalogue → revocation → session → resource →
-- subscription by id → entry group by id → edge → version by id and ordinal → outbox by id and index → the scope's own row.
-- Many rows of one kind are locked in order before they are updated or deleted: an update comes to them as they lie.
--
-- The first key carries the schema's name: ledgers in one database have fences of their own.

-- "The next statement sees it" holds under READ COMMITTED alone: any other isolation decides from a snapshot older than the
-- lock, and would accept what was revoked while it waited.
create or replace function fenceline.require_read_committed() returns void language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'the ledger works under READ COMMITTED, and this transaction is %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state', hint = 'Set default_transaction_isolation to ''read committed'' for this pool.';
  end if;
end $$;

-- Waits for exclusive holders of the scope only.
create or replace function fenceline.fence_shared(p_scope int) returns void language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then perform fenceline.require_read_committed(); end if;
  perform pg_advisory_xact_lock_shared(hashtext('fenceline.policy_scope'), p_scope);
end $$;

-- Waits for every holder of the scope; later shared ones queue behind it, so that a stream of readers starves nobody.
create or replace function fenceline.fence_exclusive(p_scope int) returns void language plpgsql volatile as $$
begin
  perform fenceline.require_read_committed();
  perform pg_advisory_xact_lock(hashtext('fenceline.policy_scope'), p_scope);
end $$;

-- Taken shared where a policy scope of the subject is created, so that it takes in the standing revocations of every source.
create or replace function fenceline.fence_subject_shared(p_subject bigint) returns void language plpgsql volatile as $$
begin
  perform fenceline.require_read_committed();
  perform pg_advisory_xact_lock_shared(hashtext('fenceline.subject'), (p_subject % 2147483647)::int);
end $$;

-- Taken before the scope fences by a revocation of every source, and by its lift.
create or replace function fenceline.fence_subject_exclusive(p_subject bigint) returns void language plpgsql volatile as $$
begin
  perform fenceline.require_read_committed();
  perform pg_advisory_xact_lock(hashtext('fenceline.subject'), (p_subject % 2147483647)::int);
end $$;

-- Taken shared by who works by a scope's catalogue, and exclusively by who changes it or calls it out of date; after the scope fence.
-- Not the scope's own row: what suspends or resumes a scope comes to that with its subscriptions held, and who works by the
-- catalogue comes to those.
create or replace function fenceline.fence_catalogue_shared(p_scope int) returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock_shared(hashtext('fenceline.catalogue'), p_scope);
end $$;

create or replace function fenceline.fence_catalogue_exclusive(p_scope int) returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(hashtext('fenceline.catalogue'), p_scope);
end $$;

-- Whether a standing revocation of the subject covers what has these deny hashes. The hash decides alone: two texts that
-- meet in 64 bits of SHA-256 would deny too much, never too little.
--   p_role  'reader' or 'audience'
create or replace function fenceline.is_revoked(p_subject bigint, p_deny bigint[], p_role text)
returns boolean language sql stable as $$
  select exists (
    select 1 from fenceline.revocation_cover c
    where c.hash = any (p_deny) and c.subject_id = p_subject
      and case p_role when 'reader' then c.as_reader else c.as_audience end)
$$;

-- F2: the newest revocation or lift of a reader that covers a resource; 0 where there was none.
-- This and session_stands are plpgsql, which keeps the plan of a query; a function in SQL is planned anew in every statement.
-- Without statistics the planner takes revocations for few, and would read all of them for each resource.
create or replace function fenceline.policy_epoch_of(p_subject bigint, p_resource bigint) returns bigint
language plpgsql stable set enable_seqscan = off as $$
begin
  return coalesce(max(e.policy_epoch), 0)
    from fenceline.resource r join fenceline.revocation_epoch e on e.hash = any (r.deny_hashes)
    where r.resource_id = p_resource and e.subject_id = p_subject;
end $$;

-- Raises the epochs of texts to those of the revocations they belong to (parallel). Called by the triggers of revocation_cover
-- alone, whose rows come with a revocation and go with its lift, which has raised the epoch by then.
create or replace function fenceline.record_policy_epochs(p_hashes bigint[], p_subjects bigint[], p_revocations bigint[])
returns void language sql volatile as $$
  insert into fenceline.revocation_epoch as e (hash, subject_id, policy_epoch)
  select i.hash, i.subject_id, max(v.policy_epoch)
  from unnest(p_hashes, p_subjects, p_revocations) i (hash, subject_id, revocation_id)
  join fenceline.revocation v on v.revocation_id = i.revocation_id
  group by i.hash, i.subject_id order by i.hash, i.subject_id
  on conflict (hash, subject_id) do update set policy_epoch = greatest(e.policy_epoch, excluded.policy_epoch)
$$;

-- Whether the holder may write anything: its generation is the scope's, and its lease stands by the database's clock.
-- Ask after the fence, in a statement of its own.
create or replace function fenceline.session_stands(p_scope int, p_generation bigint) returns boolean
language plpgsql volatile as $$
begin
  return exists (
    select 1 from fenceline.policy_scope c
    join fenceline.session x on x.scope_id = c.scope_id and x.generation = c.session_generation
    where c.scope_id = p_scope and c.session_generation = p_generation
      and x.ended_at is null and x.expires_at > fenceline.now());
end $$;

-- A duration with up to a share of jitter to either side, the same for the same key and salt: no two resources stay in step,
-- and a simulation can be replayed.
create or replace function fenceline.jittered(p_ms bigint, p_jitter float8, p_key bigint, p_salt bigint)
returns interval language sql immutable as $$
  select make_interval(secs => p_ms / 1000.0
    * (1 + p_jitter * ((hashint8extended(p_key, p_salt) % 1000000) / 1000000.0)))
$$;

create or replace function fenceline.milliseconds(p_ms bigint) returns interval language sql immutable as $$
  select make_interval(secs => p_ms / 1000.0)
$$;
