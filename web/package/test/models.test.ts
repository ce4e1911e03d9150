import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterEach, expect, test, vi } from 'vitest';
import { deleteModel, dropUseless, hasModel, listModels, openModel } from '../src/cache.js';
import { keyOf } from '../src/download.js';
import { openDrafter } from '../src/drafter.js';
import { RedraftError, asRedraftError } from '../src/errors.js';
import { MODELS, type ModelSpec, checkSpec, identityOf, knownModel } from '../src/models.js';
import { ProgressMeter } from '../src/progress.js';
import { type Store, openStore } from '../src/store.js';

afterEach(() => vi.unstubAllGlobals());

test('known models are meant by name, address or hash', () => {
  const [known] = MODELS;
  if (!known) throw new Error('no model is known');
  const { name, url, sha256 } = known;
  for (const spec of [name, name.toUpperCase(), url, { url: '/elsewhere.gguf', sha256 }, { url: '/a', sha256: sha256.toUpperCase() }, { file: new Blob(), sha256 }]) {
    expect(knownModel(spec)?.name, JSON.stringify(spec)).toBe(name);
  }
  for (const spec of ['other', '/SmolLM2.gguf', { url: name }, { url: '/a', sha256: '0'.repeat(64) }, { file: new Blob(), sha256: '0'.repeat(64) }, new Blob([name])]) {
    expect(knownModel(spec), JSON.stringify(spec)).toBeUndefined();
  }
});

test('the drafter of SmolLM2 is pinned to the file in the repository', () => {
  const file = readFileSync(new URL('../../../models/smollm2-135m-drafter/drafter.safetensors', import.meta.url));
  const drafter = knownModel('smollm2-135m')?.drafter;
  expect(drafter).toEqual({ url: expect.stringMatching(/\/drafters\/smollm2-135m\.safetensors$/), sha256: createHash('sha256').update(file).digest('hex'), size: file.length });
});

test('what is no specification is named', () => {
  const sha256 = '0'.repeat(64);
  const blob = new Blob();
  for (const good of ['a', { url: 'a' }, { url: 'a', sha256, size: 5 }, { file: blob, sha256 }, blob]) expect(checkSpec('model', good)).toEqual(good);
  const bad: [unknown, RegExp][] = [
    ['', /""/], [' ', /" "/], [null, /null/], [5, /found 5/], [true, /true/], [{}, /an object/], [[], /an array/], [() => 'a', /a function/], [new URL('https://x.test/'), /pass its href/],
    [{ url: 5 }, /\{ url \} with 5/], [{ url: '' }, /\{ url \} with ""/], [{ url: 'a', sha256: 5 }, /drafter.sha256 must be a text, found 5/], [{ url: 'a', sha256: 'abc' }, /64 hexadecimal/],
    [{ url: 'a', size: Number.NaN }, /drafter.size/], [{ url: 'a', size: 1.5 }, /drafter.size/], [{ file: 'a.gguf', sha256 }, /"a.gguf" in place of a File/], [{ file: blob }, /pass the File itself/],
  ];
  for (const [spec, words] of bad) expect(() => checkSpec('drafter', spec), String(spec)).toThrow(words);
  // Fields that nobody reads, functions among them, stay behind.
  expect(checkSpec('model', { url: 'a', load: () => undefined })).toEqual({ url: 'a' });
});

test('a name that nobody knows is told, with those that are known', async () => {
  const fetching = { cache: 'memory', meter: new ProgressMeter(undefined), warn: () => undefined } as const;
  for (const spec of ['smollm2-360m', { url: 'smollm2-360m' }]) {
    const refused = { code: 'invalid_request', message: expect.stringMatching(/"smollm2-360m" is neither a known model \(smollm2-135m\) nor an address.*"\.\/smollm2-360m"/) };
    await expect(openModel(spec, fetching)).rejects.toMatchObject(refused);
    await expect(hasModel(spec)).rejects.toMatchObject(refused);
  }
});

