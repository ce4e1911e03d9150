/** What web developers get wrong, and what goes wrong around them: an error with a code each, nothing hangs, the engine goes on. */
import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { dist, fixtures } from './server.ts';
import { expect, test } from './support.ts';

test('parameters that cannot be are named, and the engine answers as before', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const engine = await redraft.createWorkerEngine({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors', context: 128 });
    const ask = async (more: object = {}) => {
      const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 8, ignore_eos: true, speculation: 'tree', ...more });
      return answer.choices[0].tokens.map((token) => token.id).join();
    };
    const right = await ask();
    const bad: Record<string, object> = {
      'no messages': { messages: undefined },
      'messages of text': { messages: 'hi' },
      'an empty list': { messages: [] },
      'a role of number': { messages: [{ role: 7, content: 'x' }] },
      'an unknown field': { maxTokens: 5 },
      'a text for a number': { temperature: '1' },
      'temperature NaN': { temperature: Number.NaN },
      'temperature -1': { temperature: -1 },
      'temperature 1e30': { temperature: 1e30 },
      'top_p 2': { temperature: 1, top_p: 2 },
      'top_p -1': { temperature: 1, top_p: -1 },
      'min_p -0.1': { temperature: 1, min_p: -0.1 },
      'min_p 2': { temperature: 1, min_p: 2 },
      'top_k -1': { top_k: -1 },
      'top_k 2^40': { top_k: 2 ** 40 },
      'repetition_penalty 0': { repetition_penalty: 0 },
      'repetition_penalty -1': { repetition_penalty: -1 },
      'presence_penalty NaN': { presence_penalty: Number.NaN },
      'penalty_window 2^31': { penalty_window: 2 ** 31 },
      'a bias outside the vocabulary': { logit_bias: { 4000000000: 1 } },
      'an empty stop': { stop: [''] },
      'a plan of no node': { speculation: { mode: 'tree', nodes: 0 } },
      'a plan of a thousand nodes': { speculation: { mode: 'tree', nodes: 1000 } },
      'a plan with a fraction': { speculation: { mode: 'chain', nodes: 2.5 } },
      'a controller for a signal': { signal: new AbortController() },
      'a long prompt': { messages: [{ role: 'user', content: 'word '.repeat(500) }] },
    };
    const found: Record<string, string> = {};
    for (const [name, more] of Object.entries(bad)) {
      found[name] = await ask(more).then(() => 'taken', (error: unknown) => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error)));
    }
    // Odd, but allowed.
    const odd = [await ask({ messages: [{ role: 'user', content: '' }] }), await ask({ top_k: 2 ** 31 }), await ask({ max_tokens: 0 })].map((ids) => ids.split(',').filter(Boolean).length);
    const after = await ask();
    await engine.dispose();
    return { found, odd, same: after === right };
  });
  for (const [name, said] of Object.entries(seen.found)) {
    expect(said, name).toMatch(name === 'a long prompt' ? /^context_length_exceeded: .*128/ : /^invalid_request: ./);
    // Nobody but the authors knows what serde is.
    expect(said, name).not.toMatch(/line 1 column|invalid type|expected u32/);
  }
  expect(seen.odd).toEqual([8, 8, 0]);
  expect(seen.same).toBe(true);
});

