import { z } from "zod";
import { type ArgumentsOf, entryId, name } from "../input.js";
import type { VisibilityLedger } from "../visibility.js";

/** What the calls of `VisibilityLedger` take. */
export const visibilityArguments: ArgumentsOf<VisibilityLedger> = {
  visibleEntries: [["request", z.object({ index: name, entryIds: z.array(entryId), asker: z.array(name) })]],
};
