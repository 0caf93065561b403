import { z } from "zod";
import { templateVariables } from "./template-variables.js";

const patterns = () => z.array(z.string().min(1)).min(1);

const values = z.union([z.array(z.string().min(1)).min(1), z.literal("completions")], {
  error: 'a list of values, or "completions"',
});

/** What is taken of a source: `resources`. Where it is left out, all that the server lists. */
export const choiceSchema = z
  .strictObject({
    /** Patterns of URIs; `*` stands for any run of characters. What none of them matches is left out. */
    include: patterns().optional(),
    /** Patterns of URIs that are left out, whatever `include` says. */
    exclude: patterns().optional(),
    /** Patterns of MIME types as they are listed. What is listed without one is taken. */
    mimeTypes: patterns().optional(),
    /** Templates of the server, each with what its variables stand for: values, or what the server completes them to. */
    templates: z.record(z.string().min(1), z.record(z.string().min(1), values)).optional(),
  })
  .superRefine(({ templates = {} }, context) => {
    for (const [template, given] of Object.entries(templates)) {
      const names = templateVariables(template);
      if (names === undefined) {
        context.addIssue({ code: "custom", path: ["templates", template], message: "a URI template (RFC 6570)" });
        continue;
      }
      for (const name of names.filter((name) => !(name in given))) {
        context.addIssue({ code: "custom", path: ["templates", template, name], message: "values of this variable" });
      }
      for (const name of Object.keys(given).filter((name) => !names.includes(name))) {
        const message = `one of the template's variables (${names.join(", ") || "it has none"})`;
        context.addIssue({ code: "custom", path: ["templates", template, name], message });
      }
    }
  });
