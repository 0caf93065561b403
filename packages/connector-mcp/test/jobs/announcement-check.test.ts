import { describe, expect, onTestFinished, test } from "vitest";
import { AnnouncementCheck } from "#src/jobs/announcement-check.js";

const PATIENCE_MS = 50;

/** A check, and what it judged next. */
function newCheck() {
  let judge: (uris: readonly string[] | "all") => void = () => undefined;
  const check = new AnnouncementCheck(PATIENCE_MS, (uris) => judge(uris));
  onTestFinished(() => check.stop());
  const nextJudgement = () =>
    new Promise<readonly string[] | "all">((resolve) => {
      judge = resolve;
    });
  return { check, nextJudgement };
}

describe("a change that a periodic read found", () => {
  test("says nothing against the server that announces it a little later (U5, U6)", async () => {
    const { check, nextJudgement } = newCheck();
    const judged = nextJudgement();
    check.changed("note://late");
    check.announced("note://late");
    check.changed("note://never");
    expect(await judged).toEqual(["note://never"]);
    expect(check.trusts("note://late")).toBe(true);
    expect(check.trusts("note://never")).toBe(false);
  });

  test("says of a server that has announced nothing yet that it announces nothing, until it does (U3, U6)", async () => {
    const { check, nextJudgement } = newCheck();
    const judged = nextJudgement();
    check.changed("note://a");
    expect(await judged).toBe("all");
    expect([check.trusts("note://a"), check.trusts("note://b")]).toEqual([false, false]);

    const again = nextJudgement();
    check.announced("note://b");
    expect(await again).toBe("all");
    expect([check.trusts("note://a"), check.trusts("note://b")]).toEqual([false, true]);

    const last = nextJudgement();
    check.announced("note://a");
    expect(await last).toEqual(["note://a"]);
    expect(check.trusts("note://a")).toBe(true);
  });
});
