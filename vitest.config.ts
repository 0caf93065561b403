import { configDefaults, defineConfig } from "vitest/config";
import LongestFirst from "./test/services/dist/longest-first.js";

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.ts", "test/**/*.test.ts"],
    // Need the packages of a workspace of their own: `npm run test:servers`
    exclude: [...configDefaults.exclude, "test/servers/**"],
    environment: "node",
    // Child processes and global state (signals, sockets, PGlite's memory of about 500 MB) stay in a process per file.
    pool: "forks",
    maxWorkers: 2,
    // V8 compiles what is hot of PGlite again, for better code: 2 s of CPU that a test's short-lived database never earns
    // back. A hundred times the budget, and only what is truly hot is.
    execArgv: ["--wasm-tiering-budget=200000000"],
    sequence: { sequencer: LongestFirst },
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 10_000,
    globalSetup: "./test/services/dist/templates-of-run.js",
    allowOnly: false,
    retry: 0,
    reporters: ["default", "./test/services/dist/closing-line-reporter.js"],
  },
});
