-- A restored backup: recognised by what a witness outside the database saw of it, and begun anew as the next *incarnation*.
--
-- 1. A witness learns a position only after the transaction that counted its look is durable, and with it every sequence
--    as it stood then. So a database that crashed is never behind its witness, and one that is behind it has lost commits.
-- 2. Nothing is used twice. Sequences and counters jump past everything the lost time line can have used: by at least 2^32, and at
--    least to 65,536 for each second since 2026, so that the same backup restored twice jumps further the second time,
--    also where nobody saw the first. All stay below 2^53 for some 4,000 years.
--    All in one transaction, though it rewrites every subscription: until its ordinal has jumped an issued read would take one,
--    and an accepted version a lineage id, that the lost time line may have given away already; and what the transaction has
--    not reached would still be served as verified. It holds the fence of every scope that was ever read under, which takes a
--    lock each: beyond some 6,000 of them (`max_locks_per_transaction` × connections) it fails whole, names that setting, and is
--    tried again by the next one to open the ledger.
-- 3. What was accepted is served as unverified until it is read again; no claim, read or session of before counts any more.

-- Where the ledger stands, for keeping elsewhere. Counts the look; the answer is durable when the statement has ended.
create or replace function fenceline.look_at_position() returns json language plpgsql volatile as $$
declare
  v fenceline.identity;
begin
  perform set_config('synchronous_commit', 'on', true);
  update fenceline.identity set witness_number = witness_number + 1 returning * into v;
  return json_build_object('mark', v.mark, 'incarnation', v.incarnation, 'number', v.witness_number,
    'sequences', (select json_object_agg(s.name, s.last_value) from fenceline.sequences_of_ledger() s));
end $$;

-- The sequences of the ledger's schema, those of identity columns included, as far as they were ever drawn from.
create or replace function fenceline.sequences_of_ledger()
returns table (name text, sequence regclass, type text, last_value bigint) language sql volatile as $$
  select c.relname::text, c.oid::regclass, format_type(q.seqtypid, null), pg_sequence_last_value(c.oid)
  from pg_catalog.pg_class c join pg_catalog.pg_sequence q on q.seqrelid = c.oid
  where c.relnamespace = (select i.relnamespace from pg_catalog.pg_class i where i.oid = 'fenceline.identity'::regclass)
$$;

