import { expect, test } from 'vitest';
import { RedraftError, createEngine, createWorkerEngine } from '../src/index.js';
import { checkOptions } from '../src/options.js';

const make = { createEngine, createWorkerEngine } as unknown as Readonly<Record<'createEngine' | 'createWorkerEngine', (options: unknown) => Promise<unknown>>>;
const model = 'https://models.test/a.gguf';

/** What is refused, and words of the message that say what to do. */
const CASES: readonly [unknown, RegExp][] = [
  [undefined, /an object such as \{ model: 'smollm2-135m' \}, found undefined/],
  [null, /found null/],
  ['smollm2-135m', /found "smollm2-135m"/],
  [{}, /model is missing/],
  [{ modle: model }, /no modle; it has model, drafter/],
  [{ model: 5 }, /model must be a name, an address, a File/],
  [{ model: { file: 'a' } }, /in place of a File/],
  [{ model: new URL(model) }, /pass its href/],
  [{ model, drafter: null }, /drafter must be false/],
  [{ model, drafter: true }, /drafter must be false/],
  [{ model, context: Number.NaN }, /context must be a whole number from 1 to 4294967295, found NaN/],
  [{ model, context: '512' }, /context .* found "512"/],
  [{ model, context: 0 }, /context/],
  [{ model, context: 1.5 }, /context/],
  [{ model, kv: 'q8' }, /kv must be 'f16', 'f32', found "q8"/],
  [{ model, precision: 'bf16' }, /precision must be 'f32', 'f16', found "bf16"/],
  [{ model, cache: 'disk' }, /cache must be 'auto', 'opfs', 'cache', 'memory'/],
  [{ model, cache: null }, /cache/],
  [{ model, subgroups: 'on' }, /subgroups must be 'auto', 'off'/],
  [{ model, memoryLimit: -1 }, /memoryLimit/],
  [{ model, memoryLimit: Number.NaN }, /memoryLimit/],
  [{ model, wasmUrl: 5 }, /wasmUrl/],
  [{ model, onProgress: 'yes' }, /onProgress must be a function/],
  [{ model, onWarning: {} }, /onWarning must be a function, found an object/],
  [{ model, signal: new AbortController() }, /pass its signal/],
  [{ model, signal: true }, /signal must be an AbortSignal/],
];

test('options that cannot be are refused, and never thrown before there is a promise', async () => {
  for (const name of ['createEngine', 'createWorkerEngine'] as const) {
    for (const [options, words] of CASES) {
      const error: unknown = await make[name](options).catch((thrown: unknown) => thrown);
      expect(error, `${name} ${JSON.stringify(options)}`).toBeInstanceOf(RedraftError);
      expect(error).toMatchObject({ code: 'invalid_request', message: expect.stringMatching(words) });
    }
  }
  await expect(make.createEngine({ model, worker: 'worker.js' })).rejects.toMatchObject({ code: 'invalid_request', message: expect.stringContaining('no worker') });
  for (const worker of ['worker.js', null, {}]) await expect(make.createWorkerEngine({ model, worker })).rejects.toMatchObject({ code: 'invalid_request', message: expect.stringContaining('must be a Worker') });
});

test('every option is taken, and what crosses to a worker has it', () => {
  const load = { model, drafter: false, context: 512, kv: 'f32', precision: 'f16', cache: 'memory', memoryLimit: 1e9, subgroups: 'off', wasmUrl: 'https://models.test/a.wasm' };
  const { signal } = new AbortController();
  const onProgress = (): void => undefined;
  const onWarning = (): void => undefined;
  expect(checkOptions({ ...load, signal, onProgress, onWarning }, false)).toEqual({ load, signal, onProgress, onWarning, worker: undefined });
  expect(checkOptions({ model }, true)).toEqual({ load: { model }, signal: undefined, onProgress: undefined, onWarning: undefined, worker: undefined });
  expect(Object.keys(checkOptions({ model, context: undefined }, true).load)).toEqual(['model']);
});

test('where there is no browser, that is what is said', async () => {
  await expect(createWorkerEngine({ model })).rejects.toMatchObject({ code: 'worker', message: expect.stringContaining('no workers here') });
  await expect(createEngine({ model })).rejects.toMatchObject({ code: 'webgpu_unavailable' });
  // No worker is made for a model that cannot be.
  await expect(createWorkerEngine({ model: 'smollm2-360m' })).rejects.toMatchObject({ code: 'invalid_request', message: expect.stringContaining('known model (smollm2-135m)') });
  await expect(createEngine({ model, signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'aborted', name: 'AbortError' });
  await expect(createWorkerEngine({ model, signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'aborted' });
});
