/** Language models in the browser on WebGPU, with exact tree speculation. */

export { type CacheChoice, type CachedModel, deleteModel, hasModel, listModels } from './cache.js';
export { ChatCompletionStream, type Completions } from './completions.js';
export {
  type Engine, type EngineEvents, type EngineOptions, type WorkerEngineOptions, createEngine, createWorkerEngine,
} from './engine.js';
export { type ErrorCode, RedraftError } from './errors.js';
export type { EngineInfo, LoadOptions } from './backend.js';
export { type KnownModel, type LocalModel, MODELS, type ModelFile, type ModelSpec, type PinnedFile, type RemoteModel } from './models.js';
export type {
  ChatCompletion, ChatCompletionChunk, ChatCompletionParams, ChatMessage, ContentLogprob, FinishReason,
  SpeculationChoice, TextPart, TokenInfo, TokenLogprob, Usage,
} from './openai.js';
export { type Probe, type ProbeAdapter, type ProbeLimits, probe } from './probe.js';
export type { LoadPhase, LoadProgress } from './progress.js';
export type { StoreKind } from './store.js';
export type { Precision, SubgroupChoice } from './subgroups.js';
export { VERSION } from './version.js';
export type { Gate, Plan, PlanMode, RoundTree, SpeculationCosts, SpeculationReport, TokenOrigin, TreeNode } from './wasm.js';
export { type WorkerScope, serveEngine } from './worker-server.js';
