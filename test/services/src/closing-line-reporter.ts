import type { Reporter, TestCase, TestModule, TestSuite, Vitest } from "vitest/node";
import "./index.js";

/**
 * Closes a run of the tests: names what was not run for want of what it needs, fails on every other
 * skipped test, and ends with the line `N passed, N failed` (`, N skipped` may follow).
 */
export default class ClosingLineReporter implements Reporter {
  /** A name filter (`-t`) skips what it does not match, and only then is a skipped test no fault. */
  #filtered = false;

  onInit(vitest: Vitest): void {
    this.#filtered = vitest.config.testNamePattern !== undefined;
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const inState = (...states: string[]) => tests.filter((test) => states.includes(test.result().state));
    const skipped = inState("skipped");
    const notRun = skipped.filter((test) => test.meta().notRun !== undefined);
    const forbidden = this.#filtered ? [] : skipped.filter((test) => !notRun.includes(test) && !isBelowFailure(test));

    if (notRun.length > 0) console.log("Not run, for want of what it needs:");
    for (const test of notRun) console.log(`  ${groupOf(test)} (${test.meta().notRun})`);
    if (forbidden.length > 0) console.log("Skipped, which counts as failed:");
    for (const test of forbidden) console.log(`  ${test.module.relativeModuleId} > ${test.fullName}`);

    const failed =
      inState("failed", "pending").length + failedSuites(modules) + unhandledErrors.length + forbidden.length;
    const stillSkipped = skipped.length - forbidden.length;
    if (failed > 0) process.exitCode = 1;
    console.log(
      `${inState("passed").length} passed, ${failed} failed${stillSkipped > 0 ? `, ${stillSkipped} skipped` : ""}`,
    );
  }
}

function groupOf(test: TestCase): string {
  const group = test.parent.type === "suite" ? test.parent.fullName : test.name;
  return `${test.module.relativeModuleId} > ${group}`;
}

/** Whether a hook or the collection failed around this test, which is counted there. */
function isBelowFailure(test: TestCase): boolean {
  for (let around: TestSuite | TestModule = test.parent; ; around = around.parent) {
    if (around.errors().length > 0) return true;
    if (around.type === "module") return false;
  }
}

function failedSuites(modules: readonly TestModule[]): number {
  const suites = modules.flatMap((module) => [module, ...module.children.allSuites()]);
  return suites.filter((suite) => suite.errors().length > 0).length;
}
