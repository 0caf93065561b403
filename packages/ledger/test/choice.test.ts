import { expect, test } from "vitest";
import {
  activate,
  digest,
  negotiateSnapshots,
  openSession,
  publish,
  publishProven,
  readDue,
  scan,
} from "./ledger-under-test.js";
import { brokenInvariants, describeWholeLedger } from "./whole-ledger.js";

const URIS = ["catalog://a", "catalog://b", "catalog://c", "catalog://d"];
const [KEPT, LEFT_OUT] = [URIS.slice(0, 3), URIS.slice(3)];

describeWholeLedger("what a configuration leaves out", (ledger) => {
  /** Four resources that were read, of which one was then left out. */
  async function oneLeftOut() {
    const session = await openSession(ledger);
    await activate(ledger, session, URIS, "polled");
    await readDue(ledger, session, (uri) => `content of ${uri}`);
    const closing = await ledger.beginUnsubscribe(session, LEFT_OUT, { excluded: true });
    await ledger.settleUnsubscribe(
      session,
      closing.map(({ subscriptionId }) => subscriptionId),
      "acknowledged",
    );
    return session;
  }

  const rowOf = async (scopeId: number, uri: string) => {
    const [row] = await ledger.sql(
      `select lifecycle, generation, hidden_because, vanished_scan_id, version_ordinal
       from fenceline.subscription where scope_id = $1 and uri = $2`,
      [scopeId, uri],
    );
    return row;
  };

  test("U10, S8: it is closed and stays as it was, and no list that lacks it makes it vanish or counts it among what vanished", async () => {
    const session = await oneLeftOut();
    expect(await publish(ledger, session, [])).toMatchObject({ vanished: 3, held: true });
    expect(await publish(ledger, session, KEPT)).toMatchObject({ vanished: 0, held: false });
    expect(await readDue(ledger, session, () => "")).toBe(0);
    expect(await rowOf(session.scopeId, "catalog://d")).toMatchObject({
      lifecycle: "CLOSED",
      hidden_because: null,
      vanished_scan_id: null,
      version_ordinal: 1,
    });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("S6: no task that needs completeness takes it for absent", async () => {
    const session = await oneLeftOut();
    await negotiateSnapshots(ledger, session);
    const { snapshot } = await publishProven(ledger, session, KEPT);
    expect(await ledger.removeAbsent(session, snapshot)).toMatchObject({ removed: 0 });
    const revoked = await ledger.revokeByEnumeration(session, snapshot, { requestId: "left-out", reason: "r" });
    expect(revoked).toMatchObject({ revoked: 0 });
  });

  test("§3: the first catalogue that lists it again opens it, with a new generation", async () => {
    const session = await oneLeftOut();
    const before = await rowOf(session.scopeId, "catalog://d");
    await publish(ledger, session, URIS);
    expect(await rowOf(session.scopeId, "catalog://d")).toMatchObject({
      lifecycle: "SUBSCRIBING",
      generation: Number(before?.["generation"]) + 1,
    });
    const [opened] = await ledger.subscriptionsToOpen(session, { limit: 10 });
    expect(opened).toMatchObject({ uri: "catalog://d", mimeType: undefined, uriTemplate: undefined });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });
});

describeWholeLedger("the scan of a part of a list", (ledger) => {
  test("S2: pages that came with one cursor are no loop where only what was left out of them differs", async () => {
    const session = await openSession(ledger);
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    const page = { cursorDigest: digest("same"), nextCursorDigest: digest("same"), entries: [] };
    const record = (listed: string) =>
      ledger.recordScanPage(session, begun.scanId, { ...page, pageDigest: digest(listed) });
    expect(await record("one")).toBe("recorded");
    expect(await record("two")).toBe("recorded");
    expect(await record("one")).toBe("cursor_loop");
  });
});

describeWholeLedger("what a template stands for", (ledger) => {
  test("§2: is known by its template until a list names it by itself, whichever comes first in a scan", async () => {
    const session = await openSession(ledger);
    const uriTemplate = "catalog://{name}";
    const expanded = (uri: string) => ({ uri, uriTemplate, descriptorDigest: digest(`descriptor ${uri}`) });
    const listed = (uri: string) => ({ uri, descriptorDigest: digest(`descriptor ${uri}`) });
    const publishPages = async (...pages: ReturnType<typeof listed>[][]) => {
      const scanned = async () => {
        const begun = await ledger.beginScan(session);
        if (typeof begun === "string") return expect.fail(begun);
        for (const [number, entries] of pages.entries()) {
          await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest(`cursor ${number}`), entries });
        }
        await ledger.finishScan(session, begun.scanId, { complete: true });
        return begun.scanId;
      };
      await ledger.publishCatalog(session, { first: await scanned(), second: await scanned() });
      const known = await ledger.subscriptionsToOpen(session, { limit: 10 });
      return Object.fromEntries(known.map((subscription) => [subscription.uri, subscription.uriTemplate]));
    };
    const [a, b, c] = ["catalog://a", "catalog://b", "catalog://c"];
    expect(await publishPages([listed(a)], [expanded(a), expanded(b), expanded(c)])).toEqual({
      [a]: undefined,
      [b]: uriTemplate,
      [c]: uriTemplate,
    });
    expect(await ledger.templatesInUse(session)).toEqual([uriTemplate]);
    expect(await publishPages([expanded(a), expanded(b)], [listed(a), listed(c)])).toEqual({
      [a]: undefined,
      [b]: uriTemplate,
      [c]: undefined,
    });
    const closing = await ledger.beginUnsubscribe(session, [b], { excluded: true });
    await ledger.settleUnsubscribe(
      session,
      closing.map(({ subscriptionId }) => subscriptionId),
      "acknowledged",
    );
    expect(await ledger.templatesInUse(session)).toEqual([]);
  });
});

