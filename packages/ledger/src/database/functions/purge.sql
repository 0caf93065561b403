-- The purge (P3 to P5): the one way by which recorded entries leave a store, whatever the cause.
--
-- 1. A group goes only when nothing holds it, decided under its row lock; attaching to it takes the same lock.
-- 2. An intent whose writer may still be writing is not claimed; afterwards its write counts as never settled.
-- 3. A purged group that never settled keeps its entry rows and is claimed again on later sweeps, ever more seldom; after
--    eight of them (a day and a half) no write can be under way any more, and the rows go.

-- Claims groups of a store that nothing holds any more.
--   p_store     name of the store; an unknown one has nothing to claim
--   p_limit, p_lease_ms  how many, and how long the claim stands
-- Result: a row per claimed group with the numbers of its entries and, where the store assigns its own, their keys (in the same
-- order; an object per entry took twice as long); `swept_before` where it was verified absent earlier. A row
-- without a token is a group that somebody attached to meanwhile: it stays, and is found again until `keep_held_groups`.
create or replace function fenceline.claim_purge(p_store text, p_limit int, p_lease_ms bigint)
returns table (group_id bigint, claim_token uuid, index_id int, swept_before boolean, entries json, store_keys json)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now timestamptz := fenceline.now();
  v_token uuid := gen_random_uuid();
  v_store int := (select s.store_id from fenceline.store s where s.name = p_store);
  v_locked bigint[];
  v_held bigint[];
begin
  v_locked := array(
    select g.group_id from fenceline.entry_group g
    where g.store_id = v_store and g.purge_due and (g.claim_until is null or g.claim_until <= v_now)
      and not (g.state = 'INTENT' and (g.writer_lease_until > v_now or exists (
        select 1 from fenceline.group_root r
        join fenceline.outbox o on o.subscription_id = r.subscription_id and o.index_id = r.index_id
        where r.group_id = g.group_id and r.state = 'PENDING'
          and o.claim_token = g.claim_token and o.claim_until > v_now)))
    order by g.group_id
    limit p_limit
    for no key update skip locked);
  v_held := array(
    select g.group_id from fenceline.entry_group g
    where g.group_id = any (v_locked) and g.state = 'PRESENT' and not fenceline.is_group_dead(g.group_id));
  update fenceline.entry_group g
  set state = case g.state when 'PURGED' then g.state else 'PURGING' end, claim_token = v_token, claimed_at = v_now,
      claim_until = v_now + fenceline.milliseconds(p_lease_ms)
  where g.group_id = any (v_locked) and g.group_id <> all (v_held);
  return query
    select g.group_id, case when g.group_id <> all (v_held) then v_token end, g.index_id, g.state = 'PURGED',
           e.numbers, e.store_keys
    from fenceline.entry_group g
    cross join lateral (
      select to_json(array_agg(n.entry_number order by n.entry_number)) as numbers,
             case when count(n.store_key) > 0 then to_json(array_agg(n.store_key order by n.entry_number)) end as store_keys
      from fenceline.entry n where n.group_id = g.group_id) e
    where g.group_id = any (v_locked) order by g.group_id;
end $$;

-- Takes note that somebody attached to these groups: they stay, and revocations no longer wait for them.
-- Result: false: nothing was done, call again.
create or replace function fenceline.keep_held_groups(p_groups bigint[]) returns boolean
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_revocations bigint[] := fenceline.lock_groups_and_their_revocations(p_groups);
begin
  if v_revocations is null then
    return false;
  end if;
  update fenceline.entry_group g set purge_due = false
  where g.group_id = any (p_groups) and g.state = 'PRESENT' and not fenceline.is_group_dead(g.group_id);
  perform fenceline.complete_revocation(r) from unnest(v_revocations) r;
  return true;
end $$;

-- Locks groups, and before them the revocations that wait for them, each in the order of their ids.
-- Result: the revocations. Null: while the groups were waited for, a batch made another revocation wait for one of them; it
-- cannot be locked any more in the order of all locks, and nobody else would complete it.
create or replace function fenceline.lock_groups_and_their_revocations(p_groups bigint[]) returns bigint[]
language plpgsql volatile as $$
declare
  v_revocations bigint[];
