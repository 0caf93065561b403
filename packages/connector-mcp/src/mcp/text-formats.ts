import { parse as parseCsv } from "csv-parse/sync";
import { convert as convertHtml } from "html-to-text";
import { extractText as extractPdf, getDocumentProxy } from "unpdf";

/** Gets out of a format what a reader sees of it, as plain text. Throws where it cannot be read. */
export type TextFormat =
  | { readonly of: "text"; textOf(text: string): string }
  | {
      readonly of: "bytes";
      /** How every document of it begins. */
      readonly begins: string;
      textOf(bytes: Uint8Array): Promise<string>;
    };

const html: TextFormat = {
  of: "text",
  textOf: (text) =>
    convertHtml(text, {
      // Lines are cut by the splitter.
      wordwrap: false,
      selectors: [
        // What is read aloud, not where it leads; an image is its description.
        { selector: "a", options: { ignoreHref: true } },
        { selector: "img", format: "inline", options: {} },
        ...["h1", "h2", "h3", "h4", "h5", "h6"].map((selector) => ({ selector, options: { uppercase: false } })),
        { selector: "table", format: "dataTable", options: { uppercaseHeaderCells: false } },
        ...["script", "style", "noscript", "template", "head"].map((selector) => ({ selector, format: "skip" })),
      ],
    }),
};

/** A row is read with the names of its columns: a chunk of it says what its figures are. */
const csv: TextFormat = {
  of: "text",
  textOf(text) {
    const rows = parseCsv(text, { bom: true, relax_column_count: true, skip_empty_lines: true }) as string[][];
    const [names = [], ...rest] = rows;
    if (rest.length === 0) return names.join(", ");
    return rest
      .map((row) => row.map((cell, column) => `${names[column] ?? `column ${column + 1}`}: ${cell}`).join("\n"))
      .join("\n\n");
  },
};

const pdf: TextFormat = {
  of: "bytes",
  begins: "%PDF-",
  async textOf(bytes) {
    // It takes the buffer over.
    const document = await getDocumentProxy(Uint8Array.from(bytes), { verbosity: 0 });
    try {
      const { text } = await extractPdf(document, { mergePages: false });
      return text.join("\n\n");
    } finally {
      await document.destroy();
    }
  },
};

const FORMATS: Readonly<Record<string, TextFormat>> = {
  "text/html": html,
  "application/xhtml+xml": html,
  "text/csv": csv,
  "application/csv": csv,
  "application/pdf": pdf,
};

/** The format of a MIME type (without parameters, in lower case) whose text is not what stands in it; else nothing. */
export function formatOf(mimeType: string): TextFormat | undefined {
  return Object.hasOwn(FORMATS, mimeType) ? FORMATS[mimeType] : undefined;
}
