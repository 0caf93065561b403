-- The invariants that the database can see by itself (reliability), each recomputed from the rows. One function per area;
-- every row names a fact, how many things it was checked on, and for how many it does not hold.

create or replace function fenceline.verify() returns table (name text, checked bigint, broken bigint)
language sql stable as $$
  select * from fenceline.verify_fence()
  union all select * from fenceline.verify_transitions()
  union all select * from fenceline.verify_scans()
  union all select * from fenceline.verify_lineage()
  union all select * from fenceline.verify_policy()
$$;

-- Fence and versions: F1 to F6, U7, U8.
create or replace function fenceline.verify_fence() returns table (name text, checked bigint, broken bigint)
language sql stable as $$
  select 'watermark_not_above_issued', count(*), count(*) filter (where s.accepted_ordinal > s.issued_ordinal)
  from fenceline.subscription s
  union all
  -- Evidence without content ("not found", "forbidden") raises the watermark and makes no version; a deletion leaves none.
  select 'accepted_subscription_has_its_version', count(*),
         count(*) filter (where v.ordinal is null or s.accepted_ordinal < s.version_ordinal or exists (
           select 1 from fenceline.resource_version n
           where n.subscription_id = s.subscription_id and n.ordinal > s.version_ordinal))
  from fenceline.subscription s
  left join fenceline.resource_version v on v.subscription_id = s.subscription_id and v.ordinal = s.version_ordinal
  where s.version_ordinal is not null
  union all
  select 'version_has_its_read', count(*), count(*) filter (where r.generation is distinct from v.generation)
  from fenceline.resource_version v left join fenceline.read r using (subscription_id, ordinal)
  union all
  select 'no_version_after_close', count(*), count(*) filter (where v.ordinal > s.close_ordinal)
  from fenceline.resource_version v join fenceline.subscription s using (subscription_id)
  where s.close_ordinal is not null
  union all
  select 'one_session_holds_a_scope', count(*), count(*) filter (where x.generation <> p.session_generation)
  from fenceline.session x join fenceline.policy_scope p using (scope_id) where x.ended_at is null
  union all
  -- Those closed, hidden or not yet read in their generation raise it when they are read.
  select 'accepted_version_is_due_or_confirmed', count(*),
         count(*) filter (where o.ordinal is distinct from s.version_ordinal
                            or o.confirmed_ordinal < o.ordinal and not o.pending)
  from fenceline.subscription s
  join fenceline.resource_version v on v.subscription_id = s.subscription_id and v.ordinal = s.version_ordinal
  cross join fenceline.index i
  left join fenceline.outbox o on o.subscription_id = s.subscription_id and o.index_id = i.index_id
  where s.lifecycle = 'ACTIVE' and s.hidden_because is null and v.generation = s.generation and i.filled_at is not null
    and i.takes_versions and i.retired_at is null
$$;

