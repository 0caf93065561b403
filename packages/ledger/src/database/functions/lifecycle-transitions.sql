-- The cells of subscription-state.ts in which something happens. Do not edit: the table is changed there, and
--   npx vitest run packages/ledger/test/database/lifecycle-transitions.test.ts --update
-- writes this anew.
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
