/** The module that does the work, and the shapes of what it says (`crates/redraft-wasm/src/report.rs`). */
import { RedraftError } from './errors.js';
import { die, watch } from './life.js';
import init, { onPanic } from './wasm/redraft_wasm.js';

/** Who proposed a token before the model confirmed it: nobody, the drafter, its second pass, or the text so far. */
export type TokenOrigin = 'target' | 'drafted' | 'refined' | 'lookup';

export interface LogProbReport {
  readonly id: number;
  readonly text: string;
  readonly bytes: readonly number[];
  /** Null for minus infinity. */
  readonly logProb: number | null;
}

export type PlanMode = 'lookup' | 'chain' | 'tree' | 'reconsider';
export type Gate = 'off' | 'top1' | 'entropy' | 'calibrated' | 'random';

/** The shape of a draft round. */
export interface Plan {
  readonly mode: PlanMode;
  /** Drafted tokens that are verified at once. */
  readonly nodes: number;
  readonly depth: number;
  readonly width: number;
  readonly children: number;
  /** Hesitant tokens that a step considers a second time. */
  readonly reconsider: number;
  readonly refined: number;
  readonly gate: Gate;
  readonly lookup: boolean;
}

export interface TreeNode {
  readonly token: number;
  readonly text: string;
  /** Index of the node above; null for the root. */
  readonly parent: number | null;
  readonly depth: number;
  /** Sum of the log-probabilities down to it; null where it is no number. */
  readonly score: number | null;
  readonly origin: TokenOrigin;
  /** How unsure the drafter was of what follows, 0 to 1; null where it did not look. */
  readonly unsure: number | null;
  /** It had a second pass. */
  readonly reconsidered: boolean;
  /** Row of the verified batch; null where it was pruned. */
  readonly row: number | null;
}

/** The draft tree of one round. */
export interface RoundTree {
  readonly plan: Plan;
  /** Tokens before the root. */
  readonly start: number;
  /** The root first, parents before children. */
  readonly nodes: readonly TreeNode[];
  /** Indices of the accepted path, the root first. */
  readonly accepted: readonly number[];
}

/** One token of an answer. */
export interface TokenReport {
  readonly id: number;
  /** Text that is final with it: may be empty, or more than its own. */
  readonly text: string;
  readonly origin: TokenOrigin;
  readonly logProbs?: { readonly chosen: LogProbReport; readonly top: readonly LogProbReport[] };
  readonly round?: RoundTree;
}

export interface SpeculationReport {
  readonly rounds: number;
  /** Tokens decoded one a step. */
  readonly plain: number;
  readonly drafted: number;
  readonly accepted: number;
  /** τ: tokens a round, the model's own included; null before the first round. */
  readonly tau: number | null;
  readonly reconsidered: number;
  readonly refined: number;
  readonly duplicates: number;
  /** Accepted tokens that only a second pass had proposed. */
  readonly rescues: number;
  readonly lookupHits: number;
  readonly acceptanceByDepth: readonly number[];
  readonly history: readonly { readonly plan: Plan | null; readonly rounds: number; readonly emitted: number }[];
}

export interface AnswerReport {
  readonly text: string;
  readonly ids: readonly number[];
  readonly promptTokens: number;
  readonly reusedTokens: number;
  readonly stopReason: 'eos' | 'stop' | 'length' | 'context' | 'cancelled';
  readonly timings: {
    readonly prefillSeconds: number;
    /** Of those, what the first automatic answer took to measure what steps cost. */
    readonly measuringSeconds: number;
    readonly prefillTokens: number;
    readonly decodeSeconds: number;
    readonly decodeTokens: number;
  };
  readonly speculation: SpeculationReport | null;
  /** Why speculation was given up, if it was. */
  readonly warning: string | null;
}

/** What steps and rounds cost here, in plain decoding steps; what `speculation: 'auto'` calculates with. */
export interface SpeculationCosts {
  /** Rows and cost of a step of the model that verifies so many rows. */
  readonly verify: readonly (readonly [number, number])[];
  /** Rows and cost of a step of the drafter. */
  readonly draft: readonly (readonly [number, number])[];
  readonly extend: number;
  readonly overhead: number;
  readonly catchUp: number;
  readonly catchUpMost: number;
}

export interface ModuleInfo {
  readonly adapter: string;
  readonly path: string;
  readonly architecture: string;
  readonly layers: number;
  readonly hidden: number;
  readonly vocab: number;
  readonly context: number;
  readonly trainedContext: number;
  readonly chatTemplate: boolean;
  readonly drafter: boolean;
  /** GPU memory in bytes. */
  readonly memory: {
    readonly weights: number;
    readonly kvCache: number;
    readonly activations: number;
    readonly sampling: number;
    readonly total: number;
  };
  readonly tiles: string;
  readonly tilesAgree: boolean;
  /** What the load did otherwise than asked, and why. */
  readonly warnings: readonly string[];
  /** Null until the first answer with `speculation: 'auto'` measured them, or they were kept from an earlier load. */
  readonly costs: SpeculationCosts | null;
}

/** What the module is asked (`crates/redraft-wasm/src/request.rs`). */
export interface AnswerRequest {
  readonly prompt:
    | { readonly messages: readonly { readonly role: string; readonly content: string }[] }
    | { readonly text: string }
    | { readonly tokens: readonly number[] };
  readonly maxTokens?: number;
  readonly sampling?: {
    readonly temperature?: number;
    readonly topK?: number;
    readonly topP?: number;
    readonly minP?: number;
    readonly repetitionPenalty?: number;
    readonly presencePenalty?: number;
    readonly frequencyPenalty?: number;
    readonly penaltyWindow?: number;
    readonly logitBias?: readonly (readonly [number, number])[];
    readonly seed?: number;
  };
  readonly stop?: readonly string[];
  readonly logProbs?: number;
  readonly ignoreEos?: boolean;
  readonly speculation?: 'off' | 'auto' | { readonly plan: { readonly mode: PlanMode } & Partial<Plan> };
  readonly trace?: boolean;
}

let module: Promise<void> | undefined;

/** Instantiates the module once for this page or worker; the first address given counts. */
export function loadModule(wasmUrl: string | undefined): Promise<void> {
  // Written out like this, bundlers find the file and emit it.
  module ??= instantiate(wasmUrl ?? new URL('./wasm/redraft_wasm_bg.wasm', import.meta.url)).catch((error: unknown) => {
    module = undefined;
    throw new RedraftError('network', `the WebAssembly module cannot be loaded: ${String(error)}; is redraft_wasm_bg.wasm served beside the package, or does wasmUrl name it?`, { cause: error });
  });
  return module;
}

async function instantiate(url: string | URL): Promise<void> {
  const response = await fetch(url);
  await init({ module_or_path: response });
  watch(response.url);
  onPanic(die);
}