test('storage and files that fail say so with a code', async () => {
  const broken = (): Promise<never> => Promise.reject(new DOMException('the disk is gone', 'UnknownError'));
  const caches = { open: () => Promise.resolve({ keys: broken, delete: broken, match: broken, put: broken }) };
  vi.stubGlobal('caches', caches);
  const failed = { name: 'RedraftError', code: 'storage', message: expect.stringContaining('the disk is gone') };
  await expect(listModels()).rejects.toMatchObject(failed);
  await expect(deleteModel('/a.gguf')).rejects.toMatchObject(failed);
  await expect(hasModel('/a.gguf')).rejects.toMatchObject(failed);
  // Even asking for it throws in a sandboxed frame.
  vi.unstubAllGlobals();
  Object.defineProperty(globalThis, 'caches', {
    configurable: true,
    get: () => {
      throw new DOMException('not here', 'SecurityError');
    },
  });
  expect(await listModels()).toEqual([]);
  Reflect.deleteProperty(globalThis, 'caches');
  class Unreadable extends Blob {
    override readonly size = 100;
    override slice(): Blob {
      return this;
    }
    override arrayBuffer(): Promise<ArrayBuffer> {
      return Promise.reject(new DOMException('the file is gone', 'NotReadableError'));
    }
  }
  const fetching = { cache: 'memory', meter: new ProgressMeter(undefined), warn: () => undefined } as const;
  const unread = openModel({ file: new Unreadable(), sha256: '0'.repeat(64) }, fetching);
  await expect(unread).rejects.toMatchObject({ name: 'RedraftError', code: 'storage', message: expect.stringContaining('the file is gone') });
  expect(asRedraftError(new DOMException('gone', 'NotReadableError')).code).toBe('storage');
});

test('a store that fails is passed over for the next one, memory last', async () => {
  const bytes = new TextEncoder().encode('some bytes');
  vi.stubGlobal('fetch', () => Promise.resolve(new Response(bytes)));
  const opfs = (): Promise<never> => Promise.reject(new DOMException('the disk is odd', 'InvalidStateError'));
  vi.stubGlobal('FileSystemFileHandle', class { createWritable(): void {} });
  const folder = { getDirectoryHandle: opfs, removeEntry: opfs, async *entries() {} };
  vi.stubGlobal('navigator', { storage: { getDirectory: () => Promise.resolve({ getDirectoryHandle: () => Promise.resolve(folder) }) } });
  const kept = new Map<string, Response>();
  let full = false;
  const address = (request: string | Request): string => (typeof request === 'string' ? request : request.url);
  const cache = {
    match: (request: string) => Promise.resolve(kept.get(request)?.clone()),
    put: (request: string, response: Response) => (full ? Promise.reject(new DOMException('no more', 'QuotaExceededError')) : Promise.resolve(void kept.set(request, response))),
    keys: () => Promise.resolve([...kept.keys()].map((url) => new Request(url))),
    delete: (request: string | Request) => Promise.resolve(kept.delete(address(request))),
  };
  vi.stubGlobal('caches', { open: () => Promise.resolve(cache) });
  const warned: string[] = [];
  const load = (url: string, kind: 'auto' | 'opfs' = 'auto') => openModel({ url }, { cache: kind, meter: new ProgressMeter(undefined), warn: (text) => void warned.push(text) });
  expect(await (await load('https://models.test/a')).text()).toBe('some bytes');
  expect((await listModels()).map(({ url, store }) => [url, store])).toEqual([['https://models.test/a', 'cache']]);
  expect(warned).toEqual([]);
  full = true;
  expect(await (await load('https://models.test/b')).text()).toBe('some bytes');
  expect(warned).toEqual([expect.stringMatching(/memory only.*the disk is odd.*no more/)]);
  await expect(load('https://models.test/c', 'opfs')).rejects.toMatchObject({ code: 'storage' });
  const memory = await openStore('memory');
  for (const key of await memory.keys()) await memory.delete(key);
});

