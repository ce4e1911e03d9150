import { orAborted, settledOnAbort } from './abort.js';
import type { Backend, BackendEvents, EngineInfo, LoadOptions } from './backend.js';
import { dropUseless, openModel } from './cache.js';
import { type CostSetting, costsKey, recallCosts } from './costs.js';
import { openDrafter } from './drafter.js';
import { RedraftError, asRedraftError, bytesOf, throwIfAborted } from './errors.js';
import { atOnce, moduleDeath, whileAlive } from './life.js';
import { storedNotes } from './notes.js';
import { type Probe, probe } from './probe.js';
import { ProgressMeter } from './progress.js';
import { choosePath } from './subgroups.js';
import { VERSION } from './version.js';
import { type AnswerReport, type AnswerRequest, type ModuleInfo, type TokenReport, loadModule } from './wasm.js';
import { WasmEngine, checkPath, heapBytes, loadEngine } from './wasm/redraft_wasm.js';

/** Largest drafter: unlike the model it passes through the module's heap as a whole. */
const DRAFTER_LIMIT = 512 << 20;

const checks = storedNotes('checks');
const keptCosts = storedNotes('costs');

/** A model on this realm's own WebGPU. */
export class LocalBackend implements Backend {
  readonly #options: LoadOptions;
  readonly #events: BackendEvents;
  #engine: WasmEngine | undefined;
  #info: EngineInfo | undefined;
  /** Where the costs of this engine are kept. */
  #costsKey = '';
  /** Fires when the engine is disposed of: what runs then ends. */
  readonly #disposal = new AbortController();
  /** The last call that was let in. */
  #last: Promise<unknown> = Promise.resolve();

  private constructor(options: LoadOptions, events: BackendEvents) {
    this.#options = options;
    this.#events = events;
  }

  static async load(options: LoadOptions, events: BackendEvents, signal?: AbortSignal): Promise<LocalBackend> {
    const backend = new LocalBackend(options, events);
    await backend.#load(signal);
    return backend;
  }

  get info(): EngineInfo {
    if (!this.#info) throw new RedraftError('internal', 'no model is loaded');
    return { ...this.#info, heapBytes: moduleDeath() ? this.#info.heapBytes : heapBytes() };
  }

  answer(request: AnswerRequest, onToken: (token: TokenReport) => void, signal?: AbortSignal): Promise<AnswerReport> {
    const stop = signal ? AbortSignal.any([signal, this.#disposal.signal]) : this.#disposal.signal;
    return this.#alone(stop, async (engine) => {
      const aborted = settledOnAbort(stop);
      const take = (json: string): void => {
        // What was computed after the caller gave up is not for the caller.
        if (!stop.aborted) onToken(JSON.parse(json) as TokenReport);
      };
      try {
        return JSON.parse(await whileAlive(() => engine.answer(JSON.stringify(request), take, aborted.promise))) as AnswerReport;
      } finally {
        aborted.release();
        if (request.speculation === 'auto' && !moduleDeath()) await this.#keepCosts(engine);
      }
    });
  }

  encode(text: string): Promise<number[]> {
    return this.#alone(undefined, (engine) => Promise.resolve([...atOnce(() => engine.encode(text))]));
  }

  async dispose(): Promise<void> {
    this.#disposal.abort();
    await this.#last.catch(() => undefined);
    this.#free();
  }

  /** Runs `work` after all that was asked before, on a device that works. */
  async #alone<T>(signal: AbortSignal | undefined, work: (engine: WasmEngine) => Promise<T>): Promise<T> {
    if (this.#disposal.signal.aborted) throw new RedraftError('disposed', 'the engine was disposed; create another one');
    throwIfAborted(signal);
    const turn = this.#last.catch(() => undefined).then(async () => {
      throwIfAborted(signal);
      const engine = await this.#ready(signal);
      try {
        return await work(engine);
      } catch (thrown) {
        const error = asRedraftError(thrown);
        if (error.code === 'device_lost') this.#lose(error);
        throw error;
      }
    });
    this.#last = turn;
    return orAborted(turn, signal);
  }

  async #recallCosts(engine: WasmEngine, setting: CostSetting): Promise<boolean> {
    try {
      this.#costsKey = await costsKey(setting);
      return await recallCosts(keptCosts, this.#costsKey, { setCosts: (json) => atOnce(() => engine.setCosts(json)) });
    } catch (error) {
      free(engine);
      throw error;
    }
  }

  /** Notes the costs of an engine that has just measured them. */
  async #keepCosts(engine: WasmEngine): Promise<void> {
    if (!this.#info || this.#info.costs !== null) return;
    const { costs } = infoOf(engine);
    if (costs === null) return;
    this.#info = { ...this.#info, costs, costsFrom: 'measured' };
    // Not being able to keep them costs another measurement, no more.
    await keptCosts.set(this.#costsKey, JSON.stringify(costs)).catch(() => undefined);
  }

  async #ready(signal: AbortSignal | undefined): Promise<WasmEngine> {
    const engine = this.#engine;
    try {
      if (engine) atOnce(() => engine.healthy());
    } catch (error) {
      if (moduleDeath()) throw error;
      // Lost while nobody used it: nobody needs to hear of it as an error.
      this.#lose(asRedraftError(error));
    }
    return this.#engine ?? this.#load(signal);
  }

