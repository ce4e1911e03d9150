import { expect, test } from 'vitest';
import { type CostSetting, costsKey, recallCosts } from '../src/costs.js';
import { storedNotes } from '../src/notes.js';
import { MemoryStore } from '../src/store.js';

function notesIn(store: MemoryStore) {
  return storedNotes('kind', () => Promise.resolve([store]));
}

/** The one note in a store, as text. */
async function only(store: MemoryStore, key: string): Promise<{ name: string; text: string }> {
  const { createHash } = await import('node:crypto');
  const name = createHash('sha256').update(key).digest('hex').slice(0, 32);
  return { name, text: (await (await store.read('kind', name))?.text()) ?? '' };
}

test('notes are kept under keys of any length', async () => {
  const notes = notesIn(new MemoryStore());
  const key = `${'long '.repeat(200)}/\\:%`;
  expect(await notes.get(key)).toBeUndefined();
  await notes.set(key, '');
  expect(await notes.get(key)).toBe('');
  await notes.set(key, 'two');
  expect(await notes.get(key)).toBe('two');
  expect(await notes.get(`${key} `)).toBeUndefined();
});

test('what is cut or of another key is no note', async () => {
  const store = new MemoryStore();
  const notes = notesIn(store);
  await notes.set('a', 'text');
  const { name, text } = await only(store, 'a');
  expect(JSON.parse(text)).toEqual({ key: 'a', text: 'text' });
  for (const bad of ['', text.slice(0, -3), 'null', '[]', '{"key":"b","text":"text"}', '{"key":"a","text":1}', '{"key":"a"}']) {
    await store.write('kind', name, new TextEncoder().encode(bad));
    expect(await notes.get('a'), bad).toBeUndefined();
  }
});

const MODEL = new Blob([new Uint8Array(200_000)]);
const SETTING: CostSetting = {
  version: '1', adapter: { vendor: 'v', architecture: 'a', description: 'd' }, info: { adapter: 'x', path: 'plain', context: 64 }, kv: 'f16', model: MODEL, drafter: undefined,
};

test('costs are kept for all that they depend on', async () => {
  const end = new Uint8Array(200_000);
  end[199_999] = 1;
  const start = new Uint8Array(200_000);
  start[5] = 1;
  const others: Partial<CostSetting>[] = [
    { version: '2' },
    { adapter: { vendor: 'v', architecture: 'b', description: 'd' } },
    { info: { adapter: 'x', path: 'shuffle', context: 64 } },
    { info: { adapter: 'x', path: 'plain', context: 128 } },
    { kv: 'f32' },
    { model: new Blob([end]) },
    { model: new Blob([start]) },
    { model: new Blob([new Uint8Array(200_001)]) },
    { drafter: MODEL },
  ];
  const keys = await Promise.all([{}, ...others].map((other) => costsKey({ ...SETTING, ...other })));
  expect(new Set(keys).size).toBe(others.length + 1);
  expect(await costsKey({ ...SETTING, model: new Blob([new Uint8Array(200_000)]) })).toBe(keys[0]);
});

test('kept costs are taken, and what cannot be used is measured again', async () => {
  const notes = notesIn(new MemoryStore());
  const taken: string[] = [];
  const engine = { setCosts: (json: string) => void taken.push(json) };
  expect(await recallCosts(notes, 'a', engine)).toBe(false);
  await notes.set('a', '{"extend":1}');
  expect(await recallCosts(notes, 'a', engine)).toBe(true);
  expect(taken).toEqual(['{"extend":1}']);
  const refuses = { setCosts: () => { throw new Error('no costs'); } };
  expect(await recallCosts(notes, 'a', refuses)).toBe(false);
  const broken = { get: () => Promise.reject(new Error('no storage')), set: () => Promise.reject(new Error('no storage')) };
  expect(await recallCosts(broken, 'a', engine)).toBe(false);
});
