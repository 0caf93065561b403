import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A proxy before an MCP server that can hold an answer back on the wire, as a slow network would. */
export interface HoldingProxy {
  readonly url: string;
  /** Answers to the next read of this URI are fetched from the server and then held back. */
  hold(uri: string): void;
  /** Later reads pass; what is held stays so. */
  passLater(): void;
  /** How many answers are held now. */
  readonly held: number;
  /** Lets go what is held. */
  release(): void;
  close(): Promise<void>;
}

/** @param target the MCP endpoint behind it */
export async function startHoldingProxy(target: string): Promise<HoldingProxy> {
  let heldUri: string | undefined;
  const waiting: (() => void)[] = [];
  const isHeld = (incoming: IncomingMessage) =>
    incoming.headers["mcp-method"] === "resources/read" && incoming.headers["mcp-name"] === heldUri;

  const server = createServer((incoming, outgoing) => {
    const hold = isHeld(incoming);
    const forwarded = request(target, { method: incoming.method, headers: incoming.headers }, (answer) => {
      const pass = () => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      };
      if (hold) waiting.push(pass);
      else pass();
    });
    forwarded.on("error", () => outgoing.destroy());
    endTogether(outgoing, () => forwarded.destroy());
    incoming.pipe(forwarded);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { pathname } = new URL(target);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${pathname}`,
    hold: (uri) => {
      heldUri = uri;
    },
    passLater: () => {
      heldUri = undefined;
    },
    get held() {
      return waiting.length;
    },
    release: () => {
      for (const pass of waiting.splice(0)) pass();
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function endTogether(outgoing: ServerResponse, end: () => void): void {
  outgoing.once("close", () => {
    if (!outgoing.writableEnded) end();
  });
}
