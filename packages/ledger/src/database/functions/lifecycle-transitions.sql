-- The cells of subscription-state.ts in which something happens. Do not edit: the table is changed there, and
--   npx vitest run packages/ledger/test/database/lifecycle-transitions.test.ts --update
-- writes this anew.

-- As a table, for whoever looks back.
--   from_state       null: it comes to be
--   generation_step  1: the state is entered under a new generation
create or replace function fenceline.lifecycle_transitions()
returns table (from_state fenceline.lifecycle, event text, to_state fenceline.lifecycle, generation_step int)
language sql stable as $$
  select * from (values
    (null::fenceline.lifecycle, 'listed', 'DISCOVERED'::fenceline.lifecycle, 0),
    ('DISCOVERED', 'subscribe_sent', 'SUBSCRIBING', 0),
    ('DISCOVERED', 'revoked', 'CLOSED', 0),
    ('DISCOVERED', 'identity_unclear', 'RECONCILIATION_REQUIRED', 0),
    ('SUBSCRIBING', 'subscribe_sent', 'SUBSCRIBING', 0),
    ('SUBSCRIBING', 'acknowledged', 'ACTIVE', 0),
    ('SUBSCRIBING', 'not_acknowledged', 'ACTIVE', 0),
    ('SUBSCRIBING', 'unsubscribe_begun', 'UNSUBSCRIBING', 0),
    ('SUBSCRIBING', 'revoked', 'UNSUBSCRIBING', 0),
    ('SUBSCRIBING', 'identity_unclear', 'RECONCILIATION_REQUIRED', 0),
    ('SUBSCRIBING', 'session_lost', 'SUBSCRIBING', 0),
    ('SUBSCRIBING', 'session_closed', 'SUBSCRIBING', 0),
    ('ACTIVE', 'subscribe_sent', 'ACTIVE', 0),
    ('ACTIVE', 'acknowledged', 'ACTIVE', 0),
    ('ACTIVE', 'not_acknowledged', 'ACTIVE', 0),
    ('ACTIVE', 'notified', 'ACTIVE', 0),
    ('ACTIVE', 'read_issued', 'ACTIVE', 0),
    ('ACTIVE', 'read_accepted', 'ACTIVE', 0),
    ('ACTIVE', 'read_lost', 'ACTIVE', 0),
    ('ACTIVE', 'not_found', 'ACTIVE', 0),
    ('ACTIVE', 'tombstoned', 'ACTIVE', 0),
    ('ACTIVE', 'unsubscribe_begun', 'UNSUBSCRIBING', 0),
    ('ACTIVE', 'revoked', 'UNSUBSCRIBING', 0),
    ('ACTIVE', 'identity_unclear', 'RECONCILIATION_REQUIRED', 0),
    ('ACTIVE', 'session_lost', 'ACTIVE', 0),
    ('ACTIVE', 'session_closed', 'ACTIVE', 0),
    ('UNSUBSCRIBING', 'unsubscribe_acknowledged', 'CLOSED', 0),
    ('UNSUBSCRIBING', 'unsubscribe_ack_lost', 'UNSUBSCRIBE_UNKNOWN', 0),
    ('UNSUBSCRIBING', 'session_lost', 'UNSUBSCRIBE_UNKNOWN', 0),
    ('UNSUBSCRIBING', 'session_closed', 'CLOSED', 0),
    ('CLOSED', 'listed', 'SUBSCRIBING', 1),
    ('CLOSED', 'lifted', 'SUBSCRIBING', 1),
    ('UNSUBSCRIBE_UNKNOWN', 'unsubscribe_acknowledged', 'CLOSED', 0),
    ('UNSUBSCRIBE_UNKNOWN', 'session_closed', 'CLOSED', 0),
    ('RECONCILIATION_REQUIRED', 'unsubscribe_begun', 'UNSUBSCRIBING', 0),
    ('RECONCILIATION_REQUIRED', 'revoked', 'UNSUBSCRIBING', 0),
    ('RECONCILIATION_REQUIRED', 'scan_settled', 'ACTIVE', 1)) as cells
