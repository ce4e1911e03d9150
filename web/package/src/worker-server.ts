import type { Backend, BackendEvents, LoadOptions } from './backend.js';
import { RedraftError, toWire } from './errors.js';
import { LocalBackend } from './local.js';
import { type FromWorker, type Outcome, type ToWorker, open, seal, versions } from './protocol.js';
import { VERSION } from './version.js';

/** The side of a worker that talks: `self` inside one. */
export interface WorkerScope {
  postMessage(message: unknown): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<unknown>) => void): void;
}

type Load = (options: LoadOptions, events: BackendEvents, signal: AbortSignal) => Promise<Backend>;

/** The name of a lock that is held for as long as this worker lives, once it is held; nothing where there are no locks. */
async function holdLock(): Promise<string | undefined> {
  if (typeof navigator === 'undefined' || !('locks' in navigator)) return undefined;
  const name = `redraft/worker/${crypto.randomUUID()}`;
  return new Promise((resolve) => {
    const held = navigator.locks.request(name, () => {
      resolve(name);
      return new Promise<void>(() => undefined);
    });
    held.catch(() => resolve(undefined));
  });
}

/** Serves engines to `createWorkerEngine` from inside a worker: one model at a time. Other messages are left alone. */
export function serveEngine(scope: WorkerScope, load: Load = LocalBackend.load): void {
  const running = new Map<string, AbortController>();
  /** Which engine of the page the model is of; set before it is loaded. */
  let owner: string | undefined;
  let backend: Backend | undefined;
  let disposal: Promise<unknown> = Promise.resolve();
  const lock = holdLock();
  const post = (client: string, message: FromWorker): void => scope.postMessage(seal(client, message));
  const loaded = (client: string): Backend => {
    if (!backend || owner !== client) throw new RedraftError('disposed', 'no model of this engine is loaded in this worker');
    return backend;
  };
  const run = async (client: string, message: Exclude<ToWorker, { type: 'abort' }>, signal: AbortSignal): Promise<Outcome> => {
    switch (message.type) {
      case 'load': {
        await disposal;
        if (owner !== undefined) throw new RedraftError('invalid_request', 'this worker has a model already; dispose of it, or make another worker');
        owner = client;
        const events: BackendEvents = {
          progress: (progress) => post(client, { type: 'progress', progress }),
          warning: (text) => post(client, { type: 'warning', text }),
          lost: (message) => post(client, { type: 'lost', message }),
        };
        try {
          post(client, { type: 'alive', lock: await lock });
          backend = await load(message.options, events, signal);
        } catch (error) {
          owner = undefined;
          throw error;
        }
        return { kind: 'loaded', info: backend.info };
      }
      case 'answer': {
        const { id } = message;
        const own = loaded(client);
        const report = await own.answer(message.request, (token) => post(client, { type: 'token', id, token }), signal);
        return { kind: 'answer', report, info: own.info };
      }
      case 'encode':
        return { kind: 'tokens', tokens: await loaded(client).encode(message.text) };
      case 'dispose': {
        if (owner !== client) return { kind: 'disposed' };
        const old = backend;
        backend = undefined;
        const gone = (async () => old?.dispose())().finally(() => (owner = undefined));
        disposal = gone.catch(() => undefined);
        await gone;
        return { kind: 'disposed' };
      }
    }
  };
  scope.addEventListener('message', (event) => {
    const envelope = open<ToWorker>(event.data);
    if (!envelope) return;
    const { client, version, body: message } = envelope;
    const key = `${client}/${message.id}`;
    if (version !== VERSION) {
      if (message.type !== 'abort') post(client, { type: 'failed', id: message.id, error: toWire(versions(version)) });
      return;
    }
    if (message.type === 'abort') {
      running.get(key)?.abort();
      return;
    }
    const { id } = message;
    const controller = new AbortController();
    running.set(key, controller);
    run(client, message, controller.signal)
      .then((outcome) => post(client, { type: 'done', id, outcome }))
      .catch((error: unknown) => post(client, { type: 'failed', id, error: toWire(error) }))
      .finally(() => running.delete(key));
  });
}
