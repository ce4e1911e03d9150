import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MODELS, checkSpec, knownModel } from '../src/models.js';

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
