import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { deleteModel } from '../src/cache.js';
import { openDrafter } from '../src/drafter.js';
import { RedraftError } from '../src/errors.js';
import { MODELS, type ModelSpec, checkSpec, knownModel } from '../src/models.js';
import { ProgressMeter } from '../src/progress.js';
import { openStore } from '../src/store.js';

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
  for (const good of ['a', { url: 'a' }, { file: new Blob(), sha256: '' }, new Blob()]) expect(() => checkSpec('model', good)).not.toThrow();
  for (const bad of ['', null, 5, true, {}, []]) expect(() => checkSpec('drafter', bad), String(bad)).toThrow(/drafter must be/);
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
