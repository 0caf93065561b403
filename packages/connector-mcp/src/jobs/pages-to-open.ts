import type { SubscriptionToOpen } from "@fenceline/ledger";
import type { SourceContext } from "./source-context.js";

const PAGE = 1_000;

/** What the ledger knows of a source and is not active yet in this session, page by page. */
export async function* pagesToOpen({
  ledger,
  lease,
}: Pick<SourceContext, "ledger" | "lease">): AsyncGenerator<readonly SubscriptionToOpen[], void, void> {
  for (let afterId: number | undefined; ; ) {
    const after = afterId === undefined ? {} : { afterId };
    const page = await ledger.subscriptionsToOpen(lease.session, { limit: PAGE, ...after });
    yield page;
    afterId = page.at(-1)?.subscriptionId;
    if (page.length < PAGE) return;
  }
}
