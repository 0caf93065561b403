import { configDefaults, defineConfig } from "vitest/config";
import checkout from "./vitest.config.js";

/** `npm run test:servers`: the same settings for the tests that need the published servers. */
export default defineConfig({
  ...checkout,
  test: { ...checkout.test, include: ["test/servers/*.test.ts"], exclude: configDefaults.exclude },
});