test('what is in the cache is asked for by name or address only', async () => {
  for (const ask of [hasModel, deleteModel] as readonly ((model: never) => Promise<unknown>)[]) {
    for (const [spec, words] of [[undefined, /undefined/], [5, /5/], [new Blob(), /are not kept/]] as const) {
      await expect(ask(spec as never)).rejects.toMatchObject({ code: 'invalid_request', message: expect.stringMatching(words) });
    }
  }
});

test('what is listed is held and can be deleted, with its hash or without', async () => {
  const store = await openStore('memory');
  const url = 'https://models.test/some.gguf';
  const bytes = new TextEncoder().encode('some bytes');
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const fetched: string[] = [];
  vi.stubGlobal('fetch', (from: string | URL) => {
    fetched.push(String(from));
    return Promise.resolve(new Response(bytes));
  });
  const load = (spec: ModelSpec): Promise<Blob> => openModel(spec, { cache: 'memory', meter: new ProgressMeter(undefined), warn: () => undefined });
  await load({ url });
  expect(await listModels()).toMatchObject([{ url, sha256, complete: true }]);
  // With the hash that it turned out to have it is the same file; with another it is not.
  const other = { url, sha256: '0'.repeat(64) };
  expect(await hasModel({ url, sha256 })).toBe(true);
  expect(await hasModel(other)).toBe(false);
  expect(await (await load({ url, sha256 })).text()).toBe('some bytes');
  expect(fetched).toEqual([url]);
  await deleteModel(other);
  expect(await hasModel(url)).toBe(true);
  for (const model of await listModels()) await deleteModel(model);
  expect(await store.keys()).toEqual([]);
  // What came with its hash is found and goes by its address too.
  await load({ url, sha256 });
  expect(await hasModel('https://models.test/another.gguf')).toBe(false);
  expect(await hasModel(url)).toBe(true);
  expect(await (await load({ url })).text()).toBe('some bytes');
  expect(fetched).toEqual([url, url]);
  await deleteModel('https://models.test/another.gguf');
  expect(await listModels()).toHaveLength(1);
  await deleteModel(url);
  expect(await store.keys()).toEqual([]);
});

test('a download that is no model is not kept, unless its hash says that it is right', async () => {
  const store = await openStore('memory');
  const url = 'https://models.test/broken.gguf';
  await keptBefore(store, keyOf({ url }), undefined);
  expect(await dropUseless({ url, sha256: '0'.repeat(64) })).toBe(false);
  expect(await dropUseless(new Blob())).toBe(false);
  expect(await store.keys()).toHaveLength(1);
  expect(await dropUseless(url)).toBe(true);
  expect(await dropUseless(url)).toBe(false);
  expect(await store.keys()).toEqual([]);
});

test('with a known model its drafter is deleted', async () => {
  const store = await openStore('memory');
  const known = knownModel('smollm2-135m');
  for (const key of [known?.sha256, known?.drafter?.sha256, 'other']) await store.write(key ?? '', 'part-00000', new Uint8Array(1));
  await deleteModel({ url: '/a.gguf' });
  expect(await store.keys()).toHaveLength(3);
  await deleteModel('smollm2-135m');
  expect(await store.keys()).toEqual(['other']);
  await store.delete('other');
});

/** Leaves in the store what a version of the package kept of a file that it knew by this name. */
async function keptBefore(store: Store, key: string, name: string | undefined, complete = true): Promise<void> {
  const manifest = { version: 1, url: `https://app.test/assets/${key}`, size: 1, sha256: key, complete, ...(name !== undefined && { name }) };
  await store.write(key, 'manifest.json', new TextEncoder().encode(JSON.stringify(manifest)));
  await store.write(key, 'part-00000', new Uint8Array(1));
}

