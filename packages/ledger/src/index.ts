export { FencelineError, type LedgerErrorCode } from "./errors.js";
