-- Transitions of subscriptions: checked against the table of subscription-state.ts and recorded, by the triggers of
-- 0003-transitions.sql alone. A statement that makes one sets lifecycle_event; if it forgets to, the event of the transition
-- before stands there, and no event moves a subscription twice in a row.

-- What came to be: DISCOVERED by a listing. Set by set, for a publication adds a thousand at a time.
create or replace function fenceline.record_creations(p_subscriptions bigint[]) returns void language plpgsql volatile as $$
declare
  v_refused fenceline.subscription;
begin
  select s.* into v_refused from fenceline.subscription s
  where s.subscription_id = any (p_subscriptions)
    and not (s.generation = 1 and fenceline.is_transition(null, s.lifecycle_event, s.lifecycle, 0))
  limit 1;
  if found then perform fenceline.refuse_transition(null, v_refused); end if;
  insert into fenceline.receipt (scope_id, subscription_id, kind, detail, event, to_state, generation, at)
  select s.scope_id, s.subscription_id, 'discovered', jsonb_build_object('scan', s.listed_scan_id), s.lifecycle_event, s.lifecycle,
    s.generation, c.now
  from fenceline.subscription s cross join (select fenceline.now() as now) c
  where s.subscription_id = any (p_subscriptions) order by s.subscription_id;
end $$;

-- One transition: refused, with what was tried, if the table has no such cell; else its receipt. The ordinal is the close ordinal.
create or replace function fenceline.record_transition(p_from fenceline.subscription, p_to fenceline.subscription)
returns void language plpgsql volatile as $$
begin
  if not fenceline.is_transition(p_from.lifecycle, p_to.lifecycle_event, p_to.lifecycle, p_to.generation - p_from.generation) then
    perform fenceline.refuse_transition(p_from, p_to);
  end if;
  insert into fenceline.receipt
    (scope_id, subscription_id, ordinal, kind, detail, event, from_state, to_state, generation, at)
  values (p_to.scope_id, p_to.subscription_id, p_to.close_ordinal, fenceline.transition_kind(p_from.lifecycle, p_to.lifecycle),
    jsonb_strip_nulls(jsonb_build_object(
      'by', case p_to.lifecycle_event when 'revoked' then 'revocation' when 'lifted' then 'lift'
        when 'unsubscribe_acknowledged' then 'unsubscribe' when 'session_closed' then 'session_end' end,
      'revocation', case when p_to.lifecycle_event in ('revoked', 'unsubscribe_acknowledged', 'unsubscribe_ack_lost', 'session_closed', 'lifted')
        then coalesce(p_to.closed_by, p_from.closed_by) end,
      'scan', case when p_to.lifecycle_event in ('listed', 'scan_settled', 'identity_unclear') then p_to.listed_scan_id end,
      'policyEpoch', p_to.close_policy_epoch,
      'mode', case p_to.lifecycle_event when 'acknowledged' then 'pushed' when 'not_acknowledged' then 'polled' end)),
    p_to.lifecycle_event, p_from.lifecycle, p_to.lifecycle, p_to.generation, fenceline.now());
end $$;

-- Names what was tried.
create or replace function fenceline.refuse_transition(p_from fenceline.subscription, p_to fenceline.subscription)
returns void language plpgsql volatile as $$
begin
  raise exception 'subscription % cannot go from % (generation %) by % to % (generation %)', p_to.subscription_id,
    coalesce(p_from.lifecycle::text, 'nothing'), p_from.generation, coalesce(p_to.lifecycle_event, 'no event'), p_to.lifecycle,
    p_to.generation
    using errcode = 'check_violation', constraint = 'transition_is_a_cell', table = 'subscription',
      hint = 'Set lifecycle_event in the statement that changes lifecycle or generation.';
end $$;

-- The kind of a transition's receipt: what was reached, and by which way where there are two.
create or replace function fenceline.transition_kind(p_from fenceline.lifecycle, p_to fenceline.lifecycle) returns text
language sql stable as $$
  select case
    when p_to = 'SUBSCRIBING' and p_from = 'CLOSED' then 'reopened'
    when p_to = 'ACTIVE' and p_from = 'RECONCILIATION_REQUIRED' then 'reconciled'
    when p_to = 'ACTIVE' then 'activated'
    else lower(p_to::text) end
$$;
