import { agreed, expect, test, tinyReference } from './support.ts';

/** With keys and values in 32 bits, kernels and reference differ by rounding alone. */
const TIE = 0.002;

test('greedy answers of the tiny model are those of the f32 reference', async ({ blank }) => {
  const prompts = tinyReference.map((reference) => reference.prompt);
  const answers = await blank.evaluate(async (prompts: string[]) => {
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf', kv: 'f32' });
    const found = [];
    for (const content of prompts) {
      const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content }], max_tokens: 48, ignore_eos: true, logprobs: true });
      const [{ message, tokens, logprobs }] = answer.choices;
      const bytes = (logprobs?.content ?? []).flatMap((token) => token.bytes ?? []);
      found.push({ ids: tokens.map((token) => token.id), usage: answer.usage, text: message.content, bytes });
    }
    const ids = await engine.tokenize('Hello there');
    await engine.dispose();
    return { found, ids };
  }, prompts);
  expect(answers.ids.length).toBeGreaterThan(1);
  for (const [at, { prompt, prompt_ids, greedy_ids, margins }] of tinyReference.entries()) {
    const found = answers.found[at];
    const count = agreed(margins, TIE);
    expect(count, `${prompt}: something is compared`).toBeGreaterThan(10);
    expect(found?.ids.slice(0, count), prompt).toEqual(greedy_ids.slice(0, count));
    expect(found?.ids).toHaveLength(48);
    expect(found?.usage).toMatchObject({ prompt_tokens: prompt_ids.length, completion_tokens: 48, total_tokens: prompt_ids.length + 48 });
    // Random weights make bytes that are no text; they come as replacement characters, as everywhere in a browser.
    expect(found?.bytes.length, 'bytes').toBeGreaterThan(48);
    expect(found?.text).toBe(new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(found?.bytes ?? [])));
  }
});

test('speculation changes nothing but the way: every kind, greedy and sampled', async ({ blank }) => {
  const runs = await blank.evaluate(async () => {
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors' });
    const messages = [{ role: 'user', content: 'one two one two one two one' }];
    const found = [];
    for (const sampling of [{ temperature: 0 }, { temperature: 0.9, top_p: 0.95, seed: 11 }]) {
      for (const speculation of ['off', 'lookup', 'chain', 'tree', 'reconsider', { mode: 'tree', nodes: 7, depth: 3, width: 2, children: 2, lookup: true }] as const) {
        const answer = await engine.chat.completions.create({ messages, max_tokens: 40, ignore_eos: true, speculation, ...sampling });
        const { tokens, message } = answer.choices[0];
        found.push({ speculation, ids: tokens.map((token) => token.id), text: message.content, stats: answer.usage.speculation ?? null });
      }
    }
    await engine.dispose();
    return found;
  });
  for (const group of [runs.slice(0, 6), runs.slice(6)]) {
    const [plain, ...others] = group;
    expect(plain?.stats).toBeNull();
    for (const { speculation, ids, text, stats } of others) {
      expect(ids, JSON.stringify(speculation)).toEqual(plain?.ids);
      expect(text).toBe(plain?.text);
      // Lookup drafts only where something repeats; the drafter always does.
      if (speculation !== 'lookup') expect(stats?.drafted, JSON.stringify(speculation)).toBeGreaterThan(0);
    }
  }
  expect(runs[0]?.ids).not.toEqual(runs[6]?.ids);
  expect(runs.find((run) => run.speculation === 'reconsider')?.stats?.reconsidered).toBeGreaterThan(0);
});

test('a stream: chunks, usage, trees of the rounds', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const engine = await redraft.createWorkerEngine({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors' });
    const trees: { nodes: number; accepted: number; roots: number }[] = [];
    const stop = engine.on('round', (tree) => {
      const roots = tree.nodes.filter((node) => node.parent === null).length;
      trees.push({ nodes: tree.nodes.length, accepted: tree.accepted.length, roots });
    });
    const params = { messages: [{ role: 'user', content: 'Größe 🦙' }], max_tokens: 12, ignore_eos: true, seed: 1 };
    const stream = await engine.chat.completions.create({ ...params, stream: true, speculation: 'tree' });
    let text = '';
    let usage;
    const ids: number[] = [];
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      const token = chunk.choices[0]?.token;
      if (token) ids.push(token.id);
      usage = chunk.usage ?? usage;
    }
    stop();
    const rounds = trees.length;
    const whole = await engine.chat.completions.create({ ...params, speculation: 'off', logprobs: true, top_logprobs: 3 });
    const { message, tokens, logprobs } = whole.choices[0];
    const after = trees.length;
    await engine.dispose();
    return { text, ids, usage, trees, rounds, after, whole: { text: message.content, ids: tokens.map((t) => t.id), logprobs } };
  });
  expect(seen.whole.ids).toEqual(seen.ids);
  expect(seen.whole.text).toBe(seen.text);
  expect(seen.usage?.completion_tokens).toBe(12);
  expect(seen.usage?.speculation?.rounds).toBe(seen.rounds);
  expect(seen.rounds).toBeGreaterThan(0);
  expect(seen.after, 'no trees once nobody listens').toBe(seen.rounds);
  expect(seen.trees.every((tree) => tree.roots === 1 && tree.nodes > 1 && tree.accepted >= 1)).toBe(true);
  expect(seen.whole.logprobs?.content).toHaveLength(12);
  for (const one of seen.whole.logprobs?.content ?? []) {
    expect(one.top_logprobs).toHaveLength(3);
    // Greedy: the chosen token is the likeliest.
    expect(one.logprob).toBe(one.top_logprobs[0]?.logprob);
    expect(one.logprob).toBeLessThanOrEqual(0);
  }
});