test('answers at once, readers that share a stream, streams that nobody reads', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const results = [];
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      const engine = await redraft[make]({ model: '/fixtures/tiny.gguf' });
      const params = { messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 12, ignore_eos: true } as const;
      const ids = async () => (await engine.chat.completions.create(params)).choices[0].tokens.map((token) => token.id).join();
      const right = await ids();
      const unread = await engine.chat.completions.create({ ...params, stream: true });
      const shared = await engine.chat.completions.create({ ...params, stream: true });
      const read = async () => {
        const found: number[] = [];
        for await (const chunk of shared) if (chunk.choices[0]?.token) found.push(chunk.choices[0].token.id);
        return found;
      };
      const [one, two, whole] = await Promise.all([read(), read(), ids()]);
      // What was made while nobody read is still there, and read once.
      const late: number[] = [];
      for await (const chunk of unread) if (chunk.choices[0]?.token) late.push(chunk.choices[0].token.id);
      let again = 0;
      for await (const _ of unread) again += 1;
      const left = await engine.chat.completions.create({ ...params, max_tokens: 100, stream: true });
      for await (const chunk of left) if (chunk.choices[0]?.token) break;
      left.abort();
      left.abort();
      const controller = new AbortController();
      const twice = engine.chat.completions.create({ ...params, max_tokens: 100, signal: controller.signal }).then(() => 'none', (error: unknown) => (error instanceof redraft.RedraftError ? error.code : String(error)));
      controller.abort();
      controller.abort();
      results.push({ count: one.length + two.length, whole: whole === right, late: late.join() === right, again, twice: await twice, after: (await ids()) === right });
      await engine.dispose();
    }
    return results;
  });
  for (const result of seen) expect(result).toEqual({ count: 12, whole: true, late: true, again: 0, twice: 'aborted', after: true });
});

test('disposing while it answers ends every loop, once or twice, here and in a worker', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const codeOf = (error: unknown): string => (error instanceof redraft.RedraftError ? error.code : String(error));
    const results = [];
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      const engine = await redraft[make]({ model: '/fixtures/tiny.gguf' });
      const params = { messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 400, ignore_eos: true } as const;
      const stream = await engine.chat.completions.create({ ...params, stream: true });
      const waiting = engine.chat.completions.create(params).then(() => 'none', codeOf);
      let disposals: Promise<unknown> = Promise.resolve();
      const loop = (async () => {
        for await (const chunk of stream) if (chunk.choices[0]?.token) disposals = Promise.all([engine.dispose(), engine.dispose()]);
      })().then(() => 'none', codeOf);
      const codes = [await loop, await waiting];
      await disposals;
      await engine.dispose();
      codes.push(await engine.tokenize('a').then(() => 'none', codeOf), await engine.chat.completions.create(params).then(() => 'none', codeOf));
      results.push(codes);
    }
    return results;
  });
  for (const codes of seen) expect(codes).toEqual(['aborted', 'aborted', 'disposed', 'disposed']);
});

test('workers that end without a word, that are none of ours, or that cannot start', async ({ blank, context }) => {
  const seen = await blank.evaluate(async () => {
    const said = (error: unknown): string => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error));
    const model = `${location.origin}/fixtures/tiny.gguf`;
    const worker = (source: string) => new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
    const ours = () => worker(`import { serveEngine } from '${location.origin}/dist/index.js'; serveEngine(self);`);
    const messages = [{ role: 'user', content: 'hi' }];
    const found: Record<string, string> = {};
    const ended = ours();
    const engine = await redraft.createWorkerEngine({ model, worker: ended });
    const stream = await engine.chat.completions.create({ messages, max_tokens: 400, ignore_eos: true, stream: true });
    found['in an answer'] = await (async () => {
      for await (const chunk of stream) if (chunk.choices[0]?.token) ended.terminate();
    })().then(() => 'none', said);
    found['after it'] = await engine.tokenize('a').then(() => 'none', said);
    await engine.dispose();
    const idle = ours();
    const other = await redraft.createWorkerEngine({ model, worker: idle });
    idle.terminate();
    found['while idle'] = await other.chat.completions.create({ messages }).then(() => 'none', said);
    const early = ours();
    const load = redraft.createWorkerEngine({ model, worker: early, onProgress: ({ phase }) => phase === 'compile' && early.terminate() });
    found['in the load'] = await load.then(() => 'none', said);
    found['a broken script'] = await redraft.createWorkerEngine({ model, worker: worker('this is no program') }).then(() => 'none', said);
    found['a missing script'] = await redraft.createWorkerEngine({ model, worker: new Worker('/absent.js', { type: 'module' }) }).then(() => 'none', said);
    const stranger = worker('addEventListener("message", () => postMessage("hello"));');
    found['a stranger'] = await redraft.createWorkerEngine({ model, worker: stranger }).then(() => 'none', said);
    stranger.terminate();
    return found;
  });
  for (const place of ['in an answer', 'after it', 'while idle', 'in the load']) expect(seen[place], place).toMatch(/^worker: the worker failed: it was ended.*create the engine again$/);
  expect(seen['a broken script']).toMatch(/^worker: .*create the engine again$/);
  expect(seen['a missing script']).toMatch(/^worker: .*script could not be loaded/);
  expect(seen['a stranger']).toMatch(/^worker: .*has not answered in 30 s: it must call serveEngine\(self\)/);
  // The package's own worker: its script is not served, or is of another origin, as from a public server of packages.
  const load = (source: string) =>
    blank.evaluate(async (address) => {
      const from = (await import(address)) as typeof redraft;
      return from.createWorkerEngine({ model: '/fixtures/tiny.gguf' }).then(async (engine) => engine.dispose().then(() => 'loaded'), (error: unknown) => `${(error as { code?: string }).code}: ${String(error)}`);
    }, source);
  await context.route('**/dist/worker.js', (route) => route.fulfill({ status: 404 }));
  expect(await load('/dist/index.js')).toMatch(/^worker: .*script could not be loaded/);
  await context.unroute('**/dist/worker.js');
  expect(await load('/dist/index.js')).toBe('loaded');
  const { port } = new URL(blank.url());
  expect(await load(`http://127.0.0.1:${port}/dist/index.js`)).toMatch(/^worker: .*refuses the worker of the package.*serveEngine\(self\)/);
});

