/** One card of the catalogue. */
export interface Plan {
  /** Last part of the URI, for instance `basic` or `basic/annual`. */
  readonly path: string;
  readonly name: string;
  readonly tier: string;
  readonly price: number;
  readonly billing: string;
  readonly seats: string;
  readonly support: string;
  readonly audience: string;
}

const CURRENCY = "EUR";

const TIERS = [
  {
    tier: "basic",
    price: 100,
    seats: "up to 3 seats",
    support: "answers by e-mail within two working days",
    audience: "freelancers and very small offices that want to begin without a contract",
  },
  {
    tier: "team",
    price: 240,
    seats: "up to 15 seats",
    support: "answers by e-mail and chat within one working day",
    audience: "teams that share one workspace and need their own roles",
  },
  {
    tier: "business",
    price: 620,
    seats: "up to 80 seats",
    support: "chat and telephone on working days, first answer within four hours",
    audience: "companies with several departments and an audit to pass",
  },
  {
    tier: "scale",
    price: 1400,
    seats: "up to 300 seats",
    support: "telephone around the clock, first answer within one hour",
    audience: "fast growing companies that run the product in more than one country",
  },
  {
    tier: "enterprise",
    price: 3900,
    seats: "any number of seats",
    support: "a named engineer, reachable around the clock",
    audience: "groups that need single sign-on, their own region and a negotiated contract",
  },
] as const;

const VARIANTS = [
  { part: "", title: "", factor: 1, billing: "billed every month, to be ended at the close of any month" },
  { part: "annual", title: "annual", factor: 10, billing: "billed once a year, two months of which are free" },
  {
    part: "two-years",
    title: "two-year",
    factor: 18,
    billing: "billed once for two years, six months of which are free",
  },
  { part: "education", title: "education", factor: 0.5, billing: "billed every month, for schools and universities" },
  { part: "non-profit", title: "non-profit", factor: 0.6, billing: "billed every month, for registered charities" },
  {
    part: "start-up",
    title: "start-up",
    factor: 0.7,
    billing: "billed every month, for the first two years of a company",
  },
  {
    part: "public-sector",
    title: "public sector",
    factor: 0.9,
    billing: "billed every quarter, against an order number",
  },
  {
    part: "reseller",
    title: "reseller",
    factor: 0.8,
    billing: "billed every month to the reseller, not to the customer",
  },
] as const;

/** The forty plans the catalogue begins with: five tiers in eight variants. */
export function firstPlans(): Plan[] {
  return TIERS.flatMap(({ tier, price, seats, support, audience }) =>
    VARIANTS.map(({ part, title, factor, billing }) => ({
      path: part === "" ? tier : `${tier}/${part}`,
      name: [capitalized(tier), title].filter((word) => word !== "").join(" "),
      tier,
      price: Math.round(price * factor),
      billing,
      seats,
      support,
      audience,
    })),
  );
}

/** The resource's URI. */
export function uriOf(plan: Pick<Plan, "path">): string {
  return `catalog://plans/${plan.path}`;
}

/** The card as Markdown, as a person would write it and a model would read it. */
export function cardOf(plan: Plan): string {
  return [
    `# ${plan.name} plan`,
    "",
    `The ${plan.name} plan belongs to the ${plan.tier} tier. It costs price=${plan.price} ${CURRENCY}, ${plan.billing}.`,
    "",
    `- Seats: ${plan.seats}.`,
    `- Support: ${plan.support}.`,
    `- Made for ${plan.audience}.`,
    "",
  ].join("\n");
}

function capitalized(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
