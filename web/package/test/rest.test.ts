import { readFileSync } from 'node:fs';
import { afterEach, expect, test, vi } from 'vitest';
import { RedraftError, asRedraftError, fromWire, toWire } from '../src/errors.js';
import { resolveFile, resolveUrl } from '../src/models.js';
import { type ProbeAdapter, adviceFor, largestModel, probe } from '../src/probe.js';
import { type LoadProgress, ProgressMeter } from '../src/progress.js';
import { AsyncQueue } from '../src/queue.js';
import { type ChooseOptions, choosePath, pathsFor, requestSubgroups } from '../src/subgroups.js';
import { VERSION } from '../src/version.js';

afterEach(() => vi.unstubAllGlobals());

test('the version is that of the package and of the workspace', () => {
  const json: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  expect(json).toMatchObject({ version: VERSION });
  const cargo = readFileSync(new URL('../../../Cargo.toml', import.meta.url), 'utf8');
  expect(/^version = "(.*)"/m.exec(cargo)?.[1]).toBe(VERSION);
});

test('addresses', () => {
  const base = 'https://app.test/chat/';
  expect(resolveUrl('hf:o/r/dir/f x.gguf', base)).toBe('https://huggingface.co/o/r/resolve/main/dir/f%20x.gguf');
  expect(resolveUrl('hf:o/r@abc/f.gguf', base)).toBe('https://huggingface.co/o/r/resolve/abc/f.gguf');
  expect(resolveUrl('models/a.gguf', base)).toBe('https://app.test/chat/models/a.gguf');
  expect(resolveUrl('https://x.test/a', base)).toBe('https://x.test/a');
  expect(() => resolveUrl('hf:o/r', base)).toThrow(/hf:owner/);
  expect(() => resolveUrl('http://', base)).toThrow(/smollm2-135m/);
  expect(resolveUrl('a.gguf', base)).toBe('https://app.test/chat/a.gguf');
  expect(resolveUrl('./a', base)).toBe('https://app.test/chat/a');
  expect(resolveFile('SmolLM2-135M', base).sha256).toMatch(/^b179/);
  expect(resolveFile({ url: './a', sha256: 'A'.repeat(64) }, base).sha256).toBe('a'.repeat(64));
  expect(() => resolveFile({ url: './a', sha256: 'abc' }, base)).toThrow(/64/);
});

test('errors of the module keep their codes, others are bugs', () => {
  const theirs = Object.assign(new Error('no memory'), { code: 'out_of_memory' });
  expect(asRedraftError(theirs)).toMatchObject({ code: 'out_of_memory', message: 'no memory', cause: theirs });
  expect(asRedraftError(Object.assign(new Error('x'), { code: 'EWHAT' })).code).toBe('internal');
  expect(asRedraftError('text').code).toBe('internal');
  const error = new RedraftError('http', '404');
  expect(asRedraftError(error)).toBe(error);
  expect(fromWire(structuredClone(toWire(error)))).toMatchObject({ code: 'http', message: '404' });
});

test('progress goes forward only, through every phase, to 1', () => {
  const seen: LoadProgress[] = [];
  const meter = new ProgressMeter((progress) => seen.push(progress));
  const file = meter.file(1000);
  for (const loaded of [0, 400, 1000]) file('download', loaded, 1000);
  const drafter = meter.file(0);
  for (const loaded of [0, 50, 100]) drafter('download', loaded, 100);
  meter.check(0.5);
  meter.load('kernels', 10, 14);
  for (const done of [0, 50, 100]) meter.load('weights', done, 100);
  meter.load('kernels', 14, 14);
  meter.ready();
  const values = seen.map((p) => p.progress);
  expect([...values].sort((a, b) => a - b)).toEqual(values);
  expect(values.at(0)).toBe(0);
  expect(values.at(-2)).toBeLessThan(1);
  expect(seen.at(-1)).toEqual({ phase: 'ready', loaded: 1, total: 1, progress: 1 });
  const warm: number[] = [];
  const cachedMeter = new ProgressMeter((p) => warm.push(p.progress));
  cachedMeter.file(1000)('cache', 1000, 1000);
  cachedMeter.load('weights', 100, 100);
  expect(warm.at(-1)).toBeLessThan(1);
});

