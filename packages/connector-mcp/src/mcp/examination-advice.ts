/** What to do about each problem that an examination can find, by its code. */
const ADVICE: Readonly<Record<string, string>> = {
  source_endpoint_invalid: "Correct url, headers or command in the source's configuration.",
  source_unreachable: "Start the server, or correct url; see that a proxy or firewall lets this machine through.",
  source_unauthorized:
    "Renew the reader's credential (headers, env or auth), and see that the variable it comes from is set.",
  source_forbidden: "Ask the server's owner to allow this reader, or use another credential.",
  source_throttled: "It is asked too often: lower settings.readConcurrency, or set settings.readsPerSecond.",
  source_lost: "See the server's own log: it ended, or forgot the session, in the middle of it.",
  source_failed: "See the server's own log for what it answers with an error.",
  request_timeout: "See why the server is slow, or raise settings.requestTimeoutMs.",
  response_invalid: "Report it to the server's author: the answer does not fit the protocol.",
  response_too_large: "Leave the resource out, or have the server cut it into smaller ones.",
  after_connect_failed: "Correct the tool's name or arguments under afterConnect.",
  resources_not_offered:
    "See the server's settings: some offer resources only when asked to. What it offers as tools cannot be ingested.",
  list_empty:
    "If it should list something, see what this credential may see. Resources behind templates are not listed by themselves: see resources.templates.",
  none_chosen:
    "Correct include, exclude or mimeTypes under the source's resources, unless what is meant is on a later page.",
  list_not_offered: "The server declares resources and does not list them: report it to its author.",
  list_unauthorized: "Renew the reader's credential; connecting alone may not need one.",
  list_forbidden: "Ask the server's owner to let this reader list resources.",
  list_timed_out: "See why listing is slow, or raise settings.requestTimeoutMs.",
  list_invalid: "Report it to the server's author: an entry of the list does not fit the protocol.",
  list_too_large: "Have the server list in smaller pages.",
  list_malformed: "Report it to the server's author; the other entries of the page are used.",
  uri_refused: "Report it to the server's author; the other resources are not harmed by it.",
  stream_failed:
    "Its resources are read on a timer meanwhile. See the server's log, and proxies that cut long answers.",
  not_acknowledged:
    "These are read on a timer (settings.pollMs). A server without a session, or behind a proxy that answers GET with 405, cannot push.",
  list_changes_not_acknowledged: "New and removed resources are noticed at the next review (settings.reviewMs).",
  read_failed: "The server answers with an error: see its own log. Other resources are not harmed by it.",
  read_empty: "It counts as neither a version nor a deletion. Report it to the server's author.",
  read_not_found: "Listed and not found: wait for the next scan, or report it to the server's author.",
  read_unauthorized: "Renew the reader's credential: reading needs more than listing did.",
  read_forbidden: "Ask the server's owner to let this reader read it, or leave it out of the source.",
  read_too_large: "Raise settings.maxBodyBytes, or leave the resource out.",
  read_throttled: "It is asked too often: lower settings.readConcurrency, or set settings.readsPerSecond.",
  read_timed_out: "See why reading is slow, or raise settings.requestTimeoutMs.",
  read_invalid: "Report it to the server's author: the answer does not fit the protocol.",
};

const COMMAND_ENDED =
  "Correct command, args or env; try it in a shell: it has to wait for input without ending, and to print nothing of its own.";

const OTHERWISE = "See the server's own log, and run it again.";

/** One sentence or two: what a person can do about it. */
export function adviceFor(code: string, isHttp: boolean): string {
  if (code === "source_unreachable" && !isHttp) return COMMAND_ENDED;
  return ADVICE[code] ?? OTHERWISE;
}