$$;

-- As one question: whether the table has the cell; without an event it has none. An expression and no query, because every
-- transition asks it (a look-up in the table above takes 90 us).
create or replace function fenceline.is_transition(
  p_from fenceline.lifecycle, p_event text, p_to fenceline.lifecycle, p_generation_step bigint
) returns boolean language sql stable as $$
  select coalesce(case p_from
    when 'DISCOVERED' then
      p_event = 'subscribe_sent' and p_to = 'SUBSCRIBING' and p_generation_step = 0 or
      p_event = 'revoked' and p_to = 'CLOSED' and p_generation_step = 0 or
      p_event = 'identity_unclear' and p_to = 'RECONCILIATION_REQUIRED' and p_generation_step = 0
    when 'SUBSCRIBING' then
      p_event = 'subscribe_sent' and p_to = 'SUBSCRIBING' and p_generation_step = 0 or
      p_event = 'acknowledged' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'not_acknowledged' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'unsubscribe_begun' and p_to = 'UNSUBSCRIBING' and p_generation_step = 0 or
      p_event = 'revoked' and p_to = 'UNSUBSCRIBING' and p_generation_step = 0 or
      p_event = 'identity_unclear' and p_to = 'RECONCILIATION_REQUIRED' and p_generation_step = 0 or
      p_event = 'session_lost' and p_to = 'SUBSCRIBING' and p_generation_step = 0 or
      p_event = 'session_closed' and p_to = 'SUBSCRIBING' and p_generation_step = 0
    when 'ACTIVE' then
      p_event = 'subscribe_sent' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'acknowledged' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'not_acknowledged' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'notified' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'read_issued' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'read_accepted' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'read_lost' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'not_found' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'tombstoned' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'unsubscribe_begun' and p_to = 'UNSUBSCRIBING' and p_generation_step = 0 or
      p_event = 'revoked' and p_to = 'UNSUBSCRIBING' and p_generation_step = 0 or
      p_event = 'identity_unclear' and p_to = 'RECONCILIATION_REQUIRED' and p_generation_step = 0 or
      p_event = 'session_lost' and p_to = 'ACTIVE' and p_generation_step = 0 or
      p_event = 'session_closed' and p_to = 'ACTIVE' and p_generation_step = 0
    when 'UNSUBSCRIBING' then
      p_event = 'unsubscribe_acknowledged' and p_to = 'CLOSED' and p_generation_step = 0 or
      p_event = 'unsubscribe_ack_lost' and p_to = 'UNSUBSCRIBE_UNKNOWN' and p_generation_step = 0 or
      p_event = 'session_lost' and p_to = 'UNSUBSCRIBE_UNKNOWN' and p_generation_step = 0 or
      p_event = 'session_closed' and p_to = 'CLOSED' and p_generation_step = 0
    when 'CLOSED' then
      p_event = 'listed' and p_to = 'SUBSCRIBING' and p_generation_step = 1 or
      p_event = 'lifted' and p_to = 'SUBSCRIBING' and p_generation_step = 1
    when 'UNSUBSCRIBE_UNKNOWN' then
      p_event = 'unsubscribe_acknowledged' and p_to = 'CLOSED' and p_generation_step = 0 or
      p_event = 'session_closed' and p_to = 'CLOSED' and p_generation_step = 0
    when 'RECONCILIATION_REQUIRED' then
      p_event = 'unsubscribe_begun' and p_to = 'UNSUBSCRIBING' and p_generation_step = 0 or
      p_event = 'revoked' and p_to = 'UNSUBSCRIBING' and p_generation_step = 0 or
      p_event = 'scan_settled' and p_to = 'ACTIVE' and p_generation_step = 1
    else p_event = 'listed' and p_to = 'DISCOVERED' and p_generation_step = 0
    end, false)
$$;
