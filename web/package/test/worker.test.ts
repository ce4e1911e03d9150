import { afterEach, expect, test, vi } from 'vitest';
import type { BackendEvents, LoadOptions } from '../src/backend.js';
import { createWorkerEngine } from '../src/engine.js';
import { RedraftError, abortedError } from '../src/errors.js';
import { VERSION } from '../src/version.js';
import { WorkerBackend } from '../src/worker-client.js';
import { type WorkerScope, serveEngine } from '../src/worker-server.js';
import { FakeBackend, INFO, REPORT, TOKENS } from './fake.js';

afterEach(() => vi.unstubAllGlobals());

/** For what comes in the next turns of the event loop, on a machine that may be busy. */
const PATIENT = { timeout: 60_000 };

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

test('warnings of a load reach who asked for them, or the console', async () => {
  const console_ = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  const make = async (more: { onWarning?: (text: string) => void } = {}) => {
    let later: BackendEvents = {};
    const { worker } = start(new FakeBackend(), (_, events) => {
      later = events;
      events.warning?.('early');
      return Promise.resolve(new FakeBackend());
    });
    const engine = await createWorkerEngine({ model: 'https://models.test/a.gguf', worker: worker as unknown as Worker, ...more });
    const heard: string[] = [];
    engine.on('warning', (text) => heard.push(text));
    later.warning?.('late');
    await vi.waitFor(() => expect(heard).toEqual(['late']), PATIENT);
    return engine;
  };
  const asked: string[] = [];
  await make({ onWarning: (text) => asked.push(text) });
  expect([asked, console_.mock.calls]).toEqual([['early', 'late'], []]);
  await make();
  expect(console_.mock.calls).toEqual([['redraft: early']]);
  console_.mockRestore();
});

