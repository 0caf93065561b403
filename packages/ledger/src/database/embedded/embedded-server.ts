import type pg from "pg";
import { FencelineError } from "../../errors.js";

export class EmbeddedServer {
  readonly connectionOptions: pg.ClientConfig = {};
  static async open(directory: string, _timeoutMs: number): Promise<EmbeddedServer> {
    throw new FencelineError("database_unreachable", `${directory}: not built yet`);
  }
  async close(): Promise<void> {}
}
