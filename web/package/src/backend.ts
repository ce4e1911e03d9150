import type { CacheChoice } from './cache.js';
import type { ModelSpec } from './models.js';
import type { LoadProgress } from './progress.js';
import type { Precision, SubgroupChoice } from './subgroups.js';
import type { AnswerReport, AnswerRequest, ModuleInfo, TokenReport } from './wasm.js';

/** How to load a model: what may cross to a worker. */
export interface LoadOptions {
  /** A known name, an address (`https:`, relative, or `hf:owner/repository/file.gguf`), a `File`, or an address with its hash. */
  readonly model: ModelSpec;
  /**
   * Drafter of the model, a safetensors file; with one, speculation is on by default. Known models bring their own, from
   * the package; `false` loads none.
   */
  readonly drafter?: ModelSpec | false;
  /** Tokens of the context; by default the model's own, at most 4096. */
  readonly context?: number;
  /** Type of keys and values: `f16` by default. */
  readonly kv?: 'f16' | 'f32';
  /**
   * What the model multiplies in: `f32` by default, which runs everywhere. `f16` needs an adapter with `shader-f16`, which
   * `probe()` tells as `adapter.f16`; on another the load fails with `webgpu_unavailable` before anything is downloaded.
   */
  readonly precision?: Precision;
  /** Where downloads are kept: `auto` by default. */
  readonly cache?: CacheChoice;
  /** Refuse a model that needs more GPU memory than this many bytes. */
  readonly memoryLimit?: number;
  /** Kernels with subgroups: `auto` by default, which is where the adapter has them and a check of all kernels passed. */
  readonly subgroups?: SubgroupChoice;
  /** Address of `redraft_wasm_bg.wasm`, where the bundler does not find it by itself. */
  readonly wasmUrl?: string;
}

/** What was loaded. */
export interface EngineInfo extends ModuleInfo {
  /** Bytes of the model's file. */
  readonly modelBytes: number;
  /** Most bytes that the WebAssembly heap has taken so far. */
  readonly heapBytes: number;
  /** Where `costs` come from: measured by this engine, or kept from an earlier load; null while there are none. */
  readonly costsFrom: 'measured' | 'kept' | null;
}

export interface BackendEvents {
  readonly progress?: ((progress: LoadProgress) => void) | undefined;
  readonly warning?: ((text: string) => void) | undefined;
  readonly lost?: ((message: string) => void) | undefined;
}

/** One loaded model, here or in a worker. Calls wait for each other. */
export interface Backend {
  readonly info: EngineInfo;
  answer(request: AnswerRequest, onToken: (token: TokenReport) => void, signal?: AbortSignal): Promise<AnswerReport>;
  encode(text: string): Promise<number[]>;
  dispose(): Promise<void>;
}
