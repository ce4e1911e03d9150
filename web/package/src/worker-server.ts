import type { Backend, BackendEvents, LoadOptions } from './backend.js';
import { RedraftError, toWire } from './errors.js';
import { LocalBackend } from './local.js';
import { type FromWorker, type Outcome, type ToWorker, open, seal } from './protocol.js';

/** The side of a worker that talks: `self` inside one, or a `MessagePort`. */
export interface WorkerScope {
  postMessage(message: unknown): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<unknown>) => void): void;
}

type Load = (options: LoadOptions, events: BackendEvents, signal: AbortSignal) => Promise<Backend>;

/** Serves engines to `createWorkerEngine` from inside a worker: one model at a time. Other messages are left alone. */
export function serveEngine(scope: WorkerScope, load: Load = LocalBackend.load): void {
  const running = new Map<number, AbortController>();
  let backend: Backend | undefined;
  const post = (message: FromWorker): void => scope.postMessage(seal(message));
  const events: BackendEvents = {
    progress: (progress) => post({ type: 'progress', progress }),
    warning: (text) => post({ type: 'warning', text }),
    lost: (message) => post({ type: 'lost', message }),
  };
  const loaded = (): Backend => {
    if (!backend) throw new RedraftError('disposed', 'no model is loaded in this worker');
    return backend;
  };
  const run = async (message: Exclude<ToWorker, { type: 'abort' }>, signal: AbortSignal): Promise<Outcome> => {
    switch (message.type) {
      case 'load':
        if (backend) throw new RedraftError('invalid_request', 'this worker has a model already; dispose of it, or make another worker');
        backend = await load(message.options, events, signal);
        return { kind: 'loaded', info: backend.info };
      case 'answer': {
        const { id } = message;
        const report = await loaded().answer(message.request, (token) => post({ type: 'token', id, token }), signal);
        return { kind: 'answer', report, info: loaded().info };
      }
      case 'encode':
        return { kind: 'tokens', tokens: await loaded().encode(message.text) };
      case 'dispose': {
        const old = backend;
        backend = undefined;
        await old?.dispose();
        return { kind: 'disposed' };
      }
    }
  };
  scope.addEventListener('message', (event) => {
    const message = open<ToWorker>(event.data);
    if (!message) return;
    if (message.type === 'abort') {
      running.get(message.id)?.abort();
      return;
    }
    const { id } = message;
    const controller = new AbortController();
    running.set(id, controller);
    run(message, controller.signal)
      .then((outcome) => post({ type: 'done', id, outcome }))
      .catch((error: unknown) => post({ type: 'failed', id, error: toWire(error) }))
      .finally(() => running.delete(id));
  });
}