-- Entries, groups and edges: L1 to L5, P3.
create or replace function fenceline.verify_lineage() returns table (name text, checked bigint, broken bigint)
language sql stable as $$
  select 'entry_has_a_group', count(*), count(*) filter (where g.group_id is null)
  from fenceline.entry e left join fenceline.entry_group g using (group_id)
  union all
  select 'present_group_has_its_entries', count(*),
         count(*) filter (where g.entries = 0 or g.entries <> (
           select count(*) from fenceline.entry e where e.group_id = g.group_id))
  from fenceline.entry_group g where g.state = 'PRESENT'
  union all
  select 'purged_settled_group_has_no_entries', count(*),
         count(*) filter (where exists (select 1 from fenceline.entry e where e.group_id = g.group_id))
  from fenceline.entry_group g where g.state = 'PURGED' and g.settled
  union all
  select 'unsettled_purged_group_is_swept_again', count(*), count(*) filter (where not g.purge_due)
  from fenceline.entry_group g where g.state = 'PURGED' and not g.settled
  union all
  select 'dead_group_is_due_for_purge', count(*),
         count(*) filter (where not g.purge_due and fenceline.is_group_dead(g.group_id))
  from fenceline.entry_group g where g.state in ('PRESENT', 'PURGING')
  union all
  select 'edge_has_group_and_version', count(*), count(*) filter (where g.group_id is null or v.ordinal is null)
  from fenceline.group_root r
  left join fenceline.entry_group g using (group_id)
  left join fenceline.resource_version v using (subscription_id, ordinal)
  union all
  -- Of an entry made of several, the edges of other ingredients stay CURRENT when one dies.
  select 'current_edge_is_on_a_present_group', count(*),
         count(*) filter (where g.state is distinct from 'PRESENT' and not (r.derived and fenceline.is_group_dead(r.group_id)))
  from fenceline.group_root r left join fenceline.entry_group g using (group_id) where r.state = 'CURRENT'
  union all
  select 'one_current_version_per_index', count(*), count(*) filter (where c.versions > 1)
  from (select count(distinct r.ordinal) as versions from fenceline.group_root r
        where r.state = 'CURRENT' and r.ingredient = 0 and not r.derived group by r.subscription_id, r.index_id) c
  union all
  select 'group_stays_in_one_source_and_uri', count(*), count(*) filter (where r.resource_id <> g.resource_id)
  from fenceline.group_root r join fenceline.entry_group g using (group_id) where g.resource_id is not null
  union all
  select 'derived_group_has_parents_and_roots', count(*),
         count(*) filter (where not exists (select 1 from fenceline.group_parent n where n.group_id = g.group_id)
                            or not exists (select 1 from fenceline.group_root r where r.group_id = g.group_id and r.derived))
  from fenceline.entry_group g where g.kind not in ('chunk', 'embedding')
  union all
  select 'derived_from_newest_versions_alone', count(*), count(*) filter (where r.ordinal < s.version_ordinal)
  from fenceline.group_root r
  join fenceline.entry_group g using (group_id) join fenceline.subscription s using (subscription_id)
  where r.derived and r.state = 'CURRENT' and g.kind <> 'embedding'
  union all
  select 'entry_for_one_audience_not_revoked_there', count(*), count(*) filter (where r.group_id is not null)
  from fenceline.revocation v
  left join lateral (
    select g.group_id
    from fenceline.entry_group g join fenceline.group_root r using (group_id)
    join fenceline.resource q on q.resource_id in (r.resource_id, r.part_id)
    join fenceline.revocation_cover c on c.revocation_id = v.revocation_id and c.hash = any (q.deny_hashes)
    where g.audience_id = v.subject_id and r.state = 'CURRENT'
    limit 1) r on true
  where v.state <> 'LIFTED' and v.marked_all and v.role <> 'reader'
  union all
  select 'exports_left_open_are_waited_for', count(*),
         count(*) filter (where (v.state = 'COMPLETE_EXCEPT_EXPORTS') is distinct from exists (
           select 1 from fenceline.revocation_export x join fenceline.export e using (export_id)
           where x.revocation_id = v.revocation_id and e.acknowledged_at is null))
  from fenceline.revocation v where v.state in ('COMPLETE', 'COMPLETE_EXCEPT_EXPORTS')
  union all
  -- Between a retirement and its last batch these are being ended.
  select 'retired_index_serves_nothing', count(*), count(*) filter (where g.state = 'PRESENT' and not g.purge_due)
  from fenceline.index i join fenceline.entry_group g using (index_id) where i.retired_at is not null
$$;

-- Grants and revocations: G1, P1 to P5.
create or replace function fenceline.verify_policy() returns table (name text, checked bigint, broken bigint)
language sql stable as $$
  select 'grant_names_known_subjects', count(*),
         count(*) filter (where src.source_id is null or r.subject_id is null or a.subject_id is null)
  from fenceline.access_grant g
  left join fenceline.source src on src.source_id = g.source_id
  left join fenceline.subject r on r.subject_id = g.reader_id
  left join fenceline.subject a on a.subject_id = g.audience_id
  union all
  select 'standing_revocations_are_counted', count(*),
         count(*) filter (where p.standing_revocations <> (
           select count(*) from fenceline.revocation v
           where v.subject_id = p.subject_id and (v.source_id is null or v.source_id = p.source_id)
             and v.state <> 'LIFTED'))
  from fenceline.policy_scope p
  union all
  select 'exactly_standing_revocations_cover', count(*),
         count(*) filter (where (v.state = 'LIFTED') = exists (
           select 1 from fenceline.revocation_cover c where c.revocation_id = v.revocation_id))
  from fenceline.revocation v
  union all
  select 'marked_revocation_left_no_current_edge', count(*), count(*) filter (where r.group_id is not null)
  from fenceline.revocation v
  left join lateral (
    select r.group_id
    from fenceline.revocation_cover c
    join fenceline.resource q on c.hash = any (q.deny_hashes)
    join fenceline.policy_scope p on p.subject_id = c.subject_id and p.source_id = q.source_id
    join fenceline.group_root r on r.scope_id = p.scope_id and q.resource_id in (r.resource_id, r.part_id)
    where c.revocation_id = v.revocation_id and r.state = 'CURRENT'
    limit 1) r on true
  where v.state <> 'LIFTED' and v.marked_all and v.role <> 'audience'
  union all
  select 'closed_by_revocation_keeps_no_body', count(*),
         count(*) filter (where exists (select 1 from fenceline.body b where b.subscription_id = s.subscription_id))
  from fenceline.subscription s where s.closed_by is not null
  union all
  select 'complete_revocation_has_nothing_left', count(*),
         count(*) filter (where not (v.closed_all and v.marked_all) or exists (
           select 1 from fenceline.revocation_group x join fenceline.entry_group g using (group_id)
           where x.revocation_id = v.revocation_id and fenceline.awaits_purge(g)))
  from fenceline.revocation v where v.state in ('COMPLETE', 'COMPLETE_EXCEPT_EXPORTS')
$$;