begin
  v_revocations := array(
    select v.revocation_id from fenceline.revocation v
    where v.revocation_id in (select x.revocation_id from fenceline.revocation_group x where x.group_id = any (p_groups))
    order by v.revocation_id for no key update);
  perform 1 from fenceline.entry_group g where g.group_id = any (p_groups) order by g.group_id for no key update;
  if exists (
    select 1 from fenceline.revocation_group x
    where x.group_id = any (p_groups) and x.revocation_id <> all (v_revocations))
  then
    return null;
  end if;
  return v_revocations;
end $$;

-- Takes note that the entries of claimed groups are gone by id: receipts, states, and the revocations that waited for them.
--   p_store, p_groups, p_tokens  the claims; those that are no longer held are left alone
--   p_claim       'absent' or 'erased'
--   p_reappeared  numbers of entries that were found again although they were absent before
--   p_digest_key  what keys the digests of the receipts; null: the key that the ledger keeps
-- Result: false: nothing was done, call again.
create or replace function fenceline.confirm_purge(
  p_store text, p_groups bigint[], p_tokens uuid[], p_claim text, p_reappeared bigint[], p_digest_key bytea
) returns boolean
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_now timestamptz := fenceline.now();
  v_revocations bigint[] := fenceline.lock_groups_and_their_revocations(p_groups);
  v_gone bigint[];
begin
  if v_revocations is null then
    return false;
  end if;
  v_gone := array(
    select g.group_id from fenceline.entry_group g
    join unnest(p_groups, p_tokens) c (group_id, claim_token) using (group_id, claim_token)
    join fenceline.store s using (store_id)
    where s.name = p_store and g.state in ('PURGING', 'PURGED'));
  perform fenceline.write_purge_receipts(v_gone, p_claim, p_reappeared, v_now, p_digest_key);
  -- P8: the plain digest of an older version goes with the content; the newest one's is what the next read is compared with.
  update fenceline.resource_version v set digest = null
  from (
    select h.subscription_id, h.ordinal
    from fenceline.group_root r join fenceline.subscription s using (subscription_id)
    join fenceline.resource_version h on h.subscription_id = r.subscription_id and h.ordinal = r.ordinal
    where r.group_id = any (v_gone) and h.digest is not null and r.state <> 'PENDING' and h.ordinal < s.version_ordinal
    order by h.subscription_id, h.ordinal for no key update of h) held
  where v.subscription_id = held.subscription_id and v.ordinal = held.ordinal;
  perform fenceline.remember_purged_entries(v_gone);
  delete from fenceline.entry e using fenceline.entry_group g
  where e.group_id = g.group_id and g.group_id = any (v_gone) and fenceline.is_write_over(g);
  update fenceline.entry_group g
  set state = 'PURGED', purged_at = coalesce(g.purged_at, v_now), claim_token = null,
      settled = fenceline.is_write_over(g), purge_due = not fenceline.is_write_over(g),
      attempts = case g.state when 'PURGED' then g.attempts + 1 else 0 end,
      claim_until = case when not fenceline.is_write_over(g) then greatest(v_now, g.writer_lease_until)
        + least(21600, 10 * power(4, case g.state when 'PURGED' then g.attempts + 1 else 0 end)) * interval '1 second' end
  where g.group_id = any (v_gone);
  update fenceline.store set reachable_at = v_now, failed_at = null, failure = null where name = p_store;
  perform fenceline.complete_revocation(r) from unnest(v_revocations) r;
  return true;
end $$;

-- Takes the plain digests of every version of these subscriptions, in order (P8).
create or replace function fenceline.forget_digests(p_subscriptions bigint[]) returns void language sql volatile as $$
  update fenceline.resource_version v set digest = null
  from (
    select h.subscription_id, h.ordinal from fenceline.resource_version h
    where h.subscription_id = any (p_subscriptions) and h.digest is not null
    order by h.subscription_id, h.ordinal for no key update) held
  where v.subscription_id = held.subscription_id and v.ordinal = held.ordinal
$$;

-- Whether no write of a group's entries can be under way any more.
create or replace function fenceline.is_write_over(g fenceline.entry_group) returns boolean
language sql immutable as $$ select g.settled or g.state = 'PURGED' and g.attempts >= 8 $$;

