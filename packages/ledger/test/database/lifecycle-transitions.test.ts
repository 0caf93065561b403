import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { lifecycleTransitionsText } from "./lifecycle-transitions-text.js";

const FUNCTION_FILE = fileURLToPath(new URL("../../src/database/functions/lifecycle-transitions.sql", import.meta.url));

test("the table that the SQL checks transitions against is the one of subscription-state.ts (§3, reliability 4)", async () => {
  await expect(lifecycleTransitionsText()).toMatchFileSnapshot(FUNCTION_FILE);
});
