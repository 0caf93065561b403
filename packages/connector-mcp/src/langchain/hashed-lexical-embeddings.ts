import { Embeddings, type EmbeddingsParams } from "@langchain/core/embeddings";

/** Numbers per vector. */
const DIMENSIONS = 1024;
/** Words whose features an instance remembers, some 20 MB of them; longer ones are rarely words. */
const KNOWN_WORDS = 20_000;
const LONGEST_KNOWN_WORD = 32;
/** An embedded text keeps the event loop for at most about this long at a time (heartbeats run in the same process). */
const TURN_MS = 20;
/** What all n-grams of a word weigh together, against 1 for the word itself: enough for "plans" to find "plan". */
const GRAM_WEIGHT = 0.6;

/**
 * Words that carry a question's grammar, not its subject. In short texts they would otherwise outweigh the one word that
 * tells two cards apart.
 */
const STOP_WORDS = new Set(
  (
    "a about all am an and any are as at be been but by can could did do does for from had has have he her his how i if in " +
    "into is it its just me my no not of on or our she should so some such than that the their them then there these they " +
    "this those to too up us was we were what when where which who whom why will with would you your"
  ).split(" "),
);

/** Scripts written without spaces, where a token is a whole phrase: single characters and pairs are its words. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;
const TOKEN = /[\p{L}\p{M}\p{N}]+/gu;
const NUMBER = /^\p{N}+$/u;

/**
 * Embeds text locally, without a model: words and their character n-grams, hashed with a sign into 1024 dimensions.
 * It finds texts that share words or parts of words with the question, in any language; it knows no synonyms.
 *
 * Deterministic: equal text gives an equal vector of length 1 on every machine. A change of the algorithm is another
 * embedding space and gets another {@link HashedLexicalEmbeddings.embeddingSpace}.
 */
export class HashedLexicalEmbeddings extends Embeddings {
  static readonly space = "hashed-lexical/1@1024";
  /** Versioned name of the vectors' space, recorded with every index that uses it. */
  readonly embeddingSpace = HashedLexicalEmbeddings.space;
  readonly dimensions = DIMENSIONS;
  readonly #known = new Map<string, WordFeatures>();

  constructor(params: EmbeddingsParams = {}) {
    super(params);
  }

  /** One vector of 1024 numbers per text, in order. Other work of the process runs in between. */
  override async embedDocuments(texts: string[]): Promise<number[][]> {
    const vectors: number[][] = [];
    let turnEndsAt = performance.now() + TURN_MS;
    for (const text of texts) {
      if (performance.now() >= turnEndsAt) {
        await new Promise<void>((resolve) => setImmediate(resolve));
        turnEndsAt = performance.now() + TURN_MS;
      }
      vectors.push(this.#embed(text));
    }
    return vectors;
  }

  /** As {@link embedDocuments}, for one text: questions and documents share the space. */
  override async embedQuery(text: string): Promise<number[]> {
    return this.#embed(text);
  }

  #embed(text: string): number[] {
    const vector = new Array<number>(DIMENSIONS).fill(0);
    for (const [word, count] of countedWordsOf(text)) {
      const { positions, weights } = this.#featuresOf(word);
      const frequency = 1 + Math.log(count);
      for (let feature = 0; feature < positions.length; feature += 1) {
        const position = positions[feature] as number;
        vector[position] = (vector[position] as number) + frequency * (weights[feature] as number);
      }
    }
    const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
    if (length === 0) {
      // A text without any word still needs a direction: the cosine of a zero vector is not a number.
      vector[0] = 1;
      return vector;
    }
    return vector.map((value) => value / length);
  }

  /** Texts repeat their words, and hashing a word's n-grams is nearly all of the work. */
  #featuresOf(word: string): WordFeatures {
    const known = this.#known.get(word);
    if (known !== undefined) return known;
    const features = featuresOf(word);
    if (word.length > LONGEST_KNOWN_WORD) return features;
    if (this.#known.size >= KNOWN_WORDS) this.#known.clear();
    this.#known.set(word, features);
    return features;
  }
}

/** What a word adds to a vector: `weights[i]`, signed, at `positions[i]`. */
interface WordFeatures {
  readonly positions: number[];
  readonly weights: number[];
}

/** The word itself, and its n-grams. */
function featuresOf(word: string): WordFeatures {
  const features: WordFeatures = { positions: [], weights: [] };
  addFeature(features, `w:${word}`, 1);
  if (NUMBER.test(word)) return features; // "10" and "100" are not alike
  const grams = gramsOf(word);
  for (const gram of grams) addFeature(features, `g:${gram}`, GRAM_WEIGHT / Math.sqrt(grams.length));
  return features;
}

function addFeature({ positions, weights }: WordFeatures, feature: string, weight: number): void {
  const hash = hashOf(feature);
  positions.push(hash % DIMENSIONS);
  weights.push(hash & 0x80000000 ? -weight : weight);
}

function countedWordsOf(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const word of wordsOf(text)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

/** The words that carry meaning; all of them where a text is made of stop words alone. */
function wordsOf(text: string): string[] {
  const words = text.normalize("NFKC").toLowerCase().match(TOKEN) ?? [];
  const meaningful = words.filter((word) => !STOP_WORDS.has(word) && !isLoneLetter(word));
  return meaningful.length > 0 ? meaningful : words;
}

/** The "s" of "what's", the "t" of "don't". */
function isLoneLetter(word: string): boolean {
  return word.length === 1 && word >= "a" && word <= "z";
}

/** 3- to 5-grams of the word between its boundary marks; single characters and pairs too in scripts without spaces. */
function gramsOf(word: string): string[] {
  const unspaced = UNSPACED.test(word);
  const characters = unspaced ? Array.from(word) : ["<", ...word, ">"];
  const grams: string[] = [];
  for (let size = unspaced ? 1 : 3; size <= 5; size += 1) {
    for (let start = 0; start + size <= characters.length; start += 1) {
      grams.push(characters.slice(start, start + size).join(""));
    }
  }
  return grams;
}

/** 32-bit FNV-1a over UTF-16 units, mixed once more: index and sign are taken from its two ends. */
function hashOf(feature: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < feature.length; index += 1) {
    hash = Math.imul(hash ^ feature.charCodeAt(index), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
