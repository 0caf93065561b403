import { z } from "zod";
import { type ArgumentsOf, digest, leaseMs, milliseconds, name, session, storableText } from "../input.js";
import type { SessionLedger } from "../sessions.js";

/** What the calls of `SessionLedger` take. */
export const sessionArguments: ArgumentsOf<SessionLedger> = {
  registerSource: [
    ["source", z.object({ name, endpointDigest: digest.optional(), stalenessMs: milliseconds.positive().optional() })],
  ],
  registeredSources: [],
  livingResources: [["source", name]],
  retireSource: [["name", name]],
  openSession: [["request", z.object({ source: name, reader: name, owner: name, leaseMs })]],
  heartbeat: [["session", session]],
  endSession: [["session", session]],
  recordCapabilities: [
    ["session", session],
    [
      "negotiated",
      // Kept as it comes.
      z.strictObject({
        era: z.enum(["modern", "legacy"]),
        protocolVersion: name,
        server: z.strictObject({ name: storableText, version: storableText }).optional(),
        resources: z.boolean(),
        subscribe: z.boolean(),
        listChanged: z.boolean(),
        snapshotId: z.boolean().optional(),
      }),
    ],
  ],
  suspendScope: [
    ["session", session],
    ["cause", storableText],
  ],
  resumeScope: [["session", session]],
};