  #lose(error: RedraftError): void {
    this.#free();
    this.#events.lost?.(error.message);
  }

  #free(): void {
    if (this.#engine) free(this.#engine);
    this.#engine = undefined;
  }

  async #load(signal: AbortSignal | undefined): Promise<WasmEngine> {
    const { model, context, kv, precision = 'f32', cache = 'auto', memoryLimit, subgroups = 'auto', wasmUrl } = this.#options;
    const meter = new ProgressMeter(this.#events.progress);
    const warnings: string[] = [];
    const warn = (text: string): void => {
      warnings.push(text);
      this.#events.warning?.(text);
    };
    throwIfAborted(signal);
    const end = moduleDeath();
    if (end) throw end;
    const found = await orAborted(probe(), signal);
    if (!found.ok) throw unavailable(found);
    if (precision === 'f16' && !found.adapter.f16) {
      const { vendor, architecture, description } = found.adapter;
      const name = [description, vendor, architecture].find((text) => text !== '') ?? 'unnamed';
      throw new RedraftError('webgpu_unavailable', `precision 'f16' needs the feature shader-f16, which the GPU (${name}) does not have: leave precision out, or pass 'f32', which runs everywhere; probe() tells adapter.f16`);
    }
    const fetching = { cache, meter, signal, warn };
    const modelFile = await orAborted(openModel(model, { ...fetching, magic: 'GGUF' }), signal);
    const drafterFile = await orAborted(openDrafter(this.#options, fetching), signal);
    await orAborted(loadModule(wasmUrl), signal);
    const { adapter } = found;
    const check = (path: string): Promise<string> => whileAlive(() => checkPath(path, (share: number) => meter.check(share)));
    const choosing = { adapter, choice: subgroups, precision, version: VERSION, memory: checks, check, warn };
    const path = await orAborted(choosePath(choosing), signal);
    const drafterBytes = drafterFile && (await drafterContents(drafterFile));
    throwIfAborted(signal);
    const aborted = settledOnAbort(signal);
    let unread: RedraftError | undefined;
    try {
      // To the module, bytes that do not come are a damaged file; why they did not come is known here.
      const read = (offset: number, length: number) =>
        bytesOf(modelFile.slice(offset, offset + length), "the model's file").catch((error: unknown) => {
          throw (unread = asRedraftError(error));
        });
      const tell = (phase: 'kernels' | 'weights', done: number, total: number): void => meter.load(phase, done, total);
      const request = JSON.stringify({ context, kv, precision, path, memoryLimit });
      const engine = await whileAlive(() => loadEngine(modelFile.size, read, request, drafterBytes, tell, aborted.promise));
      const loaded = infoOf(engine);
      const kept = await this.#recallCosts(engine, { version: VERSION, adapter, info: loaded, kv: kv ?? 'f16', model: modelFile, drafter: drafterFile });
      const info = kept ? infoOf(engine) : loaded;
      info.warnings.forEach(warn);
      this.#info = { ...info, warnings, costsFrom: kept ? 'kept' : null, modelBytes: modelFile.size, heapBytes: heapBytes() };
      this.#engine = engine;
      meter.ready();
      return engine;
    } catch (error) {
      const found = asRedraftError(error);
      if (unread && found.code !== 'aborted') throw unread;
      throw await this.#withoutUseless(found);
    } finally {
      aborted.release();
    }
  }

  /** Takes a download that is no model, or no drafter for it, out of the cache, and says so. */
  async #withoutUseless(error: RedraftError): Promise<RedraftError> {
    const { model, drafter } = this.#options;
    const ofDrafter = error.code === 'invalid_drafter';
    const spec = ofDrafter ? drafter : error.code === 'invalid_model' ? model : undefined;
    if (spec === undefined || spec === false) return error;
    const dropped = await dropUseless(spec).catch(() => false);
    const advice = ofDrafter ? '; is it of another model? Pass the drafter of this one, or drafter: false' : '';
    return new RedraftError(error.code, `${error.message}${advice}${dropped ? '; what was downloaded is deleted, and fetched anew by the next load' : ''}`, { cause: error });
  }
}

function infoOf(engine: WasmEngine): ModuleInfo {
  return JSON.parse(atOnce(() => engine.info())) as ModuleInfo;
}

/** Frees what the engine holds; of a module that has ended nothing can be freed, nor need be. */
function free(engine: WasmEngine): void {
  try {
    atOnce(() => engine.free());
  } catch (error) {
    if (!moduleDeath()) throw error;
  }
}

function unavailable(found: Extract<Probe, { ok: false }>): RedraftError {
  return new RedraftError('webgpu_unavailable', `${found.reason} ${found.advice}`);
}

async function drafterContents(file: Blob): Promise<Uint8Array> {
  if (file.size > DRAFTER_LIMIT) {
    throw new RedraftError('invalid_drafter', `the drafter has ${file.size} bytes, at most ${DRAFTER_LIMIT} are read`);
  }
  return bytesOf(file, "the drafter's file");
}
