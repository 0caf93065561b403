-- The scope fence (P2): an advisory transaction lock on a policy scope. Shared for discover, issue, accept, confirm and grant;
-- exclusive for revoke, lift, takeover and stream break. Whoever takes it decides in the *next* statement, which
-- sees everything that committed before. Order of all locks: subject → scopes by id → revocation → resource →
-- subscription by id → entry group by id → edge → outbox.
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
  perform fenceline.require_read_committed();
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
create or replace function fenceline.policy_epoch_of(p_subject bigint, p_resource bigint) returns bigint language sql stable as $$
  select coalesce(max(v.policy_epoch), 0)
  from fenceline.resource r
  join fenceline.revocation v on v.subject_id = p_subject and (v.source_id is null or v.source_id = r.source_id)
  where r.resource_id = p_resource and v.role <> 'audience'
    and (r.segment_key >= v.key_from and r.segment_key < v.key_to or r.match_key >= v.key_from and r.match_key < v.key_to
      or r.segment_key >= v.match_from and r.segment_key < v.match_to or r.match_key >= v.match_from and r.match_key < v.match_to)
$$;

-- Whether the holder may write anything: its generation is the scope's, and its lease stands by the database's clock.
-- Ask after the fence, in a statement of its own.
create or replace function fenceline.session_stands(p_scope int, p_generation bigint) returns boolean language sql stable as $$
  select exists (
    select 1 from fenceline.policy_scope c
    join fenceline.session x on x.scope_id = c.scope_id and x.generation = c.session_generation
    where c.scope_id = p_scope and c.session_generation = p_generation
      and x.ended_at is null and x.expires_at > fenceline.now())
$$;

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