-- One receipt per revocation that waited for some of these groups, and one per cause for the others (P3). A sweep of what
-- was absent before leaves one only if something had reappeared.
create or replace function fenceline.write_purge_receipts(
  p_groups bigint[], p_claim text, p_reappeared bigint[], p_now timestamptz, p_digest_key bytea
) returns void
language sql volatile as $$
  with purged as materialized (
    select g.group_id, g.store_id, g.index_id, coalesce(g.claimed_at, p_now) as claimed_at, x.revocation_id,
           case
             when g.state = 'PURGED' then 'reappeared'
             when x.revocation_id is not null then 'revoked'
             when not g.settled then 'abandoned'
             when exists (select 1 from fenceline.group_root r where r.group_id = g.group_id and r.state = 'TOMBSTONED')
               then 'tombstoned'
             when exists (select 1 from fenceline.group_root r where r.group_id = g.group_id and r.state = 'REVOKED')
               then 'revoked'
             else 'superseded'
           end as cause
    from fenceline.entry_group g left join fenceline.revocation_group x using (group_id)
    where g.group_id = any (p_groups)
  ), written as (
  insert into fenceline.purge_receipt
    (revocation_id, store_id, cause, entries, ids_digest, claim, started_at, absent_at)
  select p.revocation_id, p.store_id, p.cause, count(*),
         fenceline.keyed_digest(string_agg(fenceline.entry_id(p.index_id, e.entry_number), ','
           order by p.index_id, e.entry_number), p_digest_key),
         p_claim, min(p.claimed_at), p_now
  from purged p join fenceline.entry e using (group_id)
  where p.cause <> 'reappeared' or e.entry_number = any (p_reappeared)
  group by p.revocation_id, p.store_id, p.cause
  returning purge_receipt_id, revocation_id, store_id, cause
  )
  -- So that a trace can name the receipt of an entry that is gone (L4).
  insert into fenceline.purge_receipt_group (group_id, purge_receipt_id)
  select p.group_id, w.purge_receipt_id
  from purged p join written w on w.store_id = p.store_id and w.cause = p.cause
    and w.revocation_id is not distinct from p.revocation_id
$$;

-- Hands claims back and records the store as failing (P5). Due again after a backoff of 1 s, doubled each time, at most 60 s.
create or replace function fenceline.release_purge(p_store text, p_groups bigint[], p_tokens uuid[], p_failure text)
returns void
language plpgsql volatile as $$
begin
  perform 1 from fenceline.entry_group g where g.group_id = any (p_groups) order by g.group_id for no key update;
  update fenceline.entry_group g
  set claim_token = null, attempts = case g.state when 'PURGED' then g.attempts else g.attempts + 1 end,
      claim_until = fenceline.now() + least(60, power(2, least(g.attempts, 10))) * interval '1 second'
  from unnest(p_groups, p_tokens) c (group_id, claim_token)
  where g.group_id = c.group_id and g.claim_token = c.claim_token and g.state in ('PURGING', 'PURGED');
  update fenceline.store set failed_at = fenceline.now(), failure = p_failure where name = p_store;
end $$;

-- The public id of an entry, as `formatEntryId` writes it.
create or replace function fenceline.entry_id(p_index int, p_number bigint) returns text
language sql stable as $$
  select left(i.mark, 8) || '-' || substr(i.mark, 9) || '-8' || lpad(to_hex(p_index), 3, '0')
    || '-' || left(n.tail, 4) || '-' || substr(n.tail, 5)
  from fenceline.identity i, to_hex((-9223372036854775807 - 1) | p_number) n (tail)
$$;

-- HMAC-SHA-256 (RFC 2104; the key is no longer than a block). PostgreSQL itself has none.
--   p_key  null: the key that the ledger keeps
create or replace function fenceline.keyed_digest(p_text text, p_key bytea default null) returns bytea
language plpgsql stable as $$
declare
  v_key bytea := coalesce(p_key, (select digest_key from fenceline.identity));
  v_inner bytea := decode(repeat('36', 64), 'hex');
  v_outer bytea := decode(repeat('5c', 64), 'hex');
begin
  if v_key is null then
    raise exception 'the digest key of this ledger is kept outside of it since, and this process was not given it'
      using errcode = 'invalid_parameter_value', hint = 'Open the ledger again with its digest key.';
  end if;
  for i in 0 .. length(v_key) - 1 loop
    v_inner := set_byte(v_inner, i, get_byte(v_inner, i) # get_byte(v_key, i));
    v_outer := set_byte(v_outer, i, get_byte(v_outer, i) # get_byte(v_key, i));
  end loop;
  return sha256(v_outer || sha256(v_inner || convert_to(p_text, 'UTF8')));
end $$;
