-- The state machine as it was lived through (reliability 4): receipts of transitions against the table, against each other, and
-- against the subscriptions.
create or replace function fenceline.verify_transitions() returns table (name text, checked bigint, broken bigint)
language sql stable as $$
  select 'transition_is_a_cell', count(*),
    count(*) filter (where not exists (
      select 1 from fenceline.lifecycle_transitions() t
      where t.from_state is not distinct from r.from_state and t.event = r.event and t.to_state = r.to_state))
  from fenceline.receipt r where r.to_state is not null and r.kind <> 'known_before'
  union all
  select 'subscription_is_where_its_last_transition_led', count(*),
    count(*) filter (where (r.to_state, r.generation) is distinct from (s.lifecycle, s.generation))
  from fenceline.subscription s
  left join lateral (
    select x.to_state, x.generation from fenceline.receipt x
    where x.subscription_id = s.subscription_id and x.to_state is not null
    order by x.receipt_id desc limit 1) r on true
  union all
  -- Of what was pruned only the last transition and the closes are left, so no chain reaches back into it.
  select 'transitions_form_a_chain', count(*),
    count(*) filter (where (c.before, c.generation_before + c.step) is distinct from (c.from_state, c.generation))
  from (
    select r.receipt_id, r.from_state, r.generation, r.kind,
      lag(r.to_state) over of_subscription as before, lag(r.generation) over of_subscription as generation_before,
      coalesce((select t.generation_step from fenceline.lifecycle_transitions() t
        where t.from_state = r.from_state and t.event = r.event), 0) as step
    from fenceline.receipt r
    where r.to_state is not null and r.receipt_id > (select i.receipts_pruned_to from fenceline.identity i)
    window of_subscription as (partition by r.subscription_id order by r.receipt_id)) c
  where c.from_state is not null and (c.before is not null or (select i.receipts_pruned_to from fenceline.identity i) = 0)
$$;