-- Whether the database is behind a position that was seen of it.
create or replace function fenceline.is_behind(p_seen jsonb) returns boolean language sql volatile as $$
  select (p_seen ->> 'incarnation')::int > i.incarnation or (p_seen ->> 'number')::bigint > i.witness_number
    or exists (
      select 1 from fenceline.sequences_of_ledger() s
      where (p_seen #>> array['sequences', s.name])::bigint > coalesce(s.last_value, 0))
  from fenceline.identity i
$$;

-- The first value that nothing of a lost time line can have used.
--   p_value  the highest that is known of
create or replace function fenceline.beyond_lost(p_value bigint) returns bigint language sql volatile as $$
  select greatest(p_value + 4294967296, fenceline.seconds_since_2026() * 65536)
$$;

-- By the machine's clock, not by the ledger's: tests stop that one.
create or replace function fenceline.seconds_since_2026() returns bigint language sql volatile as $$
  select floor(extract(epoch from clock_timestamp() - timestamptz '2026-01-01 00:00:00Z'))::bigint
$$;

-- Begins the next incarnation, if the evidence holds: it is looked at again under the lock, so that of two processes one does it.
--   p_evidence  'position' (p_seen: a position that was seen) | 'entry' (p_entry: the number of an entry of this ledger found in a
--               store) | 'revocation' (p_request: one that was answered, and is not known) | 'operator' (p_by says that a
--               backup was restored)
-- Result: outcome `restored`, `not_restored` (the evidence does not hold), `other_ledger` (it is a position of another one); and how
-- many subscriptions are unverified and reads are lost.
create or replace function fenceline.begin_incarnation(p_evidence text, p_seen jsonb, p_entry bigint, p_request text, p_by text)
returns table (outcome text, incarnation int, subscriptions bigint, reads_lost bigint) language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_before fenceline.identity;
  v_incarnation int;
  v_scopes int[];
  v_now timestamptz;
  v_subscriptions bigint;
  v_reads bigint;
begin
  perform fenceline.require_read_committed();
  select * into v_before from fenceline.identity for update;
  if p_seen ->> 'mark' <> v_before.mark then
    return query select 'other_ledger', v_before.incarnation, 0::bigint, 0::bigint;
    return;
  end if;
  if not fenceline.proves_restore(p_evidence, p_seen, p_entry, p_request) then
    return query select 'not_restored', v_before.incarnation, 0::bigint, 0::bigint;
    return;
  end if;
  v_incarnation := greatest(v_before.incarnation, (p_seen ->> 'incarnation')::int) + 1;
  perform fenceline.jump_sequences(p_seen, p_entry);
  v_scopes := array(
    select p.scope_id from fenceline.policy_scope p
    where p.session_generation > 0 or exists (select 1 from fenceline.subscription s where s.scope_id = p.scope_id)
    order by p.scope_id);
  perform fenceline.fence_exclusive(s.scope_id) from unnest(v_scopes) s (scope_id);
  -- What works without a fence (the batches of revocations, the purge, repairs, claims) ends first, and is waited for in the order of all locks.
  perform 1 from fenceline.revocation r order by r.revocation_id for no key update;
  perform 1 from fenceline.session x where x.ended_at is null order by x.session_id for no key update;
  perform 1 from fenceline.subscription s order by s.subscription_id for no key update;
  perform 1 from fenceline.entry_group g where g.claim_token is not null order by g.group_id for no key update;
  perform 1 from fenceline.outbox o where o.claim_token is not null order by o.subscription_id, o.index_id for no key update;
  v_now := fenceline.now();
  perform fenceline.leave_lost_sessions(v_scopes, v_now);
  v_reads := fenceline.lose_reads(v_now);
  v_subscriptions := fenceline.unverify_subscriptions(v_now);
  update fenceline.outbox set claim_token = null, claim_until = null where claim_token is not null;
  update fenceline.entry_group set claim_token = null, claimed_at = null,
    claim_until = case state when 'PURGED' then claim_until end
  where claim_token is not null;
  update fenceline.identity
  set incarnation = v_incarnation, witness_number = greatest(witness_number, (p_seen ->> 'number')::bigint) + 1;
  insert into fenceline.restore (incarnation, evidence, detail)
  values (v_incarnation, p_evidence, jsonb_strip_nulls(jsonb_build_object('seen', p_seen, 'entry', p_entry, 'request', p_request,
    'by', p_by, 'subscriptions', v_subscriptions, 'readsLost', v_reads)));
  insert into fenceline.receipt (scope_id, kind, detail)
  select s.scope_id, 'restored', jsonb_build_object('incarnation', v_incarnation, 'evidence', p_evidence)
  from (select unnest(v_scopes) union all select null) s (scope_id);
  return query select 'restored', v_incarnation, v_subscriptions, v_reads;
end $$;

create or replace function fenceline.proves_restore(p_evidence text, p_seen jsonb, p_entry bigint, p_request text)
returns boolean language sql volatile as $$
  select case p_evidence
    when 'position' then fenceline.is_behind(p_seen)
    -- An entry is written after its record committed (L2), and the sequence with it. Whoever may write to a store may make one
    -- up: beyond the highest number that a ledger gives away there would be none left for the next entry.
    when 'entry' then p_entry <= 4503599627370496
      and p_entry > coalesce(pg_sequence_last_value('fenceline.entry_number'::regclass), 0)
    -- Until it is asked for again it proves the same restore.
    when 'revocation' then not exists (select 1 from fenceline.revocation v where v.request_id = p_request)
      and not exists (select 1 from fenceline.restore r where r.detail ->> 'request' = p_request)
    else p_evidence = 'operator' end
$$;

-- A jump is not undone when the transaction fails; that costs nothing but numbers. Ids of sources, scopes and stores are `int` and jump by
-- 65,536 or to one for each second since 2026; ids of indexes (12 bits of an entry id, whose number jumps) by 16.
create or replace function fenceline.jump_sequences(p_seen jsonb, p_entry bigint) returns void language sql volatile as $$
  select setval(s.sequence, case
      when s.name = 'index_index_id_seq' then s.known + 16
      when s.type = 'bigint' then fenceline.beyond_lost(s.known)
      else least(2147483000, greatest(s.known + 65536, fenceline.seconds_since_2026())) end)
  from (
    select q.*, greatest(coalesce(q.last_value, 0), (p_seen #>> array['sequences', q.name])::bigint,
             case q.name when 'entry_number' then p_entry end) as known
    from fenceline.sequences_of_ledger() q) s
$$;

-- Sessions end as they always do; then generations and epochs jump, and the scope's content counts as unverified. Above every
-- verified_at, whatever the clock of the machine says that the backup was restored on.
create or replace function fenceline.leave_lost_sessions(p_scopes int[], p_now timestamptz) returns void language plpgsql volatile as $$
begin
  perform fenceline.leave_session(x.scope_id, x.session_id, p_now)
  from fenceline.session x where x.scope_id = any (p_scopes) and x.ended_at is null;
  update fenceline.stream
  set epoch = fenceline.beyond_lost(epoch), broken_at = coalesce(broken_at, p_now) where scope_id = any (p_scopes);
  update fenceline.policy_scope p
  set session_generation = case p.session_generation when 0 then 0 else fenceline.beyond_lost(p.session_generation) end,
    policy_epoch = fenceline.beyond_lost(p.policy_epoch), next_review_at = p_now,
    restored_at = greatest(p_now, (
      select max(s.verified_at) + interval '1 microsecond' from fenceline.subscription s where s.scope_id = p.scope_id));
end $$;

-- Reads in flight are lost: their answers come from sessions that no longer count, or never come (F9).
create or replace function fenceline.lose_reads(p_now timestamptz) returns bigint language sql volatile as $$
  with lost as (
    update fenceline.read r set settled_as = 'lost'
    from fenceline.subscription s
    where s.issued_ordinal > s.accepted_ordinal and r.subscription_id = s.subscription_id
      and r.ordinal > s.accepted_ordinal and r.settled_as is null
    returning s.scope_id, r.subscription_id, r.ordinal),
  noted as (
    insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, detail, at)
    select scope_id, subscription_id, ordinal, 'lost', '{"because": "restored"}', p_now from lost)
  select count(*) from lost
$$;

-- Ordinals jump, a close with them (U7); what may be read is due.
create or replace function fenceline.unverify_subscriptions(p_now timestamptz) returns bigint language sql volatile as $$
  with jumped as (
    update fenceline.subscription s
    set issued_ordinal = j.ordinal, settled_ordinal = j.ordinal,
      close_ordinal = case when s.close_ordinal is not null then j.ordinal end, claim_until = null,
      due_at = case when s.lifecycle = 'ACTIVE' and s.hidden_because is distinct from 'tombstoned' then p_now else s.due_at end
    from (select subscription_id, fenceline.beyond_lost(issued_ordinal) as ordinal from fenceline.subscription) j
    where j.subscription_id = s.subscription_id
    returning s.accepted_ordinal)
  select count(*) filter (where accepted_ordinal > 0) from jumped
$$;

-- Of these requests, those of which there is no revocation.
create or replace function fenceline.unknown_requests(p_requests text[]) returns setof text language sql stable as $$
  select distinct i.request from unnest(p_requests) i (request)
  where not exists (select 1 from fenceline.revocation v where v.request_id = i.request)
$$;
