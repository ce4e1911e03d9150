import type { SpeculationCosts } from '@redraft/web';
import { expect, test } from './support.ts';

/** Numbers pass through JSON, where the module reads them to the last bit but one. */
function expectSame(found: SpeculationCosts | null, expected: SpeculationCosts | null): void {
  const numbers = (costs: SpeculationCosts | null): number[] => (costs ? [...costs.verify.flat(), ...costs.draft.flat(), costs.extend, costs.overhead, costs.catchUp, costs.catchUpMost] : []);
  const [some, others] = [numbers(found), numbers(expected)];
  expect(some.length).toBeGreaterThan(10);
  expect(some).toHaveLength(others.length);
  for (const [at, number] of some.entries()) expect(number).toBeCloseTo(others[at] ?? Number.NaN, 9);
}

test('costs are measured once and kept, for the page and its workers', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const load = async (make: 'createEngine' | 'createWorkerEngine', more: { context?: number; drafter?: false } = {}) => {
      const engine = await redraft[make]({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors', context: 256, ...more });
      const { costs, costsFrom } = engine.info;
      const ask = async (speculation: 'auto' | 'off') => {
        const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true, speculation });
        return answer.choices[0].tokens.map((token) => token.id).join();
      };
      const plain = await ask('off');
      const untouched = engine.info.costs === null || costs !== null;
      const same = (await ask('auto')) === plain;
      const after = engine.info;
      await engine.dispose();
      return { from: costsFrom, costs, untouched, same, after: after.costsFrom, measured: after.costs };
    };
    /** Every note of costs, changed. */
    const damage = async (change: (text: string) => string) => {
      const folder = await (await (await navigator.storage.getDirectory()).getDirectoryHandle('redraft')).getDirectoryHandle('costs');
      let notes = 0;
      for await (const file of folder.values()) {
        if (!(file instanceof FileSystemFileHandle)) continue;
        const text = change(await (await file.getFile()).text());
        const writable = await file.createWritable();
        await writable.write(text);
        await writable.close();
        notes += 1;
      }
      return notes;
    };
    const first = await load('createEngine');
    const kept = [await load('createEngine'), await load('createWorkerEngine')];
    const other = [await load('createWorkerEngine', { context: 320 }), await load('createEngine', { drafter: false })];
    await damage((text) => {
      const note = JSON.parse(text) as { key: string; text: string };
      return JSON.stringify({ ...note, text: JSON.stringify({ ...(JSON.parse(note.text) as object), extend: -1 }) });
    });
    const impossible = await load('createWorkerEngine');
    const notes = await damage((text) => text.slice(0, text.length / 2));
    const cut = await load('createEngine');
    return { first, kept, other, impossible, notes, cut, last: await load('createEngine') };
  });
  const fresh = { from: null, costs: null, untouched: true, same: true, after: 'measured' };
  expect(seen.first).toMatchObject(fresh);
  const { measured } = seen.first;
  expect(measured?.verify[0]).toEqual([1, 1]);
  expect(measured?.draft.length).toBeGreaterThan(1);
  for (const load of seen.kept) {
    expect(load).toMatchObject({ from: 'kept', untouched: true, same: true, after: 'kept' });
    expectSame(load.costs, measured);
    expectSame(load.measured, measured);
  }
  for (const load of seen.other) expect(load).toMatchObject(fresh);
  expect(seen.impossible).toMatchObject(fresh);
  expect(seen.notes).toBe(3);
  expect(seen.cut).toMatchObject(fresh);
  expect(seen.last.from).toBe('kept');
  expectSame(seen.last.costs, seen.cut.measured);
});

test('an abort ends the measuring, and the next answer makes up for it', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors', context: 256 });
    const ask = async (speculation: 'auto' | 'off', signal?: AbortSignal) => {
      const params = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true, speculation, ...(signal && { signal }) };
      return (await engine.chat.completions.create(params)).choices[0].tokens.map((token) => token.id).join();
    };
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 20);
    const code = await ask('auto', controller.signal).then(() => 'none', (error: unknown) => (error instanceof redraft.RedraftError ? error.code : String(error)));
    // Waits for what was aborted.
    const plain = await ask('off');
    const between = engine.info.costs;
    const same = (await ask('auto')) === plain;
    const { costsFrom } = engine.info;
    await engine.dispose();
    return { code, between, same, costsFrom };
  });
  expect(seen).toEqual({ code: 'aborted', between: null, same: true, costsFrom: 'measured' });
});
