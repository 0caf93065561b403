// A process that uses a database as it is told over IPC; see database-process.ts.
import pg from "pg";
import { openDatabase } from "#src/database/database.js";
import { readSchemaFiles } from "#src/database/migration-files.js";
import { migrate } from "#src/database/migrations.js";
import { openLedger } from "#src/ledger.js";
import { fileWitness } from "#src/witness.js";
import { hammer } from "./hammer.mjs";

let database;
let ledger;
let listening;

const operations = {
  async open(address, options) {
    database = await openDatabase(address, options);
    return { connectionOptions: database.connectionOptions };
  },
  query: (text, values) => database.query(text, values),
  async migrate(schema, root, version) {
    return migrate(database, { schema, ...(root ? { files: readSchemaFiles(new URL(root), version) } : {}) });
  },
  hammer: (name, clients, ms) => hammer(database.connectionOptions, name, clients, ms),
  async listen(channel) {
    listening = await database.listen(channel, (payload) => process.send({ event: "payload", payload, at: now() }), {
      onReconnect: () => process.send({ event: "reconnect" }),
    });
  },
  unlisten: () => listening.close(),
  async cpuPercentOver(ms) {
    const [before, start] = [process.cpuUsage(), performance.now()];
    await new Promise((resolve) => setTimeout(resolve, ms));
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 10 / (performance.now() - start);
  },
  /** Writes until told to stop, or for ever; tells each acknowledged row. */
  async write(table) {
    for (let n = 1; ; n++) {
      try {
        await database.query(`insert into ${table} (n) values ($1)`, [n]);
        process.send({ event: "acknowledged", n, at: now() });
      } catch (error) {
        process.send({ event: "failed", n, code: error.code, message: error.message, at: now() });
        if (error.code === "ledger_closed") return;
      }
    }
  },
  async openWitnessed(address, folder, intervalMs) {
    ledger = await openLedger(address, { witness: fileWitness(folder), witnessOptions: { intervalMs } });
    return { restored: ledger.restored };
  },
  /** Registers sources and revokes for ever; tells each answer. */
  async registerSources(prefix) {
    for (let n = 1; ; n++) {
      await ledger.registerSource({ name: `${prefix}-${n}` });
      if (n % 10 === 0) await ledger.revoke({ subject: `user:${prefix}-${n}`, reason: "left" });
      process.send({ event: "acknowledged", n, at: now() });
    }
  },
  async leaveTransactionOpen(statement) {
    const client = new pg.Client(database.connectionOptions);
    client.on("error", () => {});
    await client.connect();
    await client.query("begin");
    await client.query(statement);
  },
  close: () => database.close(),
  /** Stops listening to the test; from here the process must end by itself. */
  leave: () => setImmediate(() => process.disconnect()),
};

const now = () => performance.timeOrigin + performance.now();

process.on("message", async ({ id, operation, args }) => {
  try {
    const value = await operations[operation](...args);
    process.send?.({ id, value: value instanceof Object && !Array.isArray(value) ? { ...value } : value });
  } catch (error) {
    process.send?.({ id, error: { code: error.code, message: error.message, cause: error.cause?.message } });
  }
});
process.send({ event: "started" });