/** What the module says that ended: a trap, a panic, or what a WebGPU call threw. */
const ended = (why: RegExp, advice: string): RegExp => new RegExp(`^internal: the WebAssembly module failed and cannot go on: [^]*${why.source}[^]*; ${advice}`);

for (const [what, method, words] of [['an exception of WebGPU', 'submit', /the browser is broken/], ['a panic', 'writeBuffer', /panicked at [^]*the browser is broken/]] as const) {
  test(`${what} ends every call, and nothing waits for ever: in a page`, async ({ blank }) => {
    const seen = await blank.evaluate(async (method) => {
      const settled = async (work: Promise<unknown>): Promise<string> => {
        const said = work.then(() => 'done', (error: unknown) => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error)));
        return Promise.race([said, new Promise<string>((resolve) => setTimeout(() => resolve('still waits'), 60_000))]);
      };
      const model = '/fixtures/tiny.gguf';
      const [engine, other] = [await redraft.createEngine({ model }), await redraft.createEngine({ model })];
      const params = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true };
      await engine.chat.completions.create(params);
      const broken = GPUQueue.prototype as unknown as Record<string, unknown>;
      const whole = broken[method];
      broken[method] = () => {
        broken[method] = whole;
        throw new Error('the browser is broken');
      };
      const calls = [settled(engine.chat.completions.create(params)), settled(engine.tokenize('hi'))];
      const first = await Promise.all(calls);
      const info = engine.info.path;
      const later = await Promise.all([settled(other.tokenize('hi')), settled(redraft.createEngine({ model }))]);
      const disposals = await Promise.all([settled(engine.dispose()), settled(other.dispose())]);
      // A worker has a module of its own.
      const fresh = await redraft.createWorkerEngine({ model });
      const tokens = (await fresh.chat.completions.create(params)).usage.completion_tokens;
      await fresh.dispose();
      return { first, info, later, disposals, tokens };
    }, method);
    for (const said of [...seen.first, ...seen.later]) expect(said).toMatch(ended(words, 'reload the page'));
    expect(seen).toMatchObject({ info: 'plain', disposals: ['done', 'done'], tokens: 12 });
  });
}

