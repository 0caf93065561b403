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
  generationIgnored: {
    bug: "no fence check: an answer of an earlier generation is accepted",
    file: "reads",
    place: "r.session_generation <> p_generation or r.generation <> s.generation",
    instead: "r.session_generation <> p_generation",
  },
  tombstoneOnShortPage: {
    bug: "tombstone on a short page: what a scan does not list is deleted",
    file: "catalog",
    place:
      "where s.subscription_id = any (v_ids) and s.lifecycle = 'ACTIVE' and s.hidden_because = 'tombstone_pending'\n      and s.not_found_at < x.started_at);",
    instead: "where s.subscription_id = any (v_ids) and s.lifecycle = 'ACTIVE');",
  },
  deleteBeforeRecord: {
    bug: "delete before record: the purge takes what a worker has recorded and not confirmed yet",
    file: "purge",
    place: "and o.claim_token = g.claim_token and o.claim_until > v_now)))",
    instead: "and o.claim_token = g.claim_token and o.claim_until > v_now and false)))",
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
    place: "where r.current and s.hidden_because is null",
    instead: "where s.hidden_because is null",
  },
  partNotAsked: {
    bug: "visibility check missing in one path: the revocation of a directory's part is not asked for",
    file: "visibility",
    place: "q.deny_hashes || part.deny_hashes as deny_hashes,",
    instead: "q.deny_hashes as deny_hashes,",
  },
  edgeLostOnRechunk: {
    bug: "edge lost on re-chunk: a split group keeps one reader's edge",
    file: "confirm",
    place: "from fenceline.group_root where group_id = v_group;\n  end loop;",
    instead: "from fenceline.group_root where group_id = v_group order by scope_id limit 1;\n  end loop;",
  },
  digestOutlivesRevocation: {
    bug: "the first read after a lift with unchanged bytes counts as unchanged: the digest outlives a revoked part",
    file: "revocation-batches",
    place:
      "  update fenceline.subscription set digest = null\n  where subscription_id = any (v_whole || v_partly) and digest is not null;\n",
    instead: "",
  },
} as const satisfies Record<string, Twin>;
