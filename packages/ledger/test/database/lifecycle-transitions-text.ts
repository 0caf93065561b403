import { lifecycleStates, subscriptionEvents, subscriptionTable } from "#src/subscription-state.js";

const HEAD = `-- The cells of subscription-state.ts in which something happens. Do not edit: the table is changed there, and
--   npx vitest run packages/ledger/test/database/lifecycle-transitions.test.ts --update
-- writes this anew.
--   from_state       null: it comes to be
--   generation_step  1: the state is entered under a new generation
create or replace function fenceline.lifecycle_transitions()
returns table (from_state fenceline.lifecycle, event text, to_state fenceline.lifecycle, generation_step int)
language sql stable as $$
  select * from (values
    (null::fenceline.lifecycle, 'listed', 'DISCOVERED'::fenceline.lifecycle, 0),
`;

/** The function file that the SQL's checks ask, as the table of the state machine makes it. */
export function lifecycleTransitionsText(): string {
  const rows = lifecycleStates.flatMap((from) =>
    subscriptionEvents.flatMap((event) => {
      const cell = subscriptionTable[from][event];
      return "to" in cell ? [`    ('${from}', '${event}', '${cell.to}', ${cell.generation === "next" ? 1 : 0})`] : [];
    }),
  );
  return `${HEAD}${rows.join(",\n")}) as cells\n$$;\n`;
}