test('an exception of WebGPU ends every call, and nothing waits for ever: in a worker of the app', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const settled = async (work: Promise<unknown>): Promise<string> => {
      const said = work.then(() => 'done', (error: unknown) => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error)));
      return Promise.race([said, new Promise<string>((resolve) => setTimeout(() => resolve('still waits'), 60_000))]);
    };
    const source = `import { serveEngine } from '${location.origin}/dist/index.js'; serveEngine(self);
      addEventListener('message', ({ data }) => { if (data === 'break') GPUQueue.prototype.submit = () => { throw new Error('the browser is broken'); }; });`;
    const address = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    const model = `${location.origin}/fixtures/tiny.gguf`;
    const params = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true };
    const worker = new Worker(address, { type: 'module' });
    const engine = await redraft.createWorkerEngine({ model, worker });
    worker.postMessage('break');
    const first = await Promise.all([settled(engine.chat.completions.create(params)), settled(engine.tokenize('hi'))]);
    const disposal = await settled(engine.dispose());
    const again = await settled(redraft.createWorkerEngine({ model, worker }));
    worker.terminate();
    const fresh = new Worker(address, { type: 'module' });
    const next = await redraft.createWorkerEngine({ model, worker: fresh });
    const tokens = (await next.chat.completions.create(params)).usage.completion_tokens;
    await next.dispose();
    fresh.terminate();
    return { first, disposal, again, tokens };
  });
  for (const said of [...seen.first, seen.again]) expect(said).toMatch(ended(/the browser is broken/, 'dispose of the engine and create it again, in another worker if this one is yours'));
  expect(seen).toMatchObject({ disposal: 'done', tokens: 12 });
});

/** The module with its heap limited to so many pages of 64 KiB more than it starts with. */
function limited(wasm: Buffer, more: number): Buffer {
  const number = (at: number): [value: number, end: number] => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = wasm[at] ?? 0;
      value |= (byte & 127) << shift;
      at += 1;
      if (byte < 128) return [value, at];
    }
  };
  const bytes = (value: number): number[] => (value < 128 ? [value] : [(value & 127) | 128, ...bytes(value >> 7)]);
  for (let at = 8; at < wasm.length; ) {
    const [size, start] = number(at + 1);
    if (wasm[at] === 5) {
      // One memory, without a limit, of so many pages.
      expect([...wasm.subarray(start, start + 2)]).toEqual([1, 0]);
      const [pages] = number(start + 2);
      const section = [1, 1, ...bytes(pages), ...bytes(pages + more)];
      return Buffer.concat([wasm.subarray(0, at), Buffer.from([5, section.length, ...section]), wasm.subarray(start + size)]);
    }
    at = start + size;
  }
  throw new Error('the module has no memory');
}

test('a module that is out of memory fails the load, in a page and in a worker', async ({ blank, context }) => {
  const body = limited(readFileSync(join(dist, 'wasm/redraft_wasm_bg.wasm')), 4);
  await context.route('**/redraft_wasm_bg.wasm', (route) => route.fulfill({ contentType: 'application/wasm', body }));
  const load = (make: 'createEngine' | 'createWorkerEngine') =>
    blank.evaluate(async (make) => {
      const said = redraft[make]({ model: '/fixtures/tiny.gguf' }).then(() => 'loaded', (error: unknown) => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error)));
      return Promise.race([said, new Promise<string>((resolve) => setTimeout(() => resolve('still waits'), 120_000))]);
    }, make);
  expect(await load('createWorkerEngine')).toMatch(ended(/RuntimeError: unreachable/, 'dispose of the engine'));
  expect(await load('createEngine')).toMatch(ended(/RuntimeError: unreachable/, 'reload the page'));
  await context.unroute('**/redraft_wasm_bg.wasm');
  expect(await load('createWorkerEngine')).toBe('loaded');
});

