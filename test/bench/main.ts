/** `npm run bench`. */

import { bench } from "./command.js";
import { ledgerSuite } from "./ledger/suite.js";
import { mcpSuite } from "./mcp/suite.js";

process.exitCode = await bench(process.argv.slice(2), [ledgerSuite, mcpSuite], {
  out: (text) => process.stdout.write(`${text}\n`),
  progress: (line) => process.stderr.write(`${line}\n`),
});
