-- Lineage (L1-L6): which versions wait to be indexed, what is about to be written, and what left our sight.
--
-- 1. L2: an entry has its row before it is in any store; the row of an INTENT outlives the writer.
-- 2. An intent under a standing revocation is dead from the start: no batch of the revocation has to find it (P2, P3).
-- 3. The claim token stands on the outbox row and on the groups intended under it: a sweep tells by it whether the
--    worker that wrote them may still come to confirm.

-- The shared fences of the scopes of these subscriptions, in the order of their ids.
create or replace function fenceline.fence_scopes_of(p_subscriptions bigint[]) returns void
language plpgsql volatile as $$
begin
  perform fenceline.fence_shared(p.scope_id)
  from (select distinct s.scope_id from fenceline.subscription s
        where s.subscription_id = any (p_subscriptions) order by s.scope_id) p;
end $$;

-- Whether what was accepted of a subscription may be indexed: it is of the ACTIVE family, or was unsubscribed, by which what was
-- accepted stays (U10). What a revocation closed may not.
create or replace function fenceline.may_be_indexed(s fenceline.subscription) returns boolean language sql immutable as $$
  select s.hidden_because is null and (s.lifecycle = 'ACTIVE'
    or s.close_ordinal is not null and s.closed_by is null and s.digest_generation = s.generation)
$$;

-- Claims versions that wait to be indexed, none whose subscription is hidden, closed or covered by a reader's
-- revocation. Nothing is decided here: intents and confirm test the same again under the fence, so none is taken.
--   p_index, p_limit  which and how many
--   p_lease_ms        how long the claim stands; at most 10 s
-- Result: a row per version, with its kept parts and what the index holds of the same (source, URI), whoever read it
-- (L5), both as JSON.
create or replace function fenceline.claim_index_work(p_index int, p_limit int, p_lease_ms bigint)
returns table (claim_token uuid, subscription_id bigint, ordinal bigint, source text, reader text, uri text, name text,
               title text, mime_type text, parts json, present json)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_token uuid := gen_random_uuid();
  v_claimed bigint[];
begin
  with due as materialized (
    select o.subscription_id
    from fenceline.outbox o
    join fenceline.subscription s using (subscription_id)
    join fenceline.policy_scope p using (scope_id)
    join fenceline.resource q using (resource_id)
    where o.index_id = p_index and o.pending
      and not exists (select 1 from fenceline.index i where i.index_id = p_index and i.retired_at is not null)
      and (o.claim_until is null or o.claim_until <= fenceline.now())
      and fenceline.may_be_indexed(s)
      and (p.standing_revocations = 0 or not fenceline.is_revoked(p.subject_id, q.deny_hashes, 'reader'))
    order by o.subscription_id
    limit p_limit
    for no key update of o skip locked
  ), claimed as (
    update fenceline.outbox o
    set claim_token = v_token, attempts = o.attempts + 1,
        claim_until = fenceline.now() + fenceline.milliseconds(least(p_lease_ms, 10000))
    from due where o.subscription_id = due.subscription_id and o.index_id = p_index
    returning o.subscription_id
  )
  select array_agg(c.subscription_id) into v_claimed from claimed c;

  -- The outbox rows are locked, and acceptance raises them last: the bodies read here are those of the ordinals claimed.
  return query
    select v_token, s.subscription_id, o.ordinal, src.name, subj.name, s.uri, s.name, s.title, v.mime_type,
           fenceline.version_parts(s.subscription_id, o.ordinal),
           (select json_agg(json_build_object('number', e.entry_number, 'partId', g.part_id,
                                              'chunkDigest', encode(e.chunk_digest, 'hex')) order by e.entry_number)
            from fenceline.entry_group g join fenceline.entry e using (group_id)
            where g.resource_id = s.resource_id and g.index_id = p_index and g.state = 'PRESENT' and g.settled
              and g.kind = 'chunk')
    from fenceline.outbox o
    join fenceline.subscription s using (subscription_id)
    join fenceline.resource_version v on v.subscription_id = o.subscription_id and v.ordinal = o.ordinal
    join fenceline.policy_scope p using (scope_id)
    join fenceline.source src using (source_id)
    join fenceline.subject subj using (subject_id)
    where o.index_id = p_index and o.subscription_id = any (v_claimed)
    order by s.subscription_id;
end $$;

-- The kept parts of a version as JSON (binary ones in base64), in the order of the answer.
create or replace function fenceline.version_parts(p_subscription bigint, p_ordinal bigint) returns json
language sql stable as $$
  select json_agg(json_build_object('partId', b.part_id, 'uri', b.part_uri, 'mimeType', b.mime_type, 'text', b.text,
                                    'bytes', encode(b.bytes, 'base64')) order by b.position)
  from fenceline.body b where b.subscription_id = p_subscription and b.ordinal = p_ordinal
