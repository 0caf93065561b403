-- What the ledger can say about itself: what is recorded, and how things stand. Where an entry came from is in trace.sql.

-- Numbers of the entries that are PRESENT in an index, in order, after one of them.
create or replace function fenceline.recorded_entries(p_index text, p_limit int, p_after bigint)
returns table (index_id int, entry_number bigint)
language sql stable as $$
  select i.index_id, e.entry_number
  from fenceline.entry e
  join fenceline.entry_group g using (group_id)
  join fenceline.index i using (index_id)
  where i.name = p_index and g.state = 'PRESENT' and e.entry_number > p_after
  order by e.entry_number limit p_limit
$$;

-- The groups' states of these entries of an index; a number without a record has no row.
create or replace function fenceline.entry_states(p_index text, p_entries bigint[])
returns table (index_id int, entry_number bigint, state text)
language sql stable as $$
  select i.index_id, e.entry_number, g.state::text
  from fenceline.entry e
  join fenceline.entry_group g using (group_id)
  join fenceline.index i using (index_id)
  where e.entry_number = any (p_entries) and i.name = p_index
$$;

-- How each source stands under each reader that has a session or a subscription there. The last scan that ended tells what the
-- catalogue does not: a listing that failed is unknown, and the catalogue stays what it was (S8), as does what was found wrong with
-- the list when it was last walked to its end.
create or replace function fenceline.source_status()
returns table (name text, reader text, era text, pushed int, polled int, scan text, oldest_verified_at timestamptz, due int,
               holder text, catalog_measured_at timestamptz, next_review_at timestamptz, last_scan_verdict text, last_scan_reason text,
               last_scan_ended_at timestamptz, list_faults jsonb, held_removals int)
language sql stable as $$
  select src.name, subj.name,
         (select c.negotiated ->> 'era' from fenceline.session x join fenceline.capability_receipt c using (session_id)
          where x.scope_id = p.scope_id order by c.capability_receipt_id desc limit 1),
         n.pushed, n.polled, p.catalog_verdict::text, n.oldest_verified_at, n.due,
         (select x.owner from fenceline.session x
          where x.scope_id = p.scope_id and x.generation = p.session_generation and x.ended_at is null
            and x.expires_at > fenceline.now()),
         p.catalog_measured_at, p.next_review_at, last.verdict::text, last.reason, last.ended_at,
         (select x.faults from fenceline.scan x
          where x.scope_id = p.scope_id and x.ended_at is not null and x.verdict is distinct from 'INCOMPLETE'
          order by x.scan_id desc limit 1),
         (select count(*)::int from fenceline.held_removal h where h.scope_id = p.scope_id and h.ended_at is null)
  from fenceline.policy_scope p
  join fenceline.source src using (source_id)
  join fenceline.subject subj using (subject_id)
  cross join lateral (
    select count(*)::int as subscriptions,
           (count(*) filter (where s.lifecycle = 'ACTIVE' and s.pushed))::int as pushed,
           (count(*) filter (where s.lifecycle = 'ACTIVE' and not s.pushed))::int as polled,
           min(s.verified_at) filter (where s.lifecycle = 'ACTIVE' and s.hidden_because is null) as oldest_verified_at,
           (count(*) filter (where s.lifecycle = 'ACTIVE' and s.due_at <= fenceline.now()))::int as due
    from fenceline.subscription s where s.scope_id = p.scope_id) n
  left join lateral (
    select x.verdict, x.reason, x.ended_at from fenceline.scan x
    where x.scope_id = p.scope_id and x.ended_at is not null order by x.scan_id desc limit 1) last on true
  where n.subscriptions > 0 or p.session_generation > 0
  order by src.name, subj.name
$$;

-- What waits, and how the stores are. A store is out of reach when its last purge failed, or when a revocation waits for one
-- for more than 30 s (P6) and nobody claims it (P5).
create or replace function fenceline.ledger_status()
returns table (open_revocations int, complete_revocations int, reads int, by_index json, by_store json, stores json)
language sql stable as $$
  select (count(*) filter (where v.state in ('EFFECTIVE', 'COMPLETE_EXCEPT_EXPORTS')))::int,
         (count(*) filter (where v.state = 'COMPLETE'))::int,
         (select count(*)::int from fenceline.subscription s
          where s.lifecycle = 'ACTIVE' and s.due_at <= fenceline.now()),
         (select json_agg(json_build_object('index', w.name, 'version', w.version, 'resources', w.resources) order by w.name, w.version)
          from (
            select i.name, i.version, count(*)::int as resources
            from fenceline.outbox o
            join fenceline.subscription s using (subscription_id)
            join fenceline.index i using (index_id)
            where o.pending and fenceline.may_be_indexed(s)
            group by i.name, i.version) w),
         (select json_agg(json_build_object('store', w.name, 'groups', w.groups) order by w.name)
          from (
            select st.name, count(*)::int as groups
            from fenceline.entry_group g join fenceline.store st using (store_id)
            where g.purge_due and g.state not in ('INTENT', 'PURGED')
            group by st.name) w),
         (select json_agg(json_build_object('store', st.name, 'failure', coalesce(st.failure, case when exists (
              select 1 from fenceline.revocation w
              join fenceline.revocation_group x on x.revocation_id = w.revocation_id
              join fenceline.entry_group g on g.group_id = x.group_id
              where w.state = 'EFFECTIVE' and w.effective_at < fenceline.now() - interval '30 seconds'
                and g.store_id = st.store_id and g.state <> 'INTENT' and g.claim_token is null
                and fenceline.awaits_purge(g))
            then 'no process removes from it' end)) order by st.name)
          from fenceline.store st)
  from fenceline.revocation v
$$;
