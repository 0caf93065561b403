import { UnrecoverableError } from "bullmq";
import { describe, expect, test } from "vitest";
import { discoveryPayload, parsePayload, purgePayload, revokePayload } from "#src/jobs/payloads.js";

describe("a job's payload", () => {
  test("that fits its queue's schema comes back as it was sent", () => {
    expect(parsePayload(discoveryPayload, { v: 1, source: "catalog", reader: "svc:rag" })).toEqual({
      v: 1,
      source: "catalog",
      reader: "svc:rag",
    });
    expect(parsePayload(purgePayload, { v: 1 })).toEqual({ v: 1 });
  });

  test("that does not fit fails for good, with every wrong field named", () => {
    const wrong = () => parsePayload(discoveryPayload, { v: 2, source: 5, extra: true });

    expect(wrong).toThrow(UnrecoverableError);
    expect(wrong).toThrow(/v: .*source: .*reader: .*extra: no such field/);
  });

  test("that is no object at all fails for good", () => {
    expect(() => parsePayload(purgePayload, "wake up")).toThrow(/^job_payload_invalid: payload: /);
  });

  test("that asks for a revocation may name one URI or one prefix, not both (P1)", () => {
    const request = { v: 1, subject: "user:alice", reason: "left", uri: "catalog://plans/a" };

    expect(parsePayload(revokePayload, request)).toEqual(request);
    expect(() => parsePayload(revokePayload, { ...request, prefix: "catalog://plans/" })).toThrow(
      "prefix: uri and prefix exclude each other",
    );
  });
});
