import { FencelineError } from "../errors.js";
import type { Queryable } from "./database.js";

/** Settings of a session under which the ledger would decide wrongly, or misread an answer. */
interface SessionSettings {
  readonly isolation: string;
  readonly read_only: string;
  readonly in_recovery: boolean;
  readonly date_style: string;
}

/**
 * Refuses a database whose sessions the ledger cannot work in. For connections that are not ours to set: a pool of the
 * caller's own, and servers behind a pooler, where whatever one transaction sets would stay for somebody else's.
 *
 * @throws {FencelineError} `session_unsuitable`
 */
export async function refuseUnsuitableSessions(database: Queryable, address: string): Promise<void> {
  const [settings] = await database.query<SessionSettings>(
    `select current_setting('default_transaction_isolation') as isolation,
            current_setting('default_transaction_read_only') as read_only,
            pg_catalog.pg_is_in_recovery() as in_recovery, current_setting('datestyle') as date_style`,
  );
  if (settings === undefined) return;
  const { isolation, read_only: readOnly, in_recovery: inRecovery, date_style: dateStyle } = settings;
  // A fence decides on what committed before it was taken; another isolation decides from an older snapshot.
  if (isolation !== "read committed")
    throw unsuitable(address, "default_transaction_isolation", isolation, "read committed");
  if (inRecovery) throw unsuitable(address, "the server", "a standby, which takes no writes", "the primary");
  if (readOnly !== "off") throw unsuitable(address, "default_transaction_read_only", readOnly, "off");
  if (!/^ISO\b/i.test(dateStyle)) throw unsuitable(address, "datestyle", dateStyle, "ISO");
}

function unsuitable(address: string, setting: string, found: string, needed: string): FencelineError {
  return new FencelineError(
    "session_unsuitable",
    `On the connections of ${address}, ${setting} is ${found}, and the ledger needs ${needed}. Change it for the role (\`alter role … set …\`), for the database, or in the pool's \`options\`.`,
  );
}