test('the drafter of another version of the package is deleted once that of this one is there', async () => {
  const store = await openStore('memory');
  const drafter = knownModel('smollm2-135m')?.drafter;
  if (!drafter) throw new Error('the model has no drafter');
  await keptBefore(store, 'older-drafter', 'smollm2-135m/drafter');
  await keptBefore(store, 'half-a-drafter', 'smollm2-135m/drafter', false);
  await keptBefore(store, 'older-model', 'smollm2-135m');
  await keptBefore(store, 'drafter-of-another', 'another/drafter');
  await keptBefore(store, 'of-the-user', undefined);
  const bytes = readFileSync(new URL('../../../models/smollm2-135m-drafter/drafter.safetensors', import.meta.url));
  const fetching = { cache: 'memory', meter: new ProgressMeter(undefined), warn: () => undefined } as const;
  // While it cannot be had, the older one stays: an older version may still be open.
  vi.stubGlobal('fetch', () => Promise.resolve(new Response('', { status: 404 })));
  await expect(openModel(drafter, fetching)).rejects.toMatchObject({ code: 'http' });
  expect(await store.keys()).toHaveLength(5);
  vi.stubGlobal('fetch', () => Promise.resolve(new Response(bytes)));
  expect((await openModel(drafter, fetching)).size).toBe(bytes.length);
  expect((await store.keys()).sort()).toEqual([drafter.sha256, 'drafter-of-another', 'of-the-user', 'older-model'].sort());
  expect((await listModels()).find(({ sha256 }) => sha256 === drafter.sha256)).toMatchObject({ name: 'smollm2-135m/drafter', complete: true });
  // What was left when the page was closed in between goes with the next load.
  await keptBefore(store, 'older-drafter', 'smollm2-135m/drafter');
  await openModel(drafter, fetching);
  expect(await store.keys()).not.toContain('older-drafter');
  await deleteModel('smollm2-135m');
  expect((await store.keys()).sort()).toEqual(['drafter-of-another', 'of-the-user']);
  for (const key of await store.keys()) await store.delete(key);
});

test('files have the names of what they are', () => {
  const known = knownModel('smollm2-135m');
  expect([known?.sha256, known?.drafter?.sha256, '0'.repeat(64), undefined].map(identityOf)).toEqual(['smollm2-135m', 'smollm2-135m/drafter', undefined, undefined]);
});

test('a known model brings its drafter, unless another or none is wanted', async () => {
  const asked: ModelSpec[] = [];
  const warned: string[] = [];
  let failure: RedraftError | undefined;
  const file = new Blob(['drafter']);
  const open = (spec: ModelSpec): Promise<Blob> => {
    asked.push(spec);
    return failure ? Promise.reject(failure) : Promise.resolve(file);
  };
  const fetching = { cache: 'memory', meter: new ProgressMeter(undefined), warn: (text: string) => void warned.push(text) } as const;
  const known = knownModel('smollm2-135m');
  expect(await openDrafter({ model: 'smollm2-135m' }, fetching, open)).toBe(file);
  expect(await openDrafter({ model: { url: '/a', sha256: known?.sha256 ?? '' } }, fetching, open)).toBe(file);
  expect(await openDrafter({ model: 'smollm2-135m', drafter: '/mine' }, fetching, open)).toBe(file);
  expect(asked).toEqual([known?.drafter, known?.drafter, '/mine']);
  expect(await openDrafter({ model: 'smollm2-135m', drafter: false }, fetching, open)).toBeUndefined();
  expect(await openDrafter({ model: '/other.gguf' }, fetching, open)).toBeUndefined();
  expect(asked).toHaveLength(3);
  failure = new RedraftError('http', 'the server answered 404');
  expect(await openDrafter({ model: 'smollm2-135m' }, fetching, open)).toBeUndefined();
  expect(warned).toEqual([expect.stringMatching(/drafter of smollm2-135m cannot be loaded.*404/)]);
  await expect(openDrafter({ model: 'smollm2-135m', drafter: '/mine' }, fetching, open)).rejects.toBe(failure);
  failure = new RedraftError('aborted', 'aborted');
  await expect(openDrafter({ model: 'smollm2-135m' }, fetching, open)).rejects.toBe(failure);
});
