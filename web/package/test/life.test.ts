import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { RedraftError } from '../src/errors.js';

type Life = typeof import('../src/life.js');
type Hear = (event: object) => void;

const OURS = 'https://app.test/assets/redraft_wasm_bg-1.wasm';
const listeners: Record<string, Hear> = {};
let life: Life;

beforeEach(async () => {
  // A module that has ended stays so; each test has its own.
  vi.resetModules();
  vi.stubGlobal('addEventListener', (name: string, hear: Hear) => (listeners[name] = hear));
  vi.spyOn(console, 'error').mockImplementation(() => undefined);
  life = await import('../src/life.js');
  life.watch(OURS);
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

/** An error with a stack as browsers write it. */
function of<T extends Error>(error: T, ...frames: string[]): T {
  return Object.assign(error, { stack: [String(error), ...frames].join('\n') });
}

/** Whether the realm took the event for the end of the module. */
function hear(name: 'error' | 'unhandledrejection', error: unknown): boolean {
  let prevented = false;
  listeners[name]?.({ error, reason: error, preventDefault: () => (prevented = true) });
  expect(life.moduleDeath() !== undefined).toBe(prevented);
  return prevented;
}

const frame = (file: string): string => `    at ${file}:wasm-function[1234]:0xabcde`;
const forever = (): Promise<never> => new Promise(() => undefined);
const failed = { code: 'internal', message: expect.stringMatching(/cannot go on: .*dispose of the engine and create it again/) };

test('a panic fails the calls that wait and those that come, with its text', async () => {
  const waits = [life.whileAlive(forever), life.whileAlive(forever)];
  const [first, second] = waits.map((wait) => wait.catch((error: unknown) => error));
  expect(await life.whileAlive(() => Promise.resolve(5))).toBe(5);
  life.die('panicked at engine.rs:7: no token');
  life.die('another');
  for (const error of [await first, await second]) expect(error).toMatchObject({ ...failed, message: expect.stringContaining('engine.rs:7: no token; ') });
  await expect(life.whileAlive(() => Promise.resolve(5))).rejects.toMatchObject(failed);
  expect(() => life.atOnce(() => 5)).toThrow('engine.rs:7');
});

test('in a page the advice is another', () => {
  vi.stubGlobal('document', {});
  life.die('it trapped');
  expect(life.moduleDeath()?.message).toContain('it trapped; reload the page');
});

test('a trap of a call ends the module, an error that it tells does not', async () => {
  const told = of(Object.assign(new Error('no such token'), { code: 'invalid_request' }), frame(OURS));
  expect(() => life.atOnce(() => { throw told; })).toThrow(told);
  const bug = of(new TypeError('a bug of ours'));
  expect(() => life.atOnce(() => { throw bug; })).toThrow(bug);
  // What the promise gives was told too, traps never get there.
  const ofListener = of(new WebAssembly.RuntimeError('unreachable'), frame(OURS));
  await expect(life.whileAlive(() => Promise.reject(ofListener))).rejects.toBe(ofListener);
  expect(life.moduleDeath()).toBeUndefined();
  await expect(life.whileAlive(() => { throw new WebAssembly.RuntimeError('unreachable'); })).rejects.toMatchObject(failed);
  expect(life.moduleDeath()?.message).toContain('RuntimeError: unreachable');
});

test('an exception that a WebGPU call throws through the module ends it', () => {
  const thrown = of(new TypeError('submit failed'), '    at submit (https://app.test/main.js:1:1)', frame(OURS));
  expect(() => life.atOnce(() => { throw thrown; })).toThrow(/submit failed; dispose/);
});

test('what nobody caught ends the module only if it came out of ours', () => {
  const trap = (...frames: string[]) => of(new WebAssembly.RuntimeError('unreachable'), ...frames);
  expect(hear('error', new Error('of the app'))).toBe(false);
  expect(hear('error', 'a text')).toBe(false);
  expect(hear('error', trap(frame('https://app.test/physics.wasm')))).toBe(false);
  expect(hear('unhandledrejection', of(Object.assign(new Error('the GPU is gone'), { code: 'device_lost' }), frame(OURS)))).toBe(false);
  // A browser that names no files, while nothing of ours runs.
  expect(hear('error', trap('<?>.wasm-function[12]@[wasm code]'))).toBe(false);
  vi.stubGlobal('reportError', (error: unknown) => void hear('error', error));
  life.tellUncaught(of(new Error('of a listener'), frame(OURS)));
  life.tellUncaught('a text of a listener');
  expect(life.moduleDeath()).toBeUndefined();
  expect(hear('unhandledrejection', trap(frame(OURS)))).toBe(true);
});

test('where browsers name no files, it is ours that had a call to answer', async () => {
  const wait = life.whileAlive(forever).catch((error: unknown) => error);
  expect(hear('error', of(new WebAssembly.RuntimeError('unreachable'), '<?>.wasm-function[12]@[wasm code]'))).toBe(true);
  expect(await wait).toMatchObject(failed);
  // The class is another one here: the module under test was loaded anew.
  expect(await wait).not.toBeInstanceOf(RedraftError);
});
