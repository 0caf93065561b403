import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const entry = fileURLToPath(import.meta.resolve("@fenceline/connector-mcp/package.json")).replace(
  /package\.json$/,
  "dist/cli/main.js",
);

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs one command of the CLI to its end.
 *
 * @param options.closeOutput nobody reads what it writes: the pipe is closed before it begins
 */
export async function runCli(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  options: { closeOutput?: boolean } = {},
): Promise<CliResult> {
  const child = spawnCli(args, env);
  if (options.closeOutput === true) child.stdout?.destroy();
  const [stdout, stderr] = [collected(child.stdout), collected(child.stderr)];
  const [code] = (await once(child, "close")) as [number | null];
  return { code, stdout: stdout(), stderr: stderr() };
}

/** A command of the CLI that stays. */
export class CliProcess {
  readonly #child: ChildProcess;
  readonly #stderr: () => string;

  constructor(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.#child = spawnCli(args, env);
    this.#stderr = collected(this.#child.stderr);
    this.#child.stdout?.resume();
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  /** What it said on standard error so far. */
  get log(): string {
    return this.#stderr();
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves when standard error has said this, and rejects with everything it said when the process ends before. */
  async says(text: string, timeoutMs = 55_000): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!this.log.includes(text)) {
      if (this.#child.exitCode !== null || performance.now() > deadline) {
        throw new Error(`it never said ${JSON.stringify(text)}:\n${this.log}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Asks it to end, and answers with its exit code. */
  async stop(): Promise<number | null> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return this.#child.exitCode;
    const closed = once(this.#child, "close");
    this.#child.kill("SIGCONT");
    this.#child.kill("SIGTERM");
    await closed;
    return this.#child.exitCode;
  }
}

function spawnCli(args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
  return spawn(process.execPath, [entry, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
}

function collected(stream: NodeJS.ReadableStream | null): () => string {
  let text = "";
  stream?.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  return () => text;
}
