/** What a server may answer with in the model's world: a text of lines, or a directory of such texts. */
export interface Contents {
  /** Equal exactly for equal contents. */
  readonly digest: string;
  readonly parts: readonly { readonly uri: string; readonly lines: readonly string[] }[];
}

/** Lines come from a few, so that contents share chunks and repeat. */
export function textOf(uri: string, lines: readonly string[]): Contents {
  return { digest: `${uri} ${lines.join()}`, parts: [{ uri, lines }] };
}

/** A directory read (F5): each part under its own URI, below that of the directory. */
export function directoryOf(uri: string, parts: readonly (readonly string[])[]): Contents {
  const named = parts.map((lines, place) => ({ uri: `${uri}/${place}`, lines }));
  return { digest: `${uri} ${named.map((part) => part.lines.join()).join("|")}`, parts: named };
}