test('a letter of two tokens comes whole, here and in a worker', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const results = [];
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      const engine = await redraft[make]({ model: '/fixtures/tiny.gguf' });
      const bytes = await engine.tokenize('é');
      const [first, second] = bytes.slice(-2);
      // The first byte is likelier, unless it was the last token.
      const forced = { logit_bias: { [String(first)]: 90, [String(second)]: 60 }, presence_penalty: 60, penalty_window: 1 };
      const params = { messages: [{ role: 'user', content: 'hi' }], ignore_eos: true, ...forced };
      const chunks: string[] = [];
      const ids: number[] = [];
      for await (const chunk of await engine.chat.completions.create({ ...params, max_tokens: 8, stream: true })) {
        const { delta, token } = chunk.choices[0] ?? {};
        if (token) {
          ids.push(token.id);
          chunks.push(delta?.content ?? '');
        }
      }
      const whole = (await engine.chat.completions.create({ ...params, max_tokens: 8 })).choices[0].message.content;
      const cut = (await engine.chat.completions.create({ ...params, max_tokens: 3 })).choices[0].message.content;
      await engine.dispose();
      results.push({ alternates: ids.every((id, at) => id === (at % 2 === 0 ? first : second)), count: ids.length, chunks, whole, cut });
    }
    return results;
  });
  // What an answer that ends within a letter has of it can be told in one way only.
  for (const result of seen) expect(result).toEqual({ alternates: true, count: 8, chunks: ['', 'é', '', 'é', '', 'é', '', 'é'], whole: 'éééé', cut: 'é\uFFFD' });
});

test('stop strings, seeds, biases and limits do what they say', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf', context: 128 });
    const messages = [{ role: 'user', content: 'Hello there' }];
    const ask = async (more: object) => {
      const answer = await engine.chat.completions.create({ messages, ignore_eos: true, ...more });
      const { message, tokens, finish_reason } = answer.choices[0];
      return { text: message.content, ids: tokens.map((token) => token.id), finish: finish_reason, usage: answer.usage };
    };
    const plain = await ask({ max_tokens: 24 });
    const middle = plain.text.slice(6, 8);
    const found = {
      plain,
      middle,
      stopped: await ask({ max_tokens: 24, stop: middle }),
      seedA: await ask({ max_tokens: 24, temperature: 1.5, seed: 5 }),
      seedB: await ask({ max_tokens: 24, temperature: 1.5, seed: 5 }),
      seedC: await ask({ max_tokens: 24, temperature: 1.5, seed: 6 }),
      banned: await ask({ max_tokens: 4, logit_bias: { [String(plain.ids[0])]: -1e6 } }),
      full: await ask({}),
    };
    const code = async (more: object) => {
      try {
        await ask(more);
        return 'none';
      } catch (error) {
        return error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error);
      }
    };
    const errors = {
      long: await code({ messages: [{ role: 'user', content: 'word '.repeat(300) }] }),
      temperature: await code({ temperature: -1 }),
      bias: await code({ logit_bias: { 99999: 1 } }),
      plan: await code({ speculation: { mode: 'tree', nodes: 999 } }),
      drafter: await code({ speculation: 'tree' }),
    };
    await engine.dispose();
    const disposed = await code({});
    return { found, errors, disposed };
  });
  const { plain, middle, stopped, seedA, seedB, seedC, banned, full } = seen.found;
  expect(stopped.text).toBe(plain.text.slice(0, plain.text.indexOf(middle)));
  expect(stopped.finish).toBe('stop');
  expect(plain.finish).toBe('length');
  expect(seedA.ids).toEqual(seedB.ids);
  expect(seedA.ids).not.toEqual(seedC.ids);
  expect(banned.ids).not.toContain(plain.ids[0]);
  expect(full.usage.total_tokens).toBe(128);
  expect(full.finish).toBe('length');
  expect(seen.errors.long).toMatch(/^context_length_exceeded: .*128/);
  expect(seen.errors.temperature).toMatch(/^invalid_request: .*temperature/);
  expect(seen.errors.bias).toMatch(/^invalid_request: .*99999/);
  expect(seen.errors.plan).toMatch(/^invalid_request: .*nodes is 999/);
  expect(seen.errors.drafter).toMatch(/^invalid_request: .*drafter/);
  expect(seen.disposed).toMatch(/^disposed/);
});

