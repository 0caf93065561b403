/** What the ledger wrote down about a proven snapshot when it made the object, and asks about again when it is used. */
export interface SnapshotProof {
  readonly scopeId: number;
  readonly generation: number;
  readonly scanId: number;
  readonly setDigest: Buffer;
  /** Of the ledger that made it. */
  readonly mark: string;
  readonly resources: number;
  readonly measuredAt: Date;
}

// Assigned by the class, which alone can reach its constructor and field.
let mint: (proof: SnapshotProof) => ProvenSnapshot;
let read: (value: unknown) => SnapshotProof | undefined;

/**
 * A published catalogue whose every page bound one snapshot id (S3): what a task that needs completeness takes (S6).
 *
 * Only the ledger makes one, in `publishCatalog` and `provenSnapshot`. The private field makes the type nominal, so that a
 * literal, a record or an unproven catalogue does not compile in its place; a forced one (a cast, a JSON round trip, an
 * object with this prototype) lacks the field and is refused with `snapshot_not_proven`. That it *was* proven is not enough:
 * each task asks the database again, under the fence, whether it still is.
 */
export class ProvenSnapshot {
  readonly #proof: SnapshotProof;

  private constructor(proof: SnapshotProof) {
    this.#proof = proof;
  }

  get scanId(): number {
    return this.#proof.scanId;
  }

  get resources(): number {
    return this.#proof.resources;
  }

  get measuredAt(): Date {
    return this.#proof.measuredAt;
  }

  static {
    mint = (proof) => new ProvenSnapshot(proof);
    read = (value) =>
      typeof value === "object" && value !== null && #proof in value ? (value as ProvenSnapshot).#proof : undefined;
  }
}

/** For the ledger alone: the package does not export it. */
export function mintProvenSnapshot(proof: SnapshotProof): ProvenSnapshot {
  return mint(proof);
}

/** `undefined`: the ledger did not make this object. */
export function proofOf(value: unknown): SnapshotProof | undefined {
  return read(value);
}
