import type { Twin } from "./twin.js";

/** Bugs that the model finds: each changes what one connection alone is answered. */
export const foundByModel = {
  noFenceCheck: {
    bug: "no fence check: an older answer is accepted",
    file: "reads",
    place: "or s.lifecycle <> 'ACTIVE' or i.ordinal <= s.accepted_ordinal then 'stale'",
    instead: "or s.lifecycle <> 'ACTIVE' then 'stale'",
  },
  closedIsActive: {
    bug: "no fence check: an answer after the close is accepted",
    file: "reads",
    place: "when s.lifecycle in ('UNSUBSCRIBING', 'CLOSED', 'UNSUBSCRIBE_UNKNOWN') then 'stale_after_close'",
    instead: "when false then 'stale_after_close'",
  },
  clearedForEver: {
    bug: "cleared once, cleared for ever: what a later revocation covers is issued on demand",
    file: "reads",
    place:
      "s.cleared_epoch is distinct from c.policy_epoch\n          and c.policy_epoch is distinct from p_uncovered_at",
    instead: "s.cleared_epoch is null",
  },
  tombstoneOnShortPage: {
    bug: "tombstone on a short page: what a scan does not list is deleted",
    file: "catalog",
    place:
      "where s.subscription_id = any (v_ids) and s.lifecycle = 'ACTIVE' and s.hidden_because = 'tombstone_pending'\n      and s.not_found_at < x.started_at);",
    instead: "where s.subscription_id = any (v_ids) and s.lifecycle = 'ACTIVE');",
  },
  receiptBeforeProbe: {
    bug: "receipt before probe: a claim for purge counts as purged",
    file: "purge",
    place: "set state = case g.state when 'PURGED' then g.state else 'PURGING' end, claim_token = v_token,",
    instead: "set state = 'PURGED', claim_token = v_token,",
  },
  trustsTheIndex: {
    bug: "retrieval that trusts the index: an edge that is no longer current still shows its entries",
    file: "visibility",
    place: "and r.state = 'CURRENT'",
    instead: "",
  },
  edgeLostOnRechunk: {
    bug: "edge lost on re-chunk: a split group keeps one reader's edge",
    file: "confirm",
    place: "from fenceline.group_root where group_id = v_group;\n  end loop;",
    instead: "from fenceline.group_root where group_id = v_group order by scope_id limit 1;\n  end loop;",
  },
} as const satisfies Record<string, Twin>;