test('engines of one page and one module, and one in a worker, do not disturb each other', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    // Two that share the module of the page, and one with its own.
    const [a, b, c] = await Promise.all([
      redraft.createEngine({ model: '/fixtures/tiny.gguf' }),
      redraft.createWorkerEngine({ model: '/fixtures/tiny.gguf' }),
      redraft.createEngine({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors' }),
    ]);
    const ask = async (engine: typeof a, content: string) => {
      const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content }], max_tokens: 16, ignore_eos: true });
      return answer.choices[0].tokens.map((token) => token.id);
    };
    const alone = await ask(a, 'Hello');
    // Calls on one engine wait for each other.
    const other = await ask(a, 'other');
    const greeted = await Promise.all([ask(a, 'Hello'), ask(b, 'Hello'), ask(c, 'Hello')]);
    const others = await Promise.all([ask(a, 'other'), ask(b, 'other'), ask(c, 'other'), ask(a, 'other')]);
    // One is disposed of while the other of the same module answers.
    const [during] = await Promise.all([ask(c, 'Hello'), a.dispose()]);
    const after = [during, await ask(b, 'Hello'), await ask(c, 'Hello')];
    await Promise.all([b.dispose(), c.dispose()]);
    return { alone, other, greeted, others, after };
  });
  expect([...seen.greeted, ...seen.after]).toEqual(Array.from({ length: 6 }, () => seen.alone));
  expect(seen.others).toEqual(Array.from({ length: 4 }, () => seen.other));
  expect(seen.other).not.toEqual(seen.alone);
});

for (const drafter of [undefined, '/fixtures/tiny.drafter.safetensors']) {
  test(`loading and disposing twenty times frees every device and does not grow the heap${drafter ? ', with a drafter' : ''}`, async ({ blank }) => {
    const seen = await blank.evaluate(async (drafter) => {
      const heaps: number[] = [];
      for (let round = 0; round < 20; round += 1) {
        const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf', context: 64, ...(drafter !== undefined && { drafter }) });
        await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 2, speculation: drafter === undefined ? 'off' : 'tree' });
        heaps.push(engine.info.heapBytes);
        await engine.dispose();
      }
      const lost = await Promise.all(devices.map((device) => Promise.race([device.lost.then(({ reason }) => String(reason)), new Promise<string>((resolve) => setTimeout(() => resolve('alive'), 2000))])));
      return { heaps, lost };
    }, drafter);
    expect(seen.lost).toEqual(Array.from({ length: 20 }, () => 'destroyed'));
    expect(seen.heaps.at(-1)).toBe(seen.heaps[2]);
  });
}

test('probe tells what this browser has, and what lacks where WebGPU is hidden', async ({ blank }) => {
  const found = await blank.evaluate(() => redraft.probe());
  expect(found).toMatchObject({ ok: true, adapter: { software: true, f16: false, subgroups: true, subgroupSizes: [4, 4] } });
  const hidden = await blank.evaluate(async () => {
    Object.defineProperty(navigator, 'gpu', { value: undefined, configurable: true });
    const answer = await redraft.probe();
    const error: unknown = await redraft.createEngine({ model: '/fixtures/tiny.gguf' }).catch((thrown: unknown) => thrown);
    return { answer, code: error instanceof redraft.RedraftError ? error.code : String(error) };
  });
  expect(hidden.answer).toMatchObject({ ok: false, reason: expect.stringContaining('WebGPU') });
  expect(hidden.code).toBe('webgpu_unavailable');
});

test('f16 where the adapter has none is refused before anything is downloaded', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const before = performance.getEntriesByType('resource').length;
    const error: unknown = await redraft.createEngine({ model: '/fixtures/tiny.gguf', precision: 'f16' }).catch((thrown: unknown) => thrown);
    const fetched = performance.getEntriesByType('resource').slice(before).map((entry) => entry.name);
    return { code: error instanceof redraft.RedraftError ? error.code : 'none', message: String(error), fetched };
  });
  expect(seen).toMatchObject({ code: 'webgpu_unavailable', message: expect.stringContaining('shader-f16') });
  expect(seen.fetched).toEqual([]);
});
