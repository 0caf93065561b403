"use strict";

// The first file that the npm scripts run. It keeps to what every Node can parse, so that one that is too old says so in
// a line instead of a syntax error somewhere in the code.
const needed = require("../package.json").engines.node.match(/\d+/g).map(Number);
const found = process.versions.node.split(".").map(Number);
const tooOld = found[0] < needed[0] || (found[0] === needed[0] && found[1] < needed[1]);

if (tooOld) {
  console.error(
    "Fenceline needs Node " + needed[0] + "." + needed[1] + " or newer; this is Node " + found.join(".") + ".",
  );
  process.exit(1);
}

void import("./run.mjs").then((run) => run.main(process.argv.slice(2)));
