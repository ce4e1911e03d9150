import { orAborted } from './abort.js';
import type { Backend, BackendEvents, EngineInfo, LoadOptions } from './backend.js';
import { RedraftError, fromWire, throwIfAborted } from './errors.js';
import { type FromWorker, type Outcome, type ToWorker, open, seal } from './protocol.js';
import type { AnswerReport, AnswerRequest, TokenReport } from './wasm.js';

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
  readonly #pending = new Map<number, Pending>();
  #next = 0;
  #info: EngineInfo | undefined;
  #dead: RedraftError | undefined;

  private constructor(worker: Worker, own: boolean, events: BackendEvents) {
    this.#worker = worker;
    this.#own = own;
    this.#events = events;
    worker.addEventListener('message', this.#hear);
    worker.addEventListener('error', this.#fail);
    worker.addEventListener('messageerror', this.#fail);
  }

  static async load(worker: Worker, own: boolean, options: LoadOptions, events: BackendEvents, signal?: AbortSignal): Promise<WorkerBackend> {
    const backend = new WorkerBackend(worker, own, events);
    try {
      const outcome = await backend.#call({ type: 'load', options }, signal);
      if (outcome.kind === 'loaded') backend.#info = outcome.info;
      return backend;
    } catch (error) {
      backend.#close(new RedraftError('disposed', 'the model was not loaded'));
      throw error;
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

  async dispose(): Promise<void> {
    if (this.#dead) return;
    await this.#call({ type: 'dispose' });
    this.#close(new RedraftError('disposed', 'the engine was disposed; create another one'));
  }

  async #call(message: Body, signal?: AbortSignal, onToken?: (token: TokenReport) => void): Promise<Outcome> {
    if (this.#dead) throw this.#dead;
    throwIfAborted(signal);
    const id = this.#next;
    this.#next += 1;
    const done = new Promise<Outcome>((resolve, reject) => this.#pending.set(id, { resolve, reject, onToken }));
    // A rejection may come before anybody waits.
    done.catch(() => undefined);
    this.#post({ ...message, id });
    const abort = (): void => this.#post({ type: 'abort', id });
    signal?.addEventListener('abort', abort, { once: true });
    try {
      // Aborting a load waits for the worker, which frees what it had allocated.
      return message.type === 'load' ? await done : await orAborted(done, signal);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  #post(message: ToWorker): void {
    this.#worker.postMessage(seal(message));
  }

  readonly #hear = (event: MessageEvent<unknown>): void => {
    const message = open<FromWorker>(event.data);
    switch (message?.type) {
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

  readonly #fail = (event: Event): void => {
    const told = 'message' in event && typeof event.message === 'string' ? event.message : '';
    const said = told || 'its script could not be loaded, or it ended';
    this.#close(new RedraftError('worker', `the worker failed: ${said}; create the engine again`));
  };

  #close(error: RedraftError): void {
    this.#dead = error;
    this.#worker.removeEventListener('message', this.#hear);
    this.#worker.removeEventListener('error', this.#fail);
    this.#worker.removeEventListener('messageerror', this.#fail);
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    if (this.#own) this.#worker.terminate();
  }
}

type Body =
  | { readonly type: 'load'; readonly options: LoadOptions }
  | { readonly type: 'answer'; readonly request: AnswerRequest }
  | { readonly type: 'encode'; readonly text: string }
  | { readonly type: 'dispose' };

function unexpected(outcome: Outcome): RedraftError {
  return new RedraftError('internal', `the worker answered ${outcome.kind} to another question; page and worker are of two versions`);
}
