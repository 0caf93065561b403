/**
 * Closes a run of the tests: names the groups that were not run because a service is not set, fails on every other
 * skipped test, and ends with the line `N passed, N failed` (`, N skipped` may follow).
 *
 * @implements {import("vitest/node").Reporter}
 */
export default class ClosingLineReporter {
  /** A name filter (`-t`) skips what it does not match, and only then is a skipped test no fault. */
  #filtered = false;

  /** @param {import("vitest/node").Vitest} vitest */
  onInit(vitest) {
    this.#filtered = vitest.config.testNamePattern !== undefined;
  }

  /**
   * @param {ReadonlyArray<import("vitest/node").TestModule>} modules
   * @param {ReadonlyArray<unknown>} unhandledErrors
   */
  onTestRunEnd(modules, unhandledErrors) {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const inState = (/** @type {string} */ state) => tests.filter((test) => test.result().state === state);
    const skipped = inState("skipped");
    const notRun = skipped.filter((test) => test.meta().servicesNotSet);
    const forbidden = this.#filtered ? [] : skipped.filter((test) => !notRun.includes(test) && !brokenAbove(test));
    const failed =
      inState("failed").length + inState("pending").length + brokenSuites(modules) + unhandledErrors.length;

    if (notRun.length > 0) console.log("Not run, for want of a service:");
    for (const test of notRun) console.log(`  ${groupOf(test)} (${test.meta().servicesNotSet?.join(" and ")} not set)`);
    if (forbidden.length > 0) console.log("Skipped, which counts as failed:");
    for (const test of forbidden) console.log(`  ${test.module.relativeModuleId} > ${test.fullName}`);

    if (failed + forbidden.length > 0) process.exitCode = 1;
    const rest = skipped.length - forbidden.length;
    console.log(
      `${inState("passed").length} passed, ${failed + forbidden.length} failed${rest > 0 ? `, ${rest} skipped` : ""}`,
    );
  }
}

/** @param {import("vitest/node").TestCase} test */
function groupOf(test) {
  const group = test.parent.type === "suite" ? test.parent.fullName : test.name;
  return `${test.module.relativeModuleId} > ${group}`;
}

/**
 * Whether a hook or the collection failed around this test, which is then counted there.
 *
 * @param {import("vitest/node").TestCase} test
 */
function brokenAbove(test) {
  for (let at = test.parent; ; at = at.parent) {
    if (at.errors().length > 0) return true;
    if (at.type === "module") return false;
  }
}

/** @param {ReadonlyArray<import("vitest/node").TestModule>} modules */
function brokenSuites(modules) {
  const suites = modules.flatMap((module) => [module, ...module.children.allSuites()]);
  return suites.filter((suite) => suite.errors().length > 0).length;
}