$$;

-- Prolongs claims, from now. One that has run out is taken up again where nobody else claimed it meanwhile.
--   p_index, p_subscriptions, p_tokens  the claims; one that is no longer held is left alone
--   p_lease_ms                          as of `claim_index_work`
create or replace function fenceline.renew_index_work(
  p_index int, p_subscriptions bigint[], p_tokens uuid[], p_lease_ms bigint
) returns void
language plpgsql volatile as $$
begin
  perform 1 from fenceline.outbox o
    where o.index_id = p_index and o.subscription_id = any (p_subscriptions) order by o.subscription_id for no key update;
  update fenceline.outbox o
  set claim_until = fenceline.now() + fenceline.milliseconds(least(p_lease_ms, 10000))
  from unnest(p_subscriptions, p_tokens) c (subscription_id, claim_token)
  where o.index_id = p_index and o.subscription_id = c.subscription_id and o.claim_token = c.claim_token;
end $$;

-- Hands a claim back; the version is due again after a backoff of 1 s, doubled with each attempt, at most 5 min.
--   p_index, p_subscription, p_token  the claim; one that is no longer held is left alone
--   p_failure  why, or null (handed back in order: due at once)
create or replace function fenceline.release_index_work(p_index int, p_subscription bigint, p_token uuid, p_failure text)
returns void language sql volatile as $$
  update fenceline.outbox
  set claim_token = null, failure = p_failure,
      claim_until = case when p_failure is null then null
        else fenceline.now() + least(300, power(2, least(attempts, 20) - 1)) * interval '1 second' end
  where index_id = p_index and subscription_id = p_subscription and claim_token = p_token
$$;

-- Records entries before they are written anywhere (L2). Every intent gets its group, so that nothing is written without a
-- record; the edge of one that a reader's revocation covers is dead from the start, and the purge path takes it.
--   p_index, p_lease_ms                         the index, and how long the write may take
--   p_subscriptions, p_ordinals, p_tokens, p_parts  one element per intent
--   p_digests, p_digest_of                      keyed digests of the chunks, 32 bytes each, in one (as an array of `bytea` they
--                                               took longer to read than to insert), intent by intent; the intent of each
-- Result: position of the intent (from 1), its group, the numbers of its entries in the order of the digests.
create or replace function fenceline.record_intents(
  p_index int, p_lease_ms bigint, p_subscriptions bigint[], p_ordinals bigint[], p_tokens uuid[], p_parts bigint[],
  p_digests bytea, p_digest_of int[]
) returns table (intent int, group_id bigint, entry_numbers bigint[])
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_groups bigint[];
  v_firsts bigint[] := array(
    select min(d.position) from unnest(p_digest_of) with ordinality d (intent, position) group by d.intent order by d.intent);
begin
  perform fenceline.fence_scopes_of(p_subscriptions);
  with intent as materialized (
    select i.position::int as intent, nextval('fenceline.entry_group_group_id_seq') as group_id,
           i.subscription_id, i.ordinal, i.token, i.part_id, s.scope_id, s.resource_id, x.store_id,
           p.standing_revocations > 0 and fenceline.is_revoked(p.subject_id, q.deny_hashes || part.deny_hashes, 'reader')
             as covered, x.retired_at is not null as retired
    from unnest(p_subscriptions, p_ordinals, p_tokens, p_parts) with ordinality
           i (subscription_id, ordinal, token, part_id, position)
    join fenceline.index x on x.index_id = p_index
    join fenceline.subscription s on s.subscription_id = i.subscription_id
    join fenceline.policy_scope p on p.scope_id = s.scope_id
    join fenceline.resource q on q.resource_id = s.resource_id
    join fenceline.resource part on part.resource_id = i.part_id
  ), groups as (
    insert into fenceline.entry_group
      (group_id, index_id, store_id, resource_id, part_id, entries, writer_lease_until, purge_due, claim_token)
    overriding system value
    select i.group_id, p_index, i.store_id, i.resource_id, i.part_id,
           coalesce(v_firsts[i.intent + 1], cardinality(p_digest_of) + 1) - v_firsts[i.intent],
           fenceline.now() + fenceline.milliseconds(p_lease_ms), true, i.token
    from intent i
  ), edges as (
    insert into fenceline.group_root
      (group_id, subscription_id, ordinal, part_id, scope_id, resource_id, index_id, state)
    select i.group_id, i.subscription_id, i.ordinal, i.part_id, i.scope_id, i.resource_id, p_index,
           case when i.covered then 'REVOKED' when i.retired then 'SUPERSEDED' else 'PENDING' end::fenceline.edge_state
    from intent i
  )
  select array_agg(i.group_id order by k.intent) into v_groups
  from generate_series(1, cardinality(p_subscriptions)) k (intent) left join intent i using (intent);
  -- The groups are looked up in an array: a join, and entries that come back from their insert, took a third of the time.
  return query
    with digest as materialized (
      select d.intent, nextval('fenceline.entry_number') as entry_number, d.position::int as position
      from unnest(p_digest_of) with ordinality d (intent, position)
      where v_groups[d.intent] is not null
    ), entries as (
      insert into fenceline.entry (entry_number, group_id, position, chunk_digest)
      select d.entry_number, v_groups[d.intent], d.position - v_firsts[d.intent] + 1, substr(p_digests, 32 * d.position - 31, 32) from digest d
    )
    select d.intent, v_groups[d.intent], array_agg(d.entry_number order by d.position) from digest d group by d.intent;
