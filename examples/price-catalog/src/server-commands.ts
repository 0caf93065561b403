import { createInterface } from "node:readline/promises";
import { uriOf } from "./plans.js";
import type { PriceCatalog } from "./server.js";

const HELP = `  set PLAN PRICE          change a price and notify, for instance: set basic 120
  set PLAN PRICE quietly  change it without a notification
  cut | restore           break the open streams and refuse new ones | allow them again
  reads PLAN              how often the plan was read
  quit`;

/** Lets a person disturb the catalogue from the keyboard; `quit` closes it. Without an input it serves until it is killed. */
export async function obeyStandardInput(catalog: PriceCatalog): Promise<void> {
  console.log(`price catalogue at ${catalog.url}\nbearer token: ${catalog.token}\n${HELP}`);
  const lines = createInterface({ input: process.stdin });
  for await (const line of lines) {
    const words = line.trim().split(/\s+/);
    if (words[0] === "quit") return catalog.close();
    if (words[0] !== "") console.log(obey(catalog, words));
  }
}

function obey(catalog: PriceCatalog, [command, plan = "", price = "", mode]: readonly string[]): string {
  switch (command) {
    case "set":
      if (!catalog.uris.includes(uriOf({ path: plan })) || !Number.isFinite(Number(price)) || price === "") return HELP;
      catalog.setPrice(plan, Number(price), { notify: mode !== "quietly" });
      return `${plan} now costs ${price}`;
    case "cut":
      catalog.cutStreams();
      return "streams are cut";
    case "restore":
      catalog.restoreStreams();
      return "streams are allowed";
    case "reads":
      return `${plan} was read ${catalog.reads(uriOf({ path: plan }))} times`;
    default:
      return HELP;
  }
}
