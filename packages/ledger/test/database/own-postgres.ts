import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Where the programs of a PostgreSQL server are; undefined where there is none. */
export function postgresPrograms(): string | undefined {
  const debian = "/usr/lib/postgresql";
  const folders = existsSync(debian) ? readdirSync(debian).map((version) => join(debian, version, "bin")) : [];
  return [...folders.reverse(), "/usr/local/bin"].find((folder) => existsSync(join(folder, "pg_ctl")));
}

export function hasProgram(name: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${name}`]).status === 0;
}

/** A PostgreSQL server of a test's own, with TLS by a certificate for 127.0.0.1 of an authority of its own. */
export interface OwnPostgres {
  readonly port: number;
  readonly password: string;
  /** Certificate of the authority. */
  readonly authorityPath: string;
  /** Certificate of another one, which signed nothing. */
  readonly otherAuthorityPath: string;
  url(parameters?: string, password?: string): string;
  /** As a power cut does it: without a checkpoint. */
  crashAndStart(): void;
  stop(): void;
}

/** Takes connections with TLS and a password only. */
export async function startOwnPostgres(): Promise<OwnPostgres> {
  const programs = postgresPrograms() as string;
  const folder = mkdtempSync(join(tmpdir(), "fenceline-postgres-"));
  const data = join(folder, "data");
  const password = "s3cret/p@ss word";
  // The server refuses to run as root.
  const user = process.getuid?.() === 0 ? idsOf("postgres") : undefined;
  const run = (program: string, args: readonly string[]) =>
    execFileSync(program, args, { cwd: folder, stdio: ["ignore", "ignore", "pipe"], ...user });
  const own = (...paths: string[]) => {
    for (const path of paths) if (user) chownSync(path, user.uid, user.gid);
  };
  own(folder);
  writeFileSync(join(folder, "password"), password);
  own(join(folder, "password"));
  run(join(programs, "initdb"), [
    "-D",
    data,
    "-U",
    "postgres",
    "-A",
    "scram-sha-256",
    "--pwfile",
    join(folder, "password"),
    "--no-sync",
  ]);
  for (const name of ["authority", "other"]) {
    run("openssl", [
      ..."req -x509 -newkey rsa:2048 -nodes -days 2".split(" "),
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.crt`,
      "-subj",
      `/CN=${name}`,
    ]);
  }
  run("openssl", [..."req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=server".split(" ")]);
  writeFileSync(join(folder, "names"), "subjectAltName=IP:127.0.0.1,DNS:localhost");
  own(join(folder, "names"));
  run("openssl", [
    ..."x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.crt".split(
      " ",
    ),
  ]);
  chmodSync(join(folder, "server.key"), 0o600);
  writeFileSync(join(data, "pg_hba.conf"), "hostssl all all 127.0.0.1/32 scram-sha-256\n");
  own(join(data, "pg_hba.conf"));
  const port = await freePort();
  const settings = `-p ${port} -k ${folder} -c listen_addresses=127.0.0.1 -c ssl=on -c ssl_cert_file=${folder}/server.crt -c ssl_key_file=${folder}/server.key`;
  const start = () =>
    run(join(programs, "pg_ctl"), ["-D", data, "-w", "-l", join(folder, "log"), "-o", settings, "start"]);
  start();
  return {
    port,
    password,
    authorityPath: join(folder, "authority.crt"),
    otherAuthorityPath: join(folder, "other.crt"),
    url: (parameters = "", given = password) =>
      `postgres://postgres:${encodeURIComponent(given)}@127.0.0.1:${port}/postgres${parameters === "" ? "" : `?${parameters}`}`,
    crashAndStart() {
      run(join(programs, "pg_ctl"), ["-D", data, "-w", "-m", "immediate", "stop"]);
      start();
    },
    stop() {
      run(join(programs, "pg_ctl"), ["-D", data, "-w", "-m", "immediate", "stop"]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function idsOf(name: string): { uid: number; gid: number } {
  const id = (flag: string) => Number(execFileSync("id", [flag, name], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
