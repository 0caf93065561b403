import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { FencelineError } from "../../errors.js";
import { type EmbeddedDirectory, embeddedDirectory, holdsDatabase } from "./data-directory.js";
import { DirectoryLock, LOCK_PROTOCOL, type LockRecord, readLock } from "./directory-lock.js";
import { HeldServer } from "./held-server.js";
import { refuseUntrustedFolder, SOCKET_PORT, socketFolderFor, socketPathIn } from "./socket-folder.js";

/** Between two looks at a lock whose holder does not serve yet. */
const LOOK_AGAIN_MS = 50;
/** After a failed takeover (disk full, files damaged). */
const AFTER_FAILURE_MS = 1_000;

/**
 * One process's part in an embedded database: it holds the directory and serves, or follows whoever does.
 *
 * 1. The directory is opened only by the holder of its lock.
 * 2. A follower keeps a connection open that carries nothing; when it ends, the follower tries to become the holder.
 * 3. The socket's path stays the same whoever holds, so clients need only connect again.
 */
export class EmbeddedServer {
  /** For any `pg` client of any process of this user. */
  readonly connectionOptions: pg.ClientConfig;
  readonly #directory: EmbeddedDirectory;
  readonly #socketFolder: string;
  readonly #lock: DirectoryLock;
  readonly #closing = new AbortController();
  #held: HeldServer | undefined;
  #running: Promise<void> = Promise.resolve();

  private constructor(directory: EmbeddedDirectory) {
    this.#directory = directory;
    // A temporary folder of its own (TMPDIR) must not lead a process away from where the holder serves.
    this.#socketFolder = readLock(directory.lockPath)?.socketFolder || socketFolderFor(directory.path);
    this.#lock = new DirectoryLock(directory.lockPath, this.#socketFolder);
    this.connectionOptions = { host: this.#socketFolder, port: SOCKET_PORT, user: "postgres", database: "postgres" };
  }

  /**
   * Opens the directory, or joins the process that has it open. Resolves when the database is served.
   *
   * @throws {FencelineError} `address_in_use`, `directory_incompatible`, `database_unreachable`
   */
  static async open(directory: string, timeoutMs: number): Promise<EmbeddedServer> {
    const deadline = performance.now() + timeoutMs;
    try {
      const server = new EmbeddedServer(embeddedDirectory(directory));
      for (;;) {
        const follow = await server.#join();
        if (follow) {
          server.#running = server.#stayServed(follow);
          return server;
        }
        if (performance.now() >= deadline) throw server.#inUse(timeoutMs);
        await delay(LOOK_AGAIN_MS);
      }
    } catch (cause) {
      if (cause instanceof FencelineError) throw cause;
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new FencelineError("database_unreachable", `The directory ${directory} cannot be opened: ${reason}`, {
        cause,
      });
    }
  }

  /** Whether the database's files were deleted or moved since it was opened. */
  isDirectoryGone(): boolean {
    return !holdsDatabase(this.#directory);
  }

  /** Leaves; a holder hands over. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#held?.close();
    await this.#running;
  }

  /** Resolves to what ends when the present holder ends, or to undefined while nobody serves yet. */
  async #join(): Promise<(() => Promise<void>) | undefined> {
    const holder = readLock(this.#directory.lockPath);
    if (holder) {
      const socket = await this.#connect(holder);
      if (socket) return () => this.#untilClosed(socket);
    }
    if (this.#lock.tryAcquire()) return undefined;
    const held = await HeldServer.start(this.#directory, this.#socketFolder, this.#lock);
    this.#held = held;
    return () => held.ended;
  }

  async #stayServed(follow: () => Promise<void>): Promise<void> {
    let present: (() => Promise<void>) | undefined = follow;
    while (!this.#closing.signal.aborted) {
      if (present) await present();
      this.#held = undefined;
      if (this.#closing.signal.aborted) return;
      try {
        present = await this.#join();
        if (!present) await this.#pause(LOOK_AGAIN_MS);
      } catch {
        // Nobody waits for this; clients meanwhile report that the database is unreachable.
        present = undefined;
        await this.#pause(AFTER_FAILURE_MS);
      }
    }
    await this.#held?.close();
  }

  async #connect(holder: LockRecord): Promise<Socket | undefined> {
    if (holder.protocol !== LOCK_PROTOCOL || holder.socketFolder !== this.#socketFolder) return undefined;
    if (!existsSync(this.#socketFolder)) return undefined;
    refuseUntrustedFolder(this.#socketFolder, this.#directory.path);
    const socket = connect(socketPathIn(this.#socketFolder));
    try {
      await once(socket, "connect");
    } catch {
      return undefined;
    }
    return socket;
  }

  async #untilClosed(socket: Socket): Promise<void> {
    socket.unref();
    socket.on("error", () => {});
    socket.resume();
    const end = () => socket.destroy();
    this.#closing.signal.addEventListener("abort", end, { once: true });
    if (this.#closing.signal.aborted) end();
    await new Promise((resolve) => socket.once("close", resolve));
    this.#closing.signal.removeEventListener("abort", end);
  }

  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { ref: false, signal: this.#closing.signal }).catch(() => {});
  }

  #inUse(timeoutMs: number): FencelineError {
    const holder = readLock(this.#directory.lockPath);
    const who = holder ? `process ${holder.holder.pid}` : "another process";
    const hint =
      holder && holder.protocol !== LOCK_PROTOCOL
        ? "It runs another version of Fenceline: stop it, or use the same version."
        : `If no such process runs (here or in another container), remove ${this.#directory.lockPath}.`;
    return new FencelineError(
      "address_in_use",
      `${this.#directory.path} is held by ${who}, which did not answer within ${timeoutMs} ms. ${hint}`,
    );
  }
}
