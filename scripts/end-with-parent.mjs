/**
 * Loaded into a command with `--import`: ends its process group when the script that runs it is gone. That script passes
 * every signal on, but a SIGKILL leaves it no time to.
 */

const parent = process.ppid;

setInterval(() => {
  if (process.ppid !== parent) process.kill(-process.pid, "SIGTERM");
}, 500).unref();
