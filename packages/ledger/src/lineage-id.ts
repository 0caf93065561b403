/** Names an accepted version (F2): its subscription and read ordinal, which never name another one. */
export function lineageIdOf(subscriptionId: number, ordinal: number): string {
  return `${subscriptionId}.${ordinal}`;
}

/** The version a lineage id names, or `undefined` for any other text. */
export function parseLineageId(
  text: string,
): { readonly subscriptionId: number; readonly ordinal: number } | undefined {
  const [, subscriptionId, ordinal] = /^([1-9]\d{0,15})\.([1-9]\d{0,15})$/.exec(text) ?? [];
  if (subscriptionId === undefined || ordinal === undefined) return undefined;
  return { subscriptionId: Number(subscriptionId), ordinal: Number(ordinal) };
}
