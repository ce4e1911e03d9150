import { orAborted } from './abort.js';
import type { Backend, BackendEvents, EngineInfo, LoadOptions } from './backend.js';
import { RedraftError, abortedError, fromWire, throwIfAborted } from './errors.js';
import { type FromWorker, type Outcome, type ToWorker, open, seal, versions } from './protocol.js';
import { VERSION } from './version.js';
import type { AnswerReport, AnswerRequest, TokenReport } from './wasm.js';

/** Milliseconds in which a worker of the app must take a call; the package's own tells when it cannot start. */
const PATIENCE = 30_000;

interface Pending {
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: RedraftError) => void;
  readonly onToken: ((token: TokenReport) => void) | undefined;
}

/** A model in a worker. */
export class WorkerBackend implements Backend {
  readonly #worker: Worker;
  /** The worker is ours to end. */
  readonly #own: boolean;
  readonly #events: BackendEvents;
  readonly #client = String(Math.random()).slice(2);
  readonly #pending = new Map<number, Pending>();
  /** Fires when there is nothing to wait for any more. */
  readonly #closing = new AbortController();
  #next = 0;
  #info: EngineInfo | undefined;
  #alive = false;
  #dead: RedraftError | undefined;
  #disposal: Promise<void> | undefined;

  private constructor(worker: Worker, own: boolean, events: BackendEvents) {
    this.#worker = worker;
    this.#own = own;
    this.#events = events;
    worker.addEventListener('message', this.#hear);
    worker.addEventListener('error', this.#fail);
    worker.addEventListener('messageerror', this.#fail);
  }

  static async load(worker: Worker, own: boolean, options: LoadOptions, events: BackendEvents, signal?: AbortSignal, patience = PATIENCE): Promise<WorkerBackend> {
    const backend = new WorkerBackend(worker, own, events);
    const silent = new RedraftError('worker', `the worker has not answered in ${patience / 1000} s: it must call serveEngine(self) or import @redraft/web/worker when it starts`);
    const timer = own ? undefined : setTimeout(() => backend.#alive || backend.#close(silent), patience);
    try {
      const outcome = await backend.#call({ type: 'load', options }, signal);
      if (outcome.kind !== 'loaded') throw unexpected(outcome);
      backend.#info = outcome.info;
      return backend;
    } catch (error) {
      backend.#close(new RedraftError('disposed', 'the model was not loaded'));
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  get info(): EngineInfo {
    if (!this.#info) throw new RedraftError('internal', 'no model is loaded');
    return this.#info;
  }

  async answer(request: AnswerRequest, onToken: (token: TokenReport) => void, signal?: AbortSignal): Promise<AnswerReport> {
    const outcome = await this.#call({ type: 'answer', request }, signal, onToken);
    if (outcome.kind !== 'answer') throw unexpected(outcome);
    this.#info = outcome.info;
    return outcome.report;
  }

  async encode(text: string): Promise<number[]> {
    const outcome = await this.#call({ type: 'encode', text });
    if (outcome.kind !== 'tokens') throw unexpected(outcome);
    return [...outcome.tokens];
  }

  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    // Of a worker that is gone there is nothing left to free.
    await this.#call({ type: 'dispose' }).catch(() => undefined);
    this.#close(new RedraftError('disposed', 'the engine was disposed; create another one'));
  }

  async #call(message: Body, signal?: AbortSignal, onToken?: (token: TokenReport) => void): Promise<Outcome> {
    if (this.#dead) throw this.#dead;
    if (this.#disposal && message.type !== 'dispose') throw new RedraftError('disposed', 'the engine was disposed; create another one');
    throwIfAborted(signal);
    const id = this.#next;
    this.#next += 1;
    const done = new Promise<Outcome>((resolve, reject) => this.#pending.set(id, { resolve, reject, onToken }));
    // A rejection may come before anybody waits.
    done.catch(() => undefined);
    this.#post({ ...message, id });
    const abort = (): void => {
      this.#post({ type: 'abort', id });
      // A worker of the app that loads frees what it had allocated before it answers; our own is ended.
      if (signal && message.type === 'load' && (this.#own || !this.#alive)) this.#pending.get(id)?.reject(abortedError(signal));
    };
    signal?.addEventListener('abort', abort, { once: true });
    try {
      return message.type === 'load' ? await done : await orAborted(done, signal);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  #post(message: ToWorker): void {
    this.#worker.postMessage(seal(this.#client, message));
  }

  readonly #hear = (event: MessageEvent<unknown>): void => {
    const envelope = open<FromWorker>(event.data);
    if (envelope?.client !== this.#client) return;
    if (envelope.version !== VERSION) return this.#close(versions(envelope.version));
    const { body: message } = envelope;
    switch (message.type) {
      case 'alive':
        return this.#watch(message.lock);
      case 'progress':
        return this.#events.progress?.(message.progress);
      case 'warning':
        return this.#events.warning?.(message.text);
      case 'lost':
        return this.#events.lost?.(message.message);
      case 'token':
        return this.#pending.get(message.id)?.onToken?.(message.token);
      case 'done':
        this.#pending.get(message.id)?.resolve(message.outcome);
        this.#pending.delete(message.id);
        return;
      case 'failed':
        this.#pending.get(message.id)?.reject(fromWire(message.error));
        this.#pending.delete(message.id);
        return;
    }
  };

  /** Workers that are ended from outside, or that the browser ends, tell nobody; but what they held becomes free. */
  #watch(lock: string | undefined): void {
    this.#alive = true;
    if (lock === undefined) return;
    const gone = (): void => this.#close(ended('it was ended, by terminate() or by the browser'));
    // An error is that of `#closing`.
    navigator.locks.request(lock, { signal: this.#closing.signal }, gone).catch(() => undefined);
  }

  readonly #fail = (event: Event): void => {
    const told = 'message' in event && typeof event.message === 'string' ? event.message : '';
    this.#close(ended(told || 'its script could not be loaded, or it ended'));
  };

  #close(error: RedraftError): void {
    this.#dead ??= error;
    this.#closing.abort();
    this.#worker.removeEventListener('message', this.#hear);
    this.#worker.removeEventListener('error', this.#fail);
    this.#worker.removeEventListener('messageerror', this.#fail);
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    // A worker of the app lives on, perhaps, and may serve another engine.
    if (this.#own) this.#worker.terminate();
    else if (this.#alive) this.#post({ type: 'dispose', id: this.#next });
  }
}

type Body =
  | { readonly type: 'load'; readonly options: LoadOptions }
  | { readonly type: 'answer'; readonly request: AnswerRequest }
  | { readonly type: 'encode'; readonly text: string }
  | { readonly type: 'dispose' };

function ended(why: string): RedraftError {
  return new RedraftError('worker', `the worker failed: ${why}; create the engine again`);
}

function unexpected(outcome: Outcome): RedraftError {
  return new RedraftError('internal', `the worker answered ${outcome.kind} to another question`);
}