describeWholeLedger("faults of a list", (ledger) => {
  test("S8: stand in the status until a list is walked to its end without them", async () => {
    const session = await openSession(ledger);
    const faultsOf = async () =>
      (await ledger.status()).sources.find(({ name }) => name === session.source)?.listFaults;
    const finish = async (end: Parameters<typeof ledger.finishScan>[2]) => {
      const begun = await ledger.beginScan(session);
      if (typeof begun === "string") return expect.fail(begun);
      await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest("first"), entries: [] });
      await ledger.finishScan(session, begun.scanId, end);
    };
    const faults = [{ uri: "catalog://a", code: "list_malformed", message: "left out: name" }];
    await finish({ complete: true, faults });
    expect(await faultsOf()).toEqual(faults);
    await finish({ complete: false, verdict: "INCOMPLETE", reason: "timeout", faults: [] });
    expect(await faultsOf()).toEqual(faults);
    await scan(ledger, session, URIS);
    expect(await faultsOf()).toEqual([]);
  });
});

describeWholeLedger("registered sources", (ledger) => {
  test("G1: are known with their endpoint and what lives of them, and retired until they are registered again", async () => {
    const session = await openSession(ledger);
    const { source: name } = session;
    const known = async () => (await ledger.registeredSources()).find((source) => source.name === name);
    expect(await known()).toEqual({ name, endpointDigest: undefined, retiredAt: undefined });
    expect(await ledger.livingResources(name)).toBe(0);

    await activate(ledger, session, URIS, "polled");
    await readDue(ledger, session, (uri) => uri);
    await ledger.registerSource({ name, endpointDigest: digest("there") });
    expect(await known()).toMatchObject({ endpointDigest: Buffer.from(digest("there")) });
    expect(await ledger.livingResources(name)).toBe(4);

    expect(await ledger.retireSource(name)).toBe("retired");
    expect(await known()).toMatchObject({ retiredAt: expect.any(Date) });
    expect(await ledger.livingResources(name)).toBe(4);
    await ledger.registerSource({ name });
    expect(await known()).toMatchObject({ retiredAt: undefined });
    expect(await ledger.retireSource("nobody")).toBe("unknown");

    await ledger.revoke({ source: name, subject: "svc:rag", reason: "r" });
    expect(await ledger.livingResources(name)).toBe(0);
    expect(await ledger.livingResources("nobody")).toBe(0);
  });
});
