import {
  type LifecycleState,
  lifecycleStates,
  type SubscriptionEvent,
  subscriptionEvents,
  subscriptionTable,
} from "#src/subscription-state.js";

const HEAD = `-- The cells of subscription-state.ts in which something happens. Do not edit: the table is changed there, and
--   npx vitest run packages/ledger/test/database/lifecycle-transitions.test.ts --update
-- writes this anew.

-- As a table, for whoever looks back.
--   from_state       null: it comes to be
--   generation_step  1: the state is entered under a new generation
create or replace function fenceline.lifecycle_transitions()
returns table (from_state fenceline.lifecycle, event text, to_state fenceline.lifecycle, generation_step int)
language sql stable as $$
  select * from (values
`;

const CHECK = `
-- As one question: whether the table has the cell; without an event it has none. An expression and no query, because every
-- transition asks it (a look-up in the table above takes 90 us).
create or replace function fenceline.is_transition(
  p_from fenceline.lifecycle, p_event text, p_to fenceline.lifecycle, p_generation_step bigint
) returns boolean language sql stable as $$
  select coalesce(case p_from
`;

interface Transition {
  readonly from: LifecycleState;
  readonly event: SubscriptionEvent;
  readonly to: LifecycleState;
  readonly step: 0 | 1;
}

/** The function file that the SQL's checks ask, as the table of the state machine makes it. */
export function lifecycleTransitionsText(): string {
  const cells = lifecycleStates.flatMap((from) => transitionsFrom(from));
  const rows = cells.map(({ from, event, to, step }) => `    ('${from}', '${event}', '${to}', ${step})`);
  const first = "    (null::fenceline.lifecycle, 'listed', 'DISCOVERED'::fenceline.lifecycle, 0)";
  return `${HEAD}${[first, ...rows].join(",\n")}) as cells\n$$;\n${CHECK}${lifecycleStates.map(branchOf).join("\n")}
    else p_event = 'listed' and p_to = 'DISCOVERED' and p_generation_step = 0
    end, false)
$$;
`;
}

function transitionsFrom(from: LifecycleState): Transition[] {
  return subscriptionEvents.flatMap((event) => {
    const cell = subscriptionTable[from][event];
    return "to" in cell ? [{ from, event, to: cell.to, step: cell.generation === "next" ? 1 : 0 }] : [];
  });
}

/** One state's part of the question. */
function branchOf(from: LifecycleState): string {
  const cells = transitionsFrom(from).map(
    ({ event, to, step }) => `      p_event = '${event}' and p_to = '${to}' and p_generation_step = ${step}`,
  );
  return `    when '${from}' then\n${cells.join(" or\n")}`;
}
