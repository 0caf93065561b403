import { z } from "zod";
import type { GrantLedger } from "../grants.js";
import { type ArgumentsOf, name, scope } from "../input.js";

const grant = z.object({ source: name, reader: name, audience: name, scope });
const origin = z.enum(["config", "api", "cli"]).optional();

/** What the calls of `GrantLedger` take. */
export const grantArguments: ArgumentsOf<GrantLedger> = {
  grant: [
    ["grant", grant],
    ["origin", origin],
  ],
  withdrawGrant: [
    ["grant", grant],
    ["origin", origin],
  ],
  replaceConfiguredGrants: [
    ["sources", z.array(name)],
    ["grants", z.array(grant)],
  ],
  listGrants: [["filter", z.object({ source: name.optional(), audience: name.optional() }).optional()]],
};
