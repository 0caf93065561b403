-- Every transition of a subscription (a change of its lifecycle or its generation) is a cell of the state machine's table and
-- leaves a receipt. Statements name the event in the same update; triggers check and record (functions/transitions.sql).
-- The triggers stand here, what they do in the functions, which are created anew with every version.

alter table fenceline.subscription
  add column lifecycle_event text;                 -- of its last transition, as subscription-state.ts names it

-- A receipt with a to_state is a transition's: it has a generation, and an event unless it tells of what was there before
-- transitions were recorded. No constraint says so: each statement that inserts one would prepare it anew (17 us).
alter table fenceline.receipt
  add column event text,
  add column from_state fenceline.lifecycle,       -- null: it came to be
  add column to_state fenceline.lifecycle,
  add column generation bigint,                    -- after the transition
  add column xid xid8 not null default pg_current_xact_id();
create index receipt_transition on fenceline.receipt (subscription_id, receipt_id) where to_state is not null;

insert into fenceline.receipt (scope_id, subscription_id, ordinal, kind, to_state, generation)
select scope_id, subscription_id, close_ordinal, 'known_before', lifecycle, generation
from fenceline.subscription order by subscription_id;

-- Receipts up to here may have been pruned: whoever checks that transitions form a chain begins after it.
alter table fenceline.identity add column receipts_pruned_to bigint not null default 0;

create function fenceline.on_subscription_created() returns trigger language plpgsql volatile as $$
begin
  perform fenceline.record_creations(array(select subscription_id from added));
  return null;
end $$;
create trigger subscription_created after insert on fenceline.subscription
  referencing new table as added for each statement execute function fenceline.on_subscription_created();

create function fenceline.on_subscription_transition() returns trigger language plpgsql volatile as $$
begin
  perform fenceline.record_transition(old, new);
  return null;
end $$;
-- The columns keep the hot paths (issue, accept, notify), which set neither, from reading the condition.
create trigger subscription_transition after update of lifecycle, generation on fenceline.subscription
  for each row when (old.lifecycle <> new.lifecycle or old.generation <> new.generation)
  execute function fenceline.on_subscription_transition();
