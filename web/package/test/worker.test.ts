import { expect, test } from 'vitest';
import type { BackendEvents, LoadOptions } from '../src/backend.js';
import { RedraftError, abortedError } from '../src/errors.js';
import { WorkerBackend } from '../src/worker-client.js';
import { type WorkerScope, serveEngine } from '../src/worker-server.js';
import { FakeBackend, INFO, REPORT, TOKENS } from './fake.js';

/** Two ends that hand each other copies, as a worker and its page do. */
class FakeWorker extends EventTarget {
  readonly #listeners: ((event: MessageEvent<unknown>) => void)[] = [];
  terminated = false;

  readonly scope: WorkerScope = {
    postMessage: (message) => this.#later(() => this.dispatchEvent(new MessageEvent('message', { data: structuredClone(message) }))),
    addEventListener: (_, listener) => void this.#listeners.push(listener),
  };

  postMessage(message: unknown): void {
    const data: unknown = structuredClone(message);
    this.#later(() => this.#listeners.forEach((listener) => listener(new MessageEvent('message', { data }))));
  }

  terminate(): void {
    this.terminated = true;
  }

  #later(work: () => void): void {
    setTimeout(() => this.terminated || work(), 0);
  }
}

function start(backend: FakeBackend, load?: (options: LoadOptions, events: BackendEvents, signal: AbortSignal) => Promise<FakeBackend>) {
  const worker = new FakeWorker();
  serveEngine(worker.scope, load ?? (() => Promise.resolve(backend)));
  return { worker, open: (events: BackendEvents = {}, signal?: AbortSignal) => WorkerBackend.load(worker as unknown as Worker, true, { model: 'x' }, events, signal) };
}

const request = { prompt: { text: 'a' } };

test('an answer crosses with its tokens in order', async () => {
  const { open } = start(new FakeBackend());
  const backend = await open();
  expect(backend.info).toEqual(INFO);
  const tokens: unknown[] = [];
  expect(await backend.answer(request, (token) => tokens.push(token))).toEqual(REPORT);
  expect(tokens).toEqual(TOKENS);
  expect(await backend.encode('ab')).toEqual([97, 98]);
});

test('errors keep their codes', async () => {
  const fake = new FakeBackend();
  fake.failure = new RedraftError('device_lost', 'the device is gone');
  const backend = await start(fake).open();
  const error: unknown = await backend.answer(request, () => undefined).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(RedraftError);
  expect(error).toMatchObject({ code: 'device_lost', message: 'the device is gone' });
  const { open, worker } = start(fake, () => Promise.reject(new RedraftError('invalid_model', 'no model')));
  await expect(open()).rejects.toMatchObject({ code: 'invalid_model', message: 'no model' });
  expect(worker.terminated).toBe(true);
});

test('progress, warnings and losses are told', async () => {
  const heard: unknown[] = [];
  const progress = { phase: 'upload', loaded: 1, total: 2, progress: 0.5 } as const;
  const { open } = start(new FakeBackend(), (_, events) => {
    events.progress?.(progress);
    events.warning?.('careful');
    events.lost?.('gone');
    return Promise.resolve(new FakeBackend());
  });
  await open({ progress: (p) => heard.push(p), warning: (w) => heard.push(w), lost: (l) => heard.push(l) });
  expect(heard).toEqual([progress, 'careful', 'gone']);
});

test('aborting reaches the worker, in a load and in an answer', async () => {
  const fake = new FakeBackend();
  const backend = await start(fake).open();
  const controller = new AbortController();
  const answer = backend.answer(request, () => controller.abort(), controller.signal);
  await expect(answer).rejects.toMatchObject({ code: 'aborted', name: 'AbortError' });
  await new Promise((resolve) => setTimeout(resolve, 30));
  expect(fake.stopped).toBe(1);

  const loading = new AbortController();
  const { open } = start(fake, (_, __, signal) =>
    new Promise((___, reject) => signal.addEventListener('abort', () => reject(abortedError(signal)))),
  );
  const load = open({}, loading.signal);
  setTimeout(() => loading.abort(), 5);
  await expect(load).rejects.toMatchObject({ code: 'aborted' });
});

test('a worker that dies fails what runs and what comes', async () => {
  const { open, worker } = start(new FakeBackend());
  const backend = await open();
  const answer = backend.answer(request, () => undefined);
  worker.dispatchEvent(Object.assign(new Event('error'), { message: 'boom' }));
  await expect(answer).rejects.toMatchObject({ code: 'worker' });
  await expect(backend.encode('a')).rejects.toMatchObject({ code: 'worker' });
});

test('disposing frees the model and ends a worker of ours', async () => {
  const fake = new FakeBackend();
  const { open, worker } = start(fake);
  const backend = await open();
  await backend.dispose();
  await backend.dispose();
  expect([fake.disposed, worker.terminated]).toEqual([1, true]);
  await expect(backend.answer(request, () => undefined)).rejects.toMatchObject({ code: 'disposed' });
});

test('one worker has one model, and leaves messages of others alone', async () => {
  const { open, worker } = start(new FakeBackend());
  await open();
  worker.postMessage({ type: 'load', id: 0, hello: 'of another protocol' });
  await expect(open()).rejects.toMatchObject({ code: 'invalid_request' });
});