end $$;

-- Keys that a store assigned by itself, so that a purge finds the entries.
--   p_numbers, p_keys  entry numbers and keys, pairwise
create or replace function fenceline.record_store_keys(p_numbers bigint[], p_keys text[]) returns void
language plpgsql volatile set enable_seqscan = off as $$
begin
  -- A purge deletes the rows of a writer that is late, and holds their groups.
  perform 1 from fenceline.entry_group g
    where g.group_id = any (array(select e.group_id from fenceline.entry e where e.entry_number = any (p_numbers)))
    order by g.group_id for no key update;
  update fenceline.entry e set store_key = k.store_key
  from unnest(p_numbers, p_keys) k (entry_number, store_key) where e.entry_number = k.entry_number;
end $$;

-- Gives up intents; the purge path removes whatever reached the store. Groups that are no longer INTENT stay as they are.
--   p_groups  group ids
create or replace function fenceline.abandon_intents(p_groups bigint[]) returns void
language plpgsql volatile as $$
begin
  perform 1 from fenceline.entry_group where group_id = any (p_groups) order by group_id for no key update;
  update fenceline.entry_group set state = 'ABANDONED', purge_due = true, claim_token = null
  where group_id = any (p_groups) and state = 'INTENT';
end $$;

-- Repair: entries of an index that are recorded and not in their store. Their groups are not reused any more, and the
-- subscriptions they stand for no longer count as unchanged: what was lost is written anew with their next read.
--   p_index    name of the index
--   p_entries  entry numbers
-- Result: how many subscriptions are due.
create or replace function fenceline.requeue_lost_entries(p_index text, p_entries bigint[]) returns int
language plpgsql volatile as $$
declare
  v_groups bigint[];
  v_subscriptions bigint[];
  v_due int;
begin
  v_groups := array(
    select distinct g.group_id from fenceline.entry e
    join fenceline.entry_group g using (group_id) join fenceline.index i using (index_id)
    where e.entry_number = any (p_entries) and i.name = p_index and g.state = 'PRESENT');
  v_subscriptions := array(
    select distinct r.subscription_id from fenceline.group_root r
    where r.group_id = any (v_groups) and r.state = 'CURRENT');
  perform 1 from fenceline.subscription s
    where s.subscription_id = any (v_subscriptions) order by s.subscription_id for no key update;
  perform 1 from fenceline.entry_group g where g.group_id = any (v_groups) order by g.group_id for no key update;
  update fenceline.entry_group set settled = false where group_id = any (v_groups) and state = 'PRESENT';
  update fenceline.subscription set digest = null, due_at = fenceline.now()
  where subscription_id = any (v_subscriptions) and lifecycle = 'ACTIVE' and hidden_because is null;
  get diagnostics v_due = row_count;
  return v_due;
end $$;

-- Keeps what was found in versions before they were cut into chunks (§5), in place of what was kept of them before.
--   p_subscriptions, p_ordinals  the versions, each once; one that is gone is passed over
--   p_findings                   a JSON list for each
create or replace function fenceline.record_findings(p_subscriptions bigint[], p_ordinals bigint[], p_findings text[]) returns void
language plpgsql volatile set enable_seqscan = off as $$
begin
  -- Nearly always nothing was found, and nothing is to be written.
  perform 1 from fenceline.resource_version v
    join unnest(p_subscriptions, p_ordinals, p_findings) i (subscription_id, ordinal, findings) using (subscription_id, ordinal)
    where v.findings is distinct from nullif(i.findings::jsonb, '[]')
    order by v.subscription_id, v.ordinal for no key update of v;
  update fenceline.resource_version v set findings = nullif(i.findings::jsonb, '[]')
  from unnest(p_subscriptions, p_ordinals, p_findings) i (subscription_id, ordinal, findings)
  where v.subscription_id = i.subscription_id and v.ordinal = i.ordinal
    and v.findings is distinct from nullif(i.findings::jsonb, '[]');
end $$;