test('files that are no models, and what heals once the server does', async ({ blank, context }) => {
  const load = (options: { model: string | { url: string; sha256?: string }; drafter?: string; wasmUrl?: string; memoryLimit?: number; context?: number }) =>
    blank.evaluate(async (options) => {
      try {
        const engine = await redraft.createWorkerEngine(options);
        const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 2, ignore_eos: true, speculation: 'off' });
        await engine.dispose();
        return `loaded ${answer.usage.completion_tokens}`;
      } catch (error) {
        return error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error);
      }
    }, options);
  const model = '/fixtures/tiny.gguf?broken';
  const good = readFileSync(join(fixtures, 'tiny.gguf'));
  const answers: [string, Buffer | string, RegExp][] = [
    ['a page', '<!doctype html><title>Not found</title>', /^invalid_model: .*does not begin with GGUF/],
    ['nothing', '', /^invalid_model: .*is empty/],
    ['two bytes', 'GG', /^invalid_model: .*deleted, and fetched anew/],
    ['the half', good.subarray(0, good.length / 2), /^invalid_model: .*deleted, and fetched anew/],
  ];
  for (const [what, body, words] of answers) {
    await context.route('**/tiny.gguf?broken', (route) => route.fulfill({ body }));
    expect(await load({ model }), what).toMatch(words);
    await context.unroute('**/tiny.gguf?broken');
    // The same address, once it has the model.
    expect(await load({ model }), what).toBe('loaded 2');
    await blank.evaluate((model) => redraft.deleteModel(model), model);
  }
  expect(await load({ model: { url: '/fixtures/tiny.gguf', sha256: '0'.repeat(64) } })).toMatch(/^integrity: .*expected 0{64}/);
  expect(await load({ model: '/fixtures/tiny.gguf', drafter: '/dist/drafters/smollm2-135m.safetensors' })).toMatch(/^invalid_drafter: .*of another model\? Pass the drafter of this one, or drafter: false/);
  expect(await load({ model: '/fixtures/tiny.gguf', memoryLimit: 1000 })).toMatch(/^out_of_memory: .*limit is 1000 bytes/);
  expect(await load({ model: '/fixtures/tiny.gguf', context: 1_000_000 })).toMatch(/^invalid_request: context.* 1000000/);
  expect(await load({ model: '/fixtures/tiny.gguf', wasmUrl: '/absent.wasm' })).toMatch(/^network: .*WebAssembly module cannot be loaded.*wasmUrl/);
  expect(await load({ model: '/fixtures/tiny.gguf', wasmUrl: '/dist/wasm/redraft_wasm_bg.wasm' })).toBe('loaded 2');
});

test('a GPU that is refused is an error, and the next load may get it', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = () => Promise.reject(new Error('another page has it'));
    const error: unknown = await redraft.createEngine({ model: '/fixtures/tiny.gguf' }).catch((thrown: unknown) => thrown);
    GPUAdapter.prototype.requestDevice = requestDevice;
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf' });
    await engine.dispose();
    return error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error);
  });
  expect(seen).toMatch(/^webgpu_unavailable: ./);
});

test('precision f16 without shader-f16 is refused before anything is downloaded', async ({ blank, server }) => {
  const before = server.requests.length;
  const seen = await blank.evaluate(async () => {
    const found = await redraft.probe();
    const said: string[] = [];
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      const load = redraft[make]({ model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.drafter.safetensors', precision: 'f16' });
      said.push(await load.then(() => 'loaded', (error: unknown) => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error))));
    }
    return { f16: found.ok && found.adapter.f16, said };
  });
  // SwiftShader has none; a browser on a GPU may, and then this test is of no use there.
  expect(seen.f16).toBe(false);
  for (const said of seen.said) expect(said).toMatch(/^webgpu_unavailable: .*shader-f16.*leave precision out, or pass 'f32'/);
  expect(server.requests.slice(before).filter((path) => /\.(gguf|safetensors|wasm)/.test(path))).toEqual([]);
  const loaded = await blank.evaluate(async () => {
    const engine = await redraft.createWorkerEngine({ model: '/fixtures/tiny.gguf', precision: 'f32' });
    const { path } = engine.info;
    await engine.dispose();
    return path;
  });
  expect(loaded).toBe('plain');
  expect(server.requests.slice(before).some((path) => path.includes('tiny.gguf'))).toBe(true);
});
