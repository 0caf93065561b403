import { z } from "zod";
import { type ArgumentsOf, entryId, name } from "../input.js";
import type { RestoreLedger } from "../restore.js";

/** What the calls of `RestoreLedger` take. */
export const restoreArguments: ArgumentsOf<RestoreLedger> = {
  position: [],
  recognizeRestore: [
    [
      "evidence",
      z.union([
        z.strictObject({ position: z.string() }),
        z.strictObject({ entryId }),
        z.strictObject({ requestId: name }),
        z.strictObject({ confirmedBy: name }),
      ]),
    ],
  ],
  recognizedRestores: [],
  unknownRevocations: [["requestIds", z.array(name)]],
};
