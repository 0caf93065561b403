/**
 * Groups of tests that need a real PostgreSQL or Redis. Where its address is not set, the group stands in the run as one
 * skipped test that names the service, and the reporter lists it; with `FENCELINE_REQUIRE_SERVICES=1` (CI) it fails. A
 * group that this machine cannot run is listed too, and fails nowhere.
 */

import { describe, test } from "vitest";

export { copyDatabase } from "./database-templates.js";

/** A service that a group of tests may need. */
export type Service = "PostgreSQL" | "Redis";

declare module "vitest" {
  interface TaskMeta {
    /** Set on the placeholder of what was not run: why, for instance `PostgreSQL not set`. */
    notRun?: string;
  }
}

const variableOf: Record<Service, string> = {
  PostgreSQL: "FENCELINE_TEST_POSTGRES_URL",
  Redis: "FENCELINE_TEST_REDIS_URL",
};

/**
 * A `describe` that runs where `FENCELINE_TEST_POSTGRES_URL` names a PostgreSQL, which `body` gets as a URL. Tests use
 * a schema of their own there and drop it.
 */
export function describeWithPostgres(name: string, body: (postgresUrl: string) => void): void {
  describeWith(["PostgreSQL"], name, ([postgresUrl]) => body(postgresUrl));
}

/**
 * A `describe` that runs where `FENCELINE_TEST_REDIS_URL` names a Redis, which `body` gets as a URL. Tests use a key
 * prefix or a database number of their own there and clean up.
 */
export function describeWithRedis(name: string, body: (redisUrl: string) => void): void {
  describeWith(["Redis"], name, ([redisUrl]) => body(redisUrl));
}

/** A `describe` that runs where both services are set. */
export function describeWithPostgresAndRedis(
  name: string,
  body: (postgresUrl: string, redisUrl: string) => void,
): void {
  describeWith(["PostgreSQL", "Redis"], name, ([postgresUrl, redisUrl]) => body(postgresUrl, redisUrl));
}

/**
 * A `describe` for what some machines cannot run at all.
 *
 * @param holds whether this one can, for instance because root runs the tests
 * @param lack what it lacks otherwise, for the list at the end of the run: `not root`
 */
export function describeWhere(holds: boolean, lack: string, name: string, body: () => void): void {
  if (holds) describe(name, body);
  else describe(name, () => test("is not run", { meta: { notRun: lack } }, ({ skip }) => skip(lack)));
}

type UrlsOf<Services extends readonly Service[]> = { [Index in keyof Services]: string };

function describeWith<const Services extends readonly Service[]>(
  services: Services,
  name: string,
  body: (urls: UrlsOf<Services>) => void,
): void {
  const notSet = services.filter((service) => !process.env[variableOf[service]]);
  if (notSet.length === 0) {
    describe(name, () => body(services.map((service) => process.env[variableOf[service]]) as UrlsOf<Services>));
    return;
  }
  const variables = notSet.map((service) => variableOf[service]).join(" and ");
  describe(name, () => {
    test(`needs ${notSet.join(" and ")}`, { meta: { notRun: `${notSet.join(" and ")} not set` } }, ({
      skip,
      expect,
    }) => {
      if (process.env["FENCELINE_REQUIRE_SERVICES"] === "1") expect.fail(`${variables} must be set here`);
      skip(`${variables} is not set`);
    });
  });
}
