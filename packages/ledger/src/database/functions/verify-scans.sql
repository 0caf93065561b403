-- The gates of discovery (spec section 11): what is named a catalogue was reconciled or proven, and what a completeness task
-- used was proven. Publications of versions that did not note their scans are not judged.
create or replace function fenceline.verify_scans() returns table (name text, checked bigint, broken bigint)
language sql stable as $$
  select 'catalogue_was_reconciled', count(*),
    count(*) filter (where not coalesce(case
      when x.agreed_with = x.scan_id then x.verdict = 'SNAPSHOT_PROVEN' and x.snapshot_id_digest is not null
      else y.set_digest = x.set_digest and y.session_generation = x.session_generation and y.scan_id < x.scan_id
        and y.ended_at <= x.started_at end, false))
  from fenceline.policy_scope p
  left join fenceline.scan x on x.scan_id = p.catalog_scan_id
  left join fenceline.scan y on y.scan_id = x.agreed_with and y.scope_id = x.scope_id
  where p.catalog_scan_id is not null and (x.scan_id is null or x.agreed_with is not null)
  union all
  select 'completeness_task_took_a_proven_snapshot', count(*),
    count(*) filter (where x.absence_allowed and (x.verdict = 'SNAPSHOT_PROVEN' and x.snapshot_id_digest is not null) is not true)
  from fenceline.scan x
$$;
