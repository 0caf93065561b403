/**
 * What a server or a store says, as the ledger takes it. The ledger refuses what no database holds (`input_invalid`); here,
 * where odd text comes in, it is made valid instead, so that one bad text costs neither a page nor a batch.
 */

/** U+0000 and lone surrogates become U+FFFD. */
export function storableText(text: string): string {
  return text.replaceAll("\0", "\uFFFD").toWellFormed();
}

/** The URI of a part of an answer (F5), which is shown and never sent: U+0000 becomes `%00`, a lone surrogate U+FFFD. */
export function storablePartUri(uri: string): string {
  return uri.replaceAll("\0", "%00").toWellFormed();
}