test('aborting reaches the worker, in a load and in an answer', async () => {
  const fake = new FakeBackend();
  const backend = await start(fake).open();
  const controller = new AbortController();
  const answer = backend.answer(request, () => controller.abort(), controller.signal);
  await expect(answer).rejects.toMatchObject({ code: 'aborted', name: 'AbortError' });
  await vi.waitFor(() => expect(fake.stopped).toBe(1), PATIENT);

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

test('two engines that ask one worker at once: the first gets it, and hears nothing of the other', async () => {
  const heard: string[] = [];
  const fake = new FakeBackend();
  let loads = 0;
  const { worker } = start(fake, async (_, events) => {
    loads += 1;
    await new Promise((resolve) => setTimeout(resolve, 20));
    events.warning?.('careful');
    return fake;
  });
  const open = (name: string) => WorkerBackend.load(worker as unknown as Worker, false, { model: 'x' }, { warning: (text) => heard.push(`${name}: ${text}`) });
  const [first, second] = await Promise.allSettled([open('first'), open('second')]);
  expect(second).toMatchObject({ status: 'rejected', reason: { code: 'invalid_request', message: expect.stringContaining('has a model already') } });
  if (first.status !== 'fulfilled') throw first.reason;
  expect(await first.value.encode('a')).toEqual([97]);
  expect([heard, loads, fake.disposed]).toEqual([['first: careful'], 1, 0]);
  // Given back, it serves the next, even one that comes before it is free.
  const disposal = first.value.dispose();
  const third = await open('third');
  await disposal;
  expect(fake.disposed).toBe(1);
  expect(await third.encode('b')).toEqual([98]);
  await expect(first.value.encode('a')).rejects.toMatchObject({ code: 'disposed' });
});

test('a worker that is none of ours is named, by its silence', async () => {
  const stranger = new FakeWorker();
  await expect(WorkerBackend.load(stranger as unknown as Worker, false, { model: 'x' }, {}, undefined, 20)).rejects.toMatchObject({ code: 'worker', message: expect.stringMatching(/0.02 s.*serveEngine\(self\)/) });
  // It is not ours to end.
  expect(stranger.terminated).toBe(false);
});

test('a load is aborted at once where nothing of it can stay behind', async () => {
  for (const own of [true, false]) {
    const silent = new FakeWorker();
    const controller = new AbortController();
    const load = WorkerBackend.load(silent as unknown as Worker, own, { model: 'x' }, {}, controller.signal);
    controller.abort();
    controller.abort();
    await expect(load).rejects.toMatchObject({ code: 'aborted', name: 'AbortError' });
    expect(silent.terminated).toBe(own);
  }
});

test('page and worker of two versions say so, on either side', async () => {
  const { worker, open } = start(new FakeBackend());
  const answers: unknown[] = [];
  worker.addEventListener('message', (event) => answers.push((event as MessageEvent<unknown>).data));
  worker.postMessage({ mark: 'redraft', version: '0.0.1', client: 'c', body: { type: 'load', id: 4, options: { model: 'x' } } });
  await vi.waitFor(() => expect(answers).toHaveLength(1), PATIENT);
  expect(answers).toEqual([{ mark: 'redraft', version: VERSION, client: 'c', body: { type: 'failed', id: 4, error: { code: 'worker', message: expect.stringContaining('0.0.1') } } }]);
  await (await open()).dispose();
  const older = new FakeWorker();
  older.scope.addEventListener('message', ({ data }) => older.scope.postMessage({ ...(data as object), version: '0.0.1' }));
  await expect(WorkerBackend.load(older as unknown as Worker, true, { model: 'x' }, {})).rejects.toMatchObject({ code: 'worker', message: expect.stringContaining('0.0.1') });
});

test('a worker of the app that failed is freed and may serve again', async () => {
  const fake = new FakeBackend();
  const { worker } = start(fake);
  const open = () => WorkerBackend.load(worker as unknown as Worker, false, { model: 'x' }, {});
  const backend = await open();
  worker.dispatchEvent(Object.assign(new Event('error'), { message: 'a bug of the app' }));
  await expect(backend.encode('a')).rejects.toMatchObject({ code: 'worker', message: expect.stringContaining('a bug of the app') });
  await backend.dispose();
  expect(await (await open()).encode('a')).toEqual([97]);
  expect(fake.disposed).toBe(1);
});

test('disposing twice at once, and of what is dead, ends', async () => {
  const fake = new FakeBackend();
  const { open, worker } = start(fake);
  const backend = await open();
  await Promise.all([backend.dispose(), backend.dispose()]);
  expect(fake.disposed).toBe(1);
  const other = start(new FakeBackend());
  const dying = await other.open();
  const disposal = dying.dispose();
  other.worker.dispatchEvent(new Event('error'));
  await disposal;
  expect(worker.terminated).toBe(true);
});

test('what a listener throws disturbs neither load nor answer', async () => {
  const thrown: unknown[] = [];
  vi.stubGlobal('reportError', (error: unknown) => thrown.push(error));
  const { worker } = start(new FakeBackend(), (_, events) => {
    events.progress?.({ phase: 'upload', loaded: 1, total: 2, progress: 0.5 });
    return Promise.resolve(new FakeBackend());
  });
  const bug = new Error('a bug of the app');
  const engine = await createWorkerEngine({
    model: 'https://models.test/a.gguf', worker: worker as unknown as Worker,
    onProgress: () => {
      throw bug;
    },
  });
  expect(thrown).toEqual([bug]);
  expect(await engine.tokenize('ab')).toEqual([97, 98]);
  await expect(engine.tokenize(5 as unknown as string)).rejects.toMatchObject({ code: 'invalid_request' });
  expect(() => engine.on('rounds' as 'round', () => undefined)).toThrow(/no event "rounds"; there are round, warning, lost, progress/);
  expect(() => engine.on('toString' as 'round', () => undefined)).toThrow(/no event/);
  expect(() => engine.on('round', 5 as unknown as () => void)).toThrow(/listener must be a function/);
  const { completions } = engine.chat;
  for (const bad of [undefined, null, 'hi', { messages: [] }]) await expect(completions.create(bad as never)).rejects.toMatchObject({ code: 'invalid_request' });
  const messages = [{ role: 'user', content: 'hi' }];
  await expect(completions.create({ messages, stream: true, signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'aborted' });
  const [a, b] = await Promise.all([completions.create({ messages }), completions.create({ messages })]);
  expect([a, b].map(({ choices }) => choices[0].message.content)).toEqual([REPORT.text, REPORT.text]);
  await engine.dispose();
  await expect(completions.create({ messages })).rejects.toMatchObject({ code: 'disposed' });
});