test('a queue hands values over, ends, fails once and tells when its reader leaves', async () => {
  let left = 0;
  const queue = new AsyncQueue<number>(() => (left += 1));
  const early = queue.next();
  queue.push(1);
  queue.push(2);
  expect(await early).toEqual({ done: false, value: 1 });
  queue.fail(new Error('broken'));
  expect(await queue.next()).toEqual({ done: false, value: 2 });
  await expect(queue.next()).rejects.toThrow('broken');
  expect(await queue.next()).toEqual({ done: true, value: undefined });
  await queue.return();
  expect(left).toBe(0);
  const other = new AsyncQueue<number>(() => (left += 1));
  other.push(1);
  await other.return();
  expect([left, (await other.next()).done]).toEqual([1, true]);
});

test('two readers of a queue share its values, and both are told of its end', async () => {
  const queue = new AsyncQueue<number>(() => undefined);
  const readers = [queue.next(), queue.next(), queue.next()];
  queue.push(1);
  queue.end();
  expect(await Promise.all(readers)).toEqual([{ done: false, value: 1 }, { done: true, value: undefined }, { done: true, value: undefined }]);
  const failing = new AsyncQueue<number>(() => undefined);
  const waiting = [failing.next(), failing.next()];
  failing.fail(new Error('broken'));
  expect((await Promise.allSettled(waiting)).map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
});

test('kernel families of an adapter', () => {
  const of = (software: boolean, subgroups: boolean, least: number) => pathsFor({ software, subgroups, subgroupSizes: [least, 64] });
  expect(of(true, true, 4)).toEqual({ base: 'plain' });
  expect(of(true, true, 8)).toEqual({ base: 'plain', faster: 'broadcast' });
  expect(of(false, true, 32)).toEqual({ base: 'slices', faster: 'shuffle' });
  expect(of(false, false, 32)).toEqual({ base: 'slices' });
  expect(of(false, true, 0)).toEqual({ base: 'slices' });
  const half = (software: boolean, least: number) => pathsFor({ software, subgroups: true, subgroupSizes: [least, 64] }, 'f16');
  expect(half(false, 32)).toEqual({ base: 'slices16', faster: 'shuffle16' });
  expect(half(true, 4)).toEqual({ base: 'slices16' });
});

/** An adapter with subgroups, whose kernels pass their check except those in `wrong`; `throwing` cannot be checked. */
function choosing(more: Partial<ProbeAdapter> = {}) {
  const limits = { maxBufferSize: 1, maxStorageBufferBindingSize: 1, maxUniformBufferBindingSize: 1, maxStorageBuffersPerShaderStage: 8, maxComputeInvocationsPerWorkgroup: 64, maxComputeWorkgroupStorageSize: 1 };
  const adapter = { vendor: 'v', architecture: 'a', description: '', software: false, f16: true, subgroups: true, subgroupSizes: [32, 32] as const, limits, ...more };
  const kept = new Map<string, string>();
  const memory = {
    get: (key: string) => Promise.resolve(kept.get(key)),
    set: (key: string, found: string) => Promise.resolve(void kept.set(key, found)),
  };
  const checked: string[] = [];
  const wrong = new Set<string>();
  const throwing = new Set<string>();
  const warnings: string[] = [];
  const options: ChooseOptions = {
    adapter, choice: 'auto', version: '1', memory, warn: (text) => warnings.push(text),
    check: (path) => {
      checked.push(path);
      if (throwing.has(path)) return Promise.reject(new RedraftError('device_lost', `${path}: device lost`));
      return Promise.resolve(wrong.has(path) ? `matmul.${path}: wrong` : '');
    },
  };
  const choose = (other: Partial<ChooseOptions> = {}) => choosePath({ ...options, ...other });
  return { choose, checked, wrong, throwing, warnings };
}

test('subgroups are used only where their check passed, and it runs once', async () => {
  const { choose, checked, wrong, throwing, warnings } = choosing();
  expect([await choose(), await choose()]).toEqual(['shuffle', 'shuffle']);
  expect(checked).toEqual(['shuffle']);
  wrong.add('shuffle');
  expect([await choose({ version: '2' }), await choose({ version: '2' })]).toEqual(['slices', 'slices']);
  expect(checked.splice(0)).toEqual(['shuffle', 'shuffle', 'slices']);
  expect(warnings).toHaveLength(2);
  for (const warning of warnings) expect(warning).toMatch(/subgroups.*matmul.shuffle: wrong/);
  // A check that could not end is no verdict: the next load makes it again.
  wrong.clear();
  throwing.add('shuffle');
  expect(await choose({ version: '3' })).toBe('slices');
  expect(warnings.at(-1)).toContain('the check failed: RedraftError: shuffle: device lost');
  throwing.clear();
  expect(await choose({ version: '3' })).toBe('shuffle');
  const broken = { get: () => Promise.reject(new Error('no storage')), set: () => Promise.reject(new Error('no storage')) };
  expect(await choose({ memory: broken })).toBe('shuffle');
});

test('no kernels run on a GPU before their check has passed, once', async () => {
  const { choose, checked, wrong, throwing, warnings } = choosing();
  expect([await choose({ choice: 'off' }), await choose({ choice: 'off' })]).toEqual(['slices', 'slices']);
  expect(await choose({ choice: 'off', precision: 'f16' })).toBe('slices16');
  expect(checked.splice(0)).toEqual(['slices', 'slices16']);
  expect(warnings).toEqual([]);
  wrong.add('slices');
  const other = { choice: 'off', version: '2' } as const;
  expect([await choose(other), await choose(other)]).toEqual(['plain', 'plain']);
  expect(checked.splice(0)).toEqual(['slices', 'plain']);
  expect(warnings).toEqual([0, 1].map(() => expect.stringMatching(/slower ones run in their place: matmul.slices: wrong/)));
  wrong.add('plain');
  await expect(choose({ choice: 'off', version: '3' })).rejects.toMatchObject({ code: 'webgpu_unavailable', message: expect.stringContaining('matmul.plain: wrong') });
  throwing.add('slices');
  await expect(choose({ choice: 'off', version: '4' })).rejects.toMatchObject({ code: 'device_lost' });
});

test('the request for devices is amended for the check, and for good only once it has passed', async () => {
  class Adapter {
    readonly features = new Set(['subgroups']);
    requestDevice(descriptor?: { requiredFeatures?: string[] }): string {
      return (descriptor?.requiredFeatures ?? []).join();
    }
  }
  vi.stubGlobal('GPUAdapter', Adapter);
  const own = Adapter.prototype.requestDevice;
  const ask = (): string => new Adapter().requestDevice();
  const { choose, wrong, throwing } = choosing();
  const during: string[] = [];
  const check = (found: string | Error) => () => {
    during.push(ask());
    return found instanceof Error ? Promise.reject(found) : Promise.resolve(found);
  };
  wrong.add('shuffle');
  expect(await choose({ check: check('matmul.shuffle: wrong'), version: '1' }).catch(() => 'none')).toBe('none');
  expect(await choose({ version: '2' })).toBe('slices');
  throwing.add('shuffle');
  expect(await choose({ version: '3' })).toBe('slices');
  expect(Adapter.prototype.requestDevice, 'as it was').toBe(own);
  // What others amend meanwhile is left as it is, and asks for nothing of ours.
  const release = requestSubgroups();
  const again = requestSubgroups();
  const amended = Adapter.prototype.requestDevice;
  Adapter.prototype.requestDevice = function (this: Adapter, descriptor) {
    return `theirs ${amended.call(this, descriptor)}`;
  };
  expect(ask()).toBe('theirs subgroups');
  release();
  release();
  expect(ask()).toBe('theirs subgroups');
  again();
  expect(ask()).toBe('theirs ');
  Adapter.prototype.requestDevice = own;
  expect(await choose({ check: check(''), version: '4' })).toBe('shuffle');
  expect(during).toEqual(['subgroups', '', '', 'subgroups']);
  expect(ask()).toBe('subgroups');
});

test('f16 that computes wrong fails the load, for it was asked for', async () => {
  const { choose, checked, wrong } = choosing();
  wrong.add('shuffle16').add('slices16');
  await expect(choose({ precision: 'f16' })).rejects.toMatchObject({ code: 'webgpu_unavailable', message: expect.stringMatching(/matmul.slices16: wrong; leave precision out/) });
  expect(checked).toEqual(['shuffle16', 'slices16']);
});

test('a software adapter is not kept waiting by a check', async () => {
  const { choose, checked } = choosing({ software: true, subgroupSizes: [4, 4] });
  expect([await choose(), checked]).toEqual(['plain', []]);
});

test('advice names the flag or setting of the browser', () => {
  const linux = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0 Safari/537.36';
  expect(adviceFor(linux, 'adapter')).toMatch(/enable-unsafe-webgpu.*mesa-vulkan-drivers/);
  expect(adviceFor('Mozilla/5.0 (X11; Linux) Gecko/20100101 Firefox/150.0', 'api')).toContain('dom.webgpu.enabled');
  expect(adviceFor('Mozilla/5.0 (Macintosh) AppleWebKit/605 Version/18.0 Safari/605', 'api')).toContain('Safari 26');
  expect(adviceFor('Mozilla/5.0 (Linux; Android 14) Chrome/156.0 Mobile Safari/537.36', 'api')).toContain('Android 12');
  expect(adviceFor('Mozilla/5.0 (Windows NT 10.0) Chrome/100.0 Safari/537.36', 'api')).toContain('128');
});

test('the largest model is bounded by memory and by buffers', () => {
  const gib = 2 ** 30;
  expect(largestModel(8, false, 4 * gib)).toBe(4 * gib);
  expect(largestModel(8, true, 4 * gib)).toBe(Math.floor(1.6 * gib));
  expect(largestModel(undefined, false, gib / 4)).toBe(2 * gib);
});

test('probe says why there is no WebGPU', async () => {
  vi.stubGlobal('navigator', { userAgent: 'Chrome/100.0' });
  vi.stubGlobal('isSecureContext', true);
  expect(await probe()).toMatchObject({ ok: false, reason: expect.stringContaining('does not offer') });
  vi.stubGlobal('isSecureContext', false);
  expect(await probe()).toMatchObject({ ok: false, advice: expect.stringContaining('https') });
  vi.stubGlobal('navigator', { userAgent: 'Chrome/156.0', gpu: { requestAdapter: () => Promise.resolve(null) } });
  expect(await probe()).toMatchObject({ ok: false, reason: expect.stringContaining('found no GPU') });
  const limits = { maxBufferSize: 2 ** 28, maxStorageBufferBindingSize: 2 ** 27, maxUniformBufferBindingSize: 65536, maxStorageBuffersPerShaderStage: 4, maxComputeInvocationsPerWorkgroup: 256, maxComputeWorkgroupStorageSize: 16384 };
  const info = { vendor: 'x', architecture: '', description: '' };
  const requestAdapter = () => Promise.resolve({ info, limits, features: new Set() });
  vi.stubGlobal('navigator', { userAgent: 'Chrome/156.0', gpu: { requestAdapter } });
  expect(await probe()).toMatchObject({ ok: false, reason: expect.stringContaining('4 storage buffers') });
  // The first browsers with WebGPU told these things in another way.
  const early = () => Promise.resolve({ limits, features: new Set() });
  vi.stubGlobal('navigator', { userAgent: 'Chrome/113.0', gpu: { requestAdapter: early } });
  expect(await probe()).toMatchObject({ ok: false, reason: expect.stringContaining('early version'), advice: expect.stringContaining('128') });
});
