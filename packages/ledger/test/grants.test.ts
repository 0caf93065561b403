import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { FencelineError } from "#src/errors.js";
import type { Grant } from "#src/grants.js";
import { formatUriScope, parseUriScope } from "#src/scope-text.js";
import { describeWholeLedger } from "./whole-ledger.js";

describeWholeLedger("grants", (ledger) => {
  async function newSource(): Promise<string> {
    const source = `source-${randomUUID()}`;
    await ledger.registerSource({ name: source });
    return source;
  }

  const grantOf = (source: string, audience: string, prefix = "catalog://plans"): Grant => ({
    source,
    reader: "svc:rag",
    audience,
    scope: { prefix },
  });

  test("a grant is given once however often it is asked for, and taken back once (G1)", async () => {
    const source = await newSource();
    const grant = grantOf(source, "user:alice");
    await ledger.grant(grant);
    await ledger.grant({ ...grant, scope: { prefix: "catalog://plans/" } });
    expect(await ledger.listGrants({ source })).toEqual([{ ...grant, origin: "api" }]);
    expect(await ledger.withdrawGrant(grant, "cli")).toBe(false);
    expect(await ledger.withdrawGrant(grant)).toBe(true);
    expect(await ledger.withdrawGrant(grant)).toBe(false);
    expect(await ledger.listGrants({ source })).toEqual([]);
  });

  test("a grant that left the configuration is withdrawn, those given otherwise stay (G1)", async () => {
    const source = await newSource();
    const other = await newSource();
    await ledger.grant(grantOf(source, "user:by-hand"), "cli");
    await ledger.replaceConfiguredGrants([other], [grantOf(other, "user:kept")]);
    const first = await ledger.replaceConfiguredGrants([source], [grantOf(source, "a"), grantOf(source, "b")]);
    expect(first).toEqual({ added: 2, withdrawn: 0 });
    const second = await ledger.replaceConfiguredGrants(
      [source],
      [grantOf(source, "b"), grantOf(source, "b", "x://y")],
    );
    expect(second).toEqual({ added: 1, withdrawn: 1 });
    expect((await ledger.listGrants({ source })).map(({ audience, origin }) => `${audience} ${origin}`).sort()).toEqual(
      ["b config", "b config", "user:by-hand cli"],
    );
    expect(await ledger.listGrants({ source: other })).toHaveLength(1);
    expect(await ledger.replaceConfiguredGrants([source], [])).toEqual({ added: 0, withdrawn: 2 });
  });

  test("a grant for an unknown source, or of an empty prefix, is refused by name (G1)", async () => {
    await expect(ledger.grant(grantOf("nowhere", "user:alice"))).rejects.toMatchObject({ code: "source_unknown" });
    const source = await newSource();
    await expect(ledger.grant(grantOf(source, "user:alice", ""))).rejects.toMatchObject({ code: "uri_invalid" });
    expect(await ledger.listGrants({ audience: "nobody" })).toEqual([]);
  });

  test("a scope is read back as it was written (P1)", () => {
    for (const scope of [{ everything: true as const }, { uri: "a=b\nc" }, { prefix: "catalog://plans/" }]) {
      expect(parseUriScope(formatUriScope(scope))).toEqual(scope);
    }
    expect(() => parseUriScope("uri=")).toThrow(FencelineError);
  });
});
