import type { Backend, BackendEvents, EngineInfo, LoadOptions } from './backend.js';
import { Completions } from './completions.js';
import { invalid, shown, text as checkText } from './checks.js';
import { RedraftError, asRedraftError, throwIfAborted } from './errors.js';
import { tellUncaught } from './life.js';
import { LocalBackend } from './local.js';
import { type ModelSpec, isLocal, knownModel, pageAddress, resolveUrl } from './models.js';
import { type CheckedOptions, checkOptions } from './options.js';
import type { LoadProgress } from './progress.js';
import type { RoundTree } from './wasm.js';
import { WorkerBackend } from './worker-client.js';

export interface EngineOptions extends LoadOptions {
  /** Aborts the load: the download, the compilation, the upload. */
  readonly signal?: AbortSignal;
  /** Hears of the load, and of loading again after the device was lost. */
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Hears of what is done otherwise than asked, and why, in the load and later. Without it, the load tells the console. */
  readonly onWarning?: (text: string) => void;
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
    if (!Object.hasOwn(this.#listeners, event)) throw invalid(`there is no event ${shown(event)}; there are ${Object.keys(this.#listeners).join(', ')}`);
    if (typeof listener !== 'function') throw invalid(`the listener must be a function, found ${shown(listener)}`);
    const listeners = this.#listeners[event];
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }

  emit<K extends keyof EngineEvents>(event: K, value: EngineEvents[K]): void {
    for (const listener of [...this.#listeners[event]]) {
      try {
        listener(value);
      } catch (error) {
        // What a listener throws must not end the load or the answer that it hears of.
        tellUncaught(error);
      }
    }
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
  async tokenize(text: string): Promise<number[]> {
    return this.#backend.encode(checkText('the text', text));
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

type Load = (options: LoadOptions, events: BackendEvents, signal: AbortSignal | undefined) => Promise<Backend>;

async function create({ load: options, signal, onProgress, onWarning }: CheckedOptions, load: Load): Promise<Engine> {
  const emitter = new Emitter();
  if (onProgress !== undefined) emitter.on('progress', onProgress);
  if (onWarning !== undefined) emitter.on('warning', onWarning);
  let loading = true;
  const events: BackendEvents = {
    progress: (progress) => emitter.emit('progress', progress),
    warning: (text) => {
      if (loading && onWarning === undefined) console.warn(`redraft: ${text}`);
      emitter.emit('warning', text);
    },
    lost: (message) => emitter.emit('lost', message),
  };
  const backend = await load(options, events, signal).catch((error: unknown) => {
    throw asRedraftError(error);
  });
  loading = false;
  return new Engine(backend, nameOf(options.model), emitter);
}

/** Loads a model in this page (or in the worker that calls it). */
export async function createEngine(options: EngineOptions): Promise<Engine> {
  return create(checkOptions(options, false), LocalBackend.load);
}

/** Loads a model in a worker, so that compiling kernels and packing weights never hold the page up. */
export async function createWorkerEngine(options: WorkerEngineOptions): Promise<Engine> {
  const checked = checkOptions(options, true);
  return create(checked, async (load, events, signal) => {
    throwIfAborted(signal);
    const resolved = resolveAddresses(load);
    return WorkerBackend.load(checked.worker ?? ownWorker(), checked.worker === undefined, resolved, events, signal);
  });
}

function ownWorker(): Worker {
  if (typeof Worker === 'undefined') throw new RedraftError('worker', 'there are no workers here: engines are made in a page or a worker of a browser');
  try {
    // Written out like this, bundlers find the worker and bundle it.
    return new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'redraft' });
  } catch (error) {
    const what = 'serve the package from the origin of the page, or pass a worker of your own that calls serveEngine(self)';
    throw new RedraftError('worker', `the browser refuses the worker of the package: ${String(error)}; ${what}`, { cause: error });
  }
}

/** Addresses relative to the page, made absolute before they leave it. */
function resolveAddresses(options: LoadOptions): LoadOptions {
  const absolute = (spec: ModelSpec): ModelSpec => {
    if (typeof spec === 'string') return knownModel(spec) || spec.startsWith('hf:') ? spec : resolveUrl(spec, pageAddress());
    return isLocal(spec) || spec.url.startsWith('hf:') ? spec : { ...spec, url: resolveUrl(spec.url, pageAddress()) };
  };
  return {
    ...options,
    model: absolute(options.model),
    ...(options.wasmUrl !== undefined && { wasmUrl: moduleUrl(options.wasmUrl) }),
    ...(options.drafter !== undefined && { drafter: options.drafter && absolute(options.drafter) }),
  };
}

function moduleUrl(url: string): string {
  try {
    return new URL(url, pageAddress()).href;
  } catch {
    throw invalid(`wasmUrl must be an address, found ${shown(url)}`);
  }
}
