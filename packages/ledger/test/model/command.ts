import type fc from "fast-check";
import type { LedgerModel } from "./ledger-model.js";
import type { RealLedger } from "./real-ledger.js";

/** Does one thing to the model and to the ledger, and compares their answers. */
export type Step<Arguments> = (model: LedgerModel, real: RealLedger, args: Arguments) => Promise<void>;

export type LedgerCommand = fc.AsyncCommand<LedgerModel, RealLedger>;

/** A command with the arguments that were drawn; one that finds nothing to work on does nothing. */
class DrawnCommand<Arguments> implements LedgerCommand {
  constructor(
    private readonly name: string,
    private readonly args: Arguments,
    private readonly step: Step<Arguments>,
  ) {}

  check(): boolean {
    return true;
  }

  run(model: LedgerModel, real: RealLedger): Promise<void> {
    real.count.commands += 1;
    return this.step(model, real, this.args);
  }

  toString(): string {
    return `${this.name}(${JSON.stringify(this.args)})`;
  }
}

export function command<Arguments>(
  name: string,
  args: fc.Arbitrary<Arguments>,
  step: Step<Arguments>,
): fc.Arbitrary<LedgerCommand> {
  return args.map((drawn) => new DrawnCommand(name, drawn, step));
}
