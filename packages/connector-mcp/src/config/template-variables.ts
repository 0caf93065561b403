/**
 * The variables of a URI template (RFC 6570, without prefix modifiers, which the MCP SDK does not know); `undefined`: it is none.
 * By itself, so that a command that connects to nothing does not load the SDK.
 */
export function templateVariables(template: string): string[] | undefined {
  const expressions = [...template.matchAll(/\{([^{}]*)\}/g)].map(([, expression = ""]) => expression);
  if (/[{}]/.test(template.replace(/\{[^{}]*\}/g, ""))) return undefined;
  const names = expressions.flatMap((expression) => expression.replace(/^[+#./;?&]/, "").split(","));
  const variables = names.map((name) => name.replace(/\*$/, ""));
  return variables.every((name) => /^[A-Za-z0-9_.%]+$/.test(name)) ? [...new Set(variables)] : undefined;
}
