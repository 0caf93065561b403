-- Cached embeddings as lineage (L5): the vector of a text lies in a store of the caller's, its record here. It stands for every
-- version of one (source, URI) that holds the text, and lives while one of them does.

-- Which of these texts of a part have a cached embedding.
--   p_index                     the index of cached embeddings: one embedding space
--   p_subscription, p_part      whose text: of its (source, URI) and part, whoever read it
--   p_digests                   keyed digests
create or replace function fenceline.cached_embeddings(p_index int, p_subscription bigint, p_part bigint, p_digests bytea[])
returns table (chunk_digest bytea, entry_number bigint)
language plpgsql stable set enable_seqscan = off as $$
#variable_conflict use_column
begin
  return query
    select distinct on (e.chunk_digest) e.chunk_digest, e.entry_number
    from fenceline.subscription s
    join fenceline.entry_group g on g.resource_id = s.resource_id and g.index_id = p_index and g.part_id = p_part
    join fenceline.index i on i.index_id = g.index_id
    join fenceline.entry e on e.group_id = g.group_id
    where s.subscription_id = p_subscription and g.kind = 'embedding' and g.state = 'PRESENT' and g.settled
      and i.retired_at is null and e.chunk_digest = any (p_digests)
    order by e.chunk_digest, e.entry_number;
end $$;

-- Lets cached embeddings stand for one more version, before they are used for it.
--   p_index                    the index of cached embeddings
--   p_subscription, p_ordinal  the version: the newest one
--   p_entries                  numbers of cached entries of its (source, URI)
-- Result: those that stand for it now. The others are gone, or the version is (superseded, revoked, hidden): embed anew.
create or replace function fenceline.attach_embeddings(p_index int, p_subscription bigint, p_ordinal bigint, p_entries bigint[])
returns bigint[]
language plpgsql volatile set enable_seqscan = off as $$
declare
  v_locked bigint[];
  v_needed bigint[];
  v_entries bigint[];
begin
  perform fenceline.fence_scopes_of(array[p_subscription]);
  perform 1 from fenceline.subscription s where s.subscription_id = p_subscription for no key update;
  loop
    v_needed := array(
      select distinct e.group_id from fenceline.entry e where e.entry_number = any (p_entries) order by e.group_id);
    exit when v_needed = v_locked;
    perform 1 from fenceline.entry_group g where g.group_id = any (v_needed) order by g.group_id for no key update;
    v_locked := v_needed;
  end loop;
  v_entries := array(
    select e.entry_number
    from fenceline.entry e
    join fenceline.entry_group g using (group_id)
    join fenceline.index i using (index_id)
    join fenceline.subscription s on s.subscription_id = p_subscription
    where e.entry_number = any (p_entries) and g.index_id = p_index and i.retired_at is null and g.kind = 'embedding'
      and g.state = 'PRESENT' and g.settled and g.resource_id = s.resource_id
      and fenceline.root_problem(p_subscription, p_ordinal, g.part_id, null) is null
    order by e.entry_number);
  if cardinality(v_entries) = 0 then
    return v_entries;
  end if;
  perform fenceline.split_reused_groups(v_entries, array_fill(p_subscription, array[cardinality(v_entries)]));
  perform fenceline.attach_reused(p_index, array[p_subscription], array[p_ordinal], v_entries,
                                  array_fill(p_subscription, array[cardinality(v_entries)]), true);
  update fenceline.subscription set derived = true where subscription_id = p_subscription and not derived;
  return v_entries;
end $$;
