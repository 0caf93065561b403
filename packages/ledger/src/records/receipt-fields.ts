/** Fields of every receipt of the ledger's feed. A receipt outlives a purge, so none of its fields is content or a digest of it (P8). */
import { z } from "zod";
import { instant, ledgerId, name } from "./record-fields.js";

export const receiptFields = {
  /** Where it stands in the ledger: later writes of one subscription have higher positions. */
  position: ledgerId,
  source: name,
  /** The reader. */
  subject: name,
  subscriptionId: ledgerId,
  at: instant,
};

/** The resource key (F10). */
export const resourceKeyText = z.string().min(1);
