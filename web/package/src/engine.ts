import type { Backend, BackendEvents, EngineInfo, LoadOptions } from './backend.js';
import { Completions } from './completions.js';
import { RedraftError } from './errors.js';
import { LocalBackend } from './local.js';
import { type ModelSpec, checkSpec, isLocal } from './models.js';
import type { LoadProgress } from './progress.js';
import type { RoundTree } from './wasm.js';
import { WorkerBackend } from './worker-client.js';

export interface EngineOptions extends LoadOptions {
  /** Aborts the load: the download, the compilation, the upload. */
  readonly signal?: AbortSignal;
  /** Hears of the load, and of loading again after the device was lost. */
  readonly onProgress?: (progress: LoadProgress) => void;
}

export interface WorkerEngineOptions extends EngineOptions {
  /** A worker of your own that calls `serveEngine(self)` or imports `@redraft/web/worker`; it is not ended by `dispose`. */
  readonly worker?: Worker;
}

/** What an engine tells its listeners. */
export interface EngineEvents {
  /** The draft tree of a round. Rounds are slower while somebody listens. */
  readonly round: RoundTree;
  /** Something was done otherwise than asked, and why. */
  readonly warning: string;
  /** The GPU device was lost; the next call loads the model again. */
  readonly lost: string;
  readonly progress: LoadProgress;
}

type Listeners = { [K in keyof EngineEvents]: Set<(value: EngineEvents[K]) => void> };

class Emitter {
  readonly #listeners: Listeners = { round: new Set(), warning: new Set(), lost: new Set(), progress: new Set() };

  on<K extends keyof EngineEvents>(event: K, listener: (value: EngineEvents[K]) => void): () => void {
    const listeners = this.#listeners[event];
    if (listeners === undefined) throw new RedraftError('invalid_request', `there is no event ${String(event)}`);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }

  emit<K extends keyof EngineEvents>(event: K, value: EngineEvents[K]): void {
    for (const listener of this.#listeners[event]) listener(value);
  }

  hears(event: keyof EngineEvents): boolean {
    return this.#listeners[event].size > 0;
  }
}

/** A loaded model. */
export class Engine {
  readonly chat: { readonly completions: Completions };
  readonly #backend: Backend;
  readonly #emitter: Emitter;

  /** @internal */
  constructor(backend: Backend, model: string, emitter: Emitter) {
    this.#backend = backend;
    this.#emitter = emitter;
    const events = () => ({
      ...(emitter.hears('round') && { round: (tree: RoundTree) => emitter.emit('round', tree) }),
      warning: (text: string) => emitter.emit('warning', text),
    });
    this.chat = { completions: new Completions(backend, model, events) };
  }

  /** What was loaded, and on what. */
  get info(): EngineInfo {
    return this.#backend.info;
  }

  /** Listens; the function that comes back stops that. */
  on<K extends keyof EngineEvents>(event: K, listener: (value: EngineEvents[K]) => void): () => void {
    return this.#emitter.on(event, listener);
  }

  /** Tokens of a text, special tokens recognised. */
  tokenize(text: string): Promise<number[]> {
    return this.#backend.encode(text);
  }

  /** Ends what runs and frees the GPU memory. The engine is of no use afterwards. */
  async dispose(): Promise<void> {
    await this.#backend.dispose();
  }
}

function nameOf(model: LoadOptions['model']): string {
  if (typeof model === 'string') return model;
  if (!isLocal(model)) return model.url;
  const file = model instanceof Blob ? model : model.file;
  return 'name' in file && typeof file.name === 'string' ? file.name : 'file';
}

async function create(options: EngineOptions, load: (options: LoadOptions, events: BackendEvents, signal?: AbortSignal) => Promise<Backend>): Promise<Engine> {
  if (options.model === undefined) throw new RedraftError('invalid_request', 'model is missing: give a name, an address or a File');
  checkSpec('model', options.model);
  if (options.drafter !== undefined && options.drafter !== false) checkSpec('drafter', options.drafter);
  const { signal, onProgress, ...rest } = options;
  const emitter = new Emitter();
  if (onProgress) emitter.on('progress', onProgress);
  const warnings: string[] = [];
  let engine: Engine | undefined;
  const events: BackendEvents = {
    progress: (progress) => emitter.emit('progress', progress),
    // Nobody can listen before the engine is there.
    warning: (text) => (engine ? emitter.emit('warning', text) : void warnings.push(text)),
    lost: (message) => emitter.emit('lost', message),
  };
  const backend = await load(rest, events, signal);
  engine = new Engine(backend, nameOf(options.model), emitter);
  for (const text of warnings) console.warn(`redraft: ${text}`);
  return engine;
}

/** Loads a model in this page (or in the worker that calls it). */
export function createEngine(options: EngineOptions): Promise<Engine> {
  return create(options, LocalBackend.load);
}

/** Loads a model in a worker, so that compiling kernels and packing weights never hold the page up. */
export function createWorkerEngine(options: WorkerEngineOptions): Promise<Engine> {
  const { worker, ...rest } = options;
  return create(rest, (load, events, signal) => {
    // An address relative to the page means another one inside the worker.
    const absolute = load.wasmUrl === undefined ? load : { ...load, wasmUrl: new URL(load.wasmUrl, location.href).href };
    const own = worker === undefined;
    // Written out like this, bundlers find the worker and bundle it.
    const chosen = worker ?? new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'redraft' });
    return WorkerBackend.load(chosen, own, resolveAddresses(absolute), events, signal);
  });
}

/** Addresses relative to the page, made absolute before they leave it. */
function resolveAddresses(options: LoadOptions): LoadOptions {
  const absolute = (spec: ModelSpec): ModelSpec => {
    if (typeof spec === 'string') return /^(\.{0,2}\/|[^:/]+\/)/.test(spec) ? new URL(spec, location.href).href : spec;
    return isLocal(spec) || spec.url.startsWith('hf:') ? spec : { ...spec, url: new URL(spec.url, location.href).href };
  };
  return {
    ...options,
    model: absolute(options.model),
    ...(options.drafter !== undefined && { drafter: options.drafter && absolute(options.drafter) }),
  };
}
