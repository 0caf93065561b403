-- Indexes and their versions: how one begins to take what is accepted, takes over, and leaves.
--
-- 1. A version of an index is built beside the one that serves, and takes over when all that waited in it is confirmed.
-- 2. Filling and retiring pass the exclusive fence of every scope, in batches, after the index was registered or retired: each
--    acceptance, intent and confirm that did not see that has ended by then. All fences at once would fill the server's lock table.
-- 3. A retired version takes nothing more, shows nothing and never serves; what it held is purged like all else (P3).

-- Registers an index, or returns it: the row, and whether versions accepted before have to become due in it
-- (`fill_index`, in transactions of their own).
--   p_name, p_version, p_store, p_embeddings, p_configuration  as declared
--   p_takes_versions  false: of derived entries alone; no version becomes due in it, and it serves at once
-- Result: outcome `registered`, `known`, `other_configuration` (this version is registered with another configuration;
-- nothing changed), `retired` (likewise), `store_unknown`.
create or replace function fenceline.register_index(
  p_name text, p_version int, p_store text, p_embeddings text, p_configuration bytea, p_takes_versions boolean
) returns table (outcome text, index_id int, filled boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  v_store int;
begin
  select s.store_id into v_store from fenceline.store s where s.name = p_store;
  if v_store is null then
    return query select 'store_unknown', null::int, null::boolean;
    return;
  end if;
  return query
    insert into fenceline.index
      (name, version, store_id, embeddings, configuration_digest, takes_versions, filled_at, serving_since)
    select p_name, p_version, v_store, p_embeddings, p_configuration, p_takes_versions, n.at, n.at
    from (select case when not p_takes_versions then fenceline.now() end as at) n
    on conflict (name, version) do nothing
    returning 'registered', index_id, filled_at is not null;
  if found then
    return;
  end if;
  return query
    select case
             when i.retired_at is not null then 'retired'
             when i.store_id = v_store and i.embeddings = p_embeddings and i.configuration_digest = p_configuration
               and i.takes_versions = p_takes_versions then 'known'
             else 'other_configuration' end,
           i.index_id, i.filled_at is not null
    from fenceline.index i where i.name = p_name and i.version = p_version;
end $$;

-- The exclusive fences of a batch of scopes, in order, until the transaction ends. Scopes that come later than the call begin
-- nothing that is older than it.
--   → the scopes
create or replace function fenceline.fence_batch(p_after int, p_limit int) returns int[]
language plpgsql volatile as $$
declare
  v_scopes int[] := array(
    select p.scope_id from fenceline.policy_scope p where p.scope_id > p_after order by p.scope_id limit p_limit);
begin
  perform fenceline.fence_exclusive(s.scope_id) from unnest(v_scopes) s (scope_id);
  return v_scopes;
end $$;

-- Waits for what is under way in a batch of scopes.
--   → the scope to go on after; null: there are no more
create or replace function fenceline.pass_fences(p_after int, p_limit int) returns int language sql volatile as $$
  select (fenceline.fence_batch(p_after, p_limit))[p_limit]
$$;

-- Makes the newest accepted versions of a batch of scopes due in an index. Waits for every acceptance that began before the index
-- was there; those that begin later raise its outbox themselves.
--   p_index  the index
--   p_after  the scope that the batch before ended with, from 0
-- Result: the scope to go on after; null: there are no more, and the index is filled.
create or replace function fenceline.fill_index(p_index int, p_after int, p_limit int) returns int
language plpgsql volatile as $$
declare
  v_scopes int[] := fenceline.fence_batch(p_after, p_limit);
begin
  insert into fenceline.outbox (subscription_id, index_id, ordinal)
    select s.subscription_id, p_index, s.version_ordinal
    from fenceline.subscription s
    join fenceline.index i on i.index_id = p_index and i.takes_versions and i.retired_at is null
    -- Also what is hidden now: shown again unchanged, it would raise no outbox row (F6).
    where s.scope_id = any (v_scopes) and s.version_ordinal is not null
      and (s.lifecycle = 'ACTIVE' or fenceline.may_be_indexed(s) and not exists (
        -- It would wait for ever, as no batch of the revocation comes to it again.
        select 1 from fenceline.policy_scope p join fenceline.resource q on q.resource_id = s.resource_id
        where p.scope_id = s.scope_id and fenceline.is_revoked(p.subject_id, q.deny_hashes, 'reader')))
    order by s.subscription_id
    on conflict do nothing;
  if v_scopes[p_limit] is null then
    update fenceline.index set filled_at = fenceline.now() where index_id = p_index;
    perform fenceline.let_index_serve(p_index);
  end if;
  return v_scopes[p_limit];
end $$;

-- An index version takes over from the one before it when every version that waits in it is confirmed (design §5).
--   p_index  the index
create or replace function fenceline.let_index_serve(p_index int) returns void
language sql volatile as $$
  update fenceline.index i set serving_since = fenceline.now()
  where i.index_id = p_index and i.serving_since is null and i.filled_at is not null and i.retired_at is null
    and not exists (
      select 1 from fenceline.outbox o join fenceline.subscription s using (subscription_id)
      where o.index_id = p_index and o.pending and fenceline.may_be_indexed(s))
$$;

-- Retires versions of an index. Effective when this commits; `pass_fences`, then `empty_retired_index` do what follows.
--   p_name, p_version  version null: all of them
-- Result: the ids of those that are retired, also from before.
create or replace function fenceline.retire_index(p_name text, p_version int) returns int[]
language plpgsql volatile as $$
begin
  perform fenceline.require_read_committed();
  update fenceline.index i set retired_at = fenceline.now()
  where i.name = p_name and (p_version is null or i.version = p_version) and i.retired_at is null;
  return array(
    select i.index_id from fenceline.index i
    where i.name = p_name and (p_version is null or i.version = p_version) order by i.index_id);
end $$;

-- One batch of what follows a retirement: edges end, groups become due for purge, outbox rows go. A confirm that began before
-- has ended, as it held a scope's fence, and they were passed.
--   p_index                   a retired index
--   p_groups, p_subscriptions  where the batch before ended, both from 0: ids of a group and of a subscription
--   p_limit                   groups, and outbox rows
-- Result: where this batch ended; both null: nothing was left.
create or replace function fenceline.empty_retired_index(
  p_index int, p_groups bigint, p_subscriptions bigint, p_limit int, out last_group bigint, out last_subscription bigint
)
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_groups bigint[];
  v_subscriptions bigint[];
begin
  if not exists (select 1 from fenceline.index i where i.index_id = p_index and i.retired_at is not null) then
    return;
  end if;
  v_groups := array(
    select g.group_id from fenceline.entry_group g
    where g.group_id > p_groups and g.index_id = p_index and g.state <> 'PURGED'
    order by g.group_id limit p_limit for no key update);
  update fenceline.group_root r set state = 'SUPERSEDED'
  where r.group_id = any (v_groups) and r.state in ('PENDING', 'CURRENT');
  update fenceline.entry_group g set purge_due = true where g.group_id = any (v_groups) and not g.purge_due;
  v_subscriptions := array(
    select o.subscription_id from fenceline.outbox o
    where o.index_id = p_index and o.subscription_id > p_subscriptions
    order by o.subscription_id limit p_limit for update);
  delete from fenceline.outbox o where o.index_id = p_index and o.subscription_id = any (v_subscriptions);
  if cardinality(v_groups) + cardinality(v_subscriptions) > 0 then
    last_group := coalesce(v_groups[cardinality(v_groups)], p_groups);
    last_subscription := coalesce(v_subscriptions[cardinality(v_subscriptions)], p_subscriptions);
  end if;
end $$;
