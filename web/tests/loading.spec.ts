import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LoadOptions } from '@redraft/web';
import { dist, fixtures } from './server.ts';
import { expect, openBlank, test } from './support.ts';

/** Three pieces of the cache. */
const PAD = 20 << 20;
const tiny = readFileSync(join(fixtures, 'tiny.gguf'));
const padded = createHash('sha256').update(Buffer.concat([tiny, Buffer.alloc(PAD - tiny.length)])).digest('hex');
const PADDED = `/fixtures/tiny.gguf?pad=${PAD}`;

/** Loads, asks for two tokens, disposes; the error's code if it fails. */
async function tryLoad(options: Omit<LoadOptions, 'model'> & { model: Exclude<LoadOptions['model'], Blob> }) {
  const phases: string[] = [];
  let last = 0;
  let forward = true;
  try {
    const engine = await redraft.createEngine({
      ...options,
      onProgress: ({ phase, progress }) => {
        if (phases.at(-1) !== phase) phases.push(phase);
        forward &&= progress >= last;
        last = progress;
      },
    });
    const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 2 });
    await engine.dispose();
    return { ok: true as const, phases, last, forward, tokens: answer.usage.completion_tokens };
  } catch (error) {
    const code = error instanceof redraft.RedraftError ? error.code : String(error);
    return { ok: false as const, code, message: String(error), phases };
  }
}

test('a download that breaks off is taken up, and the next load needs no network', async ({ blank, server, context }) => {
  server.requests.length = 0;
  const model = { url: `${PADDED}&drop=${11 << 20}`, sha256: padded };
  const first = await blank.evaluate(tryLoad, { model });
  expect(first).toMatchObject({ ok: true, tokens: 2, last: 1, forward: true, phases: ['download', 'compile', 'upload', 'compile', 'ready'] });
  const asked = server.requests.filter((request) => request.includes('tiny.gguf'));
  expect(asked).toHaveLength(2);
  expect(asked[1]).toMatch(/ bytes=\d+-$/);
  await context.route('**/*.gguf*', (route) => route.abort());
  await blank.reload();
  await blank.waitForFunction(() => typeof globalThis.redraft === 'object');
  const again = await blank.evaluate(tryLoad, { model });
  expect(again).toMatchObject({ ok: true, last: 1, forward: true, phases: ['cache', 'compile', 'upload', 'compile', 'ready'] });
  const kept = await blank.evaluate(async (model) => {
    const had = await redraft.hasModel(model);
    const list = await redraft.listModels();
    await redraft.deleteModel(model);
    return { had, list, has: await redraft.hasModel(model), left: await redraft.listModels() };
  }, model);
  expect(kept).toMatchObject({ had: true, has: false, left: [], list: [{ size: PAD, sha256: padded, complete: true, store: 'opfs' }] });
});

test('what an earlier visit left of a download is taken up in the next', async ({ blank, server }) => {
  const model = { url: `${PADDED}&slow=20&visits`, sha256: padded };
  for (const make of ['createEngine', 'createWorkerEngine'] as const) {
    server.requests.length = 0;
    const first = await blank.evaluate(
      async ({ make, model }) => {
        const controller = new AbortController();
        const load = redraft[make]({ model, signal: controller.signal, onProgress: ({ phase, loaded }) => phase === 'download' && loaded > 9 << 20 && controller.abort() });
        const code = await load.then(() => 'none', (error: unknown) => (error instanceof redraft.RedraftError ? error.code : String(error)));
        return { code, kept: await redraft.listModels() };
      },
      { make, model },
    );
    expect(first).toMatchObject({ code: 'aborted', kept: [{ size: PAD, complete: false, store: 'opfs' }] });
    await blank.reload();
    await blank.waitForFunction(() => typeof globalThis.redraft === 'object');
    expect(await blank.evaluate(tryLoad, { model })).toMatchObject({ ok: true, last: 1, forward: true, phases: ['cache', 'download', 'compile', 'upload', 'compile', 'ready'] });
    // One whole piece of the cache was there.
    const asked = server.requests.filter((request) => request.includes('tiny.gguf'));
    expect(asked).toEqual([expect.not.stringContaining('bytes='), expect.stringMatching(/ bytes=8388608-$/)]);
    await blank.evaluate((model) => redraft.deleteModel(model), model);
  }
});

test('a name with nothing before it is a file beside the page, and one that is no name of a model is told', async ({ page, server }) => {
  await openBlank(page, server, '/fixtures/blank.html');
  const seen = await page.evaluate(async () => {
    const found = [];
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      const load = async (model: string | { url: string }, drafter?: string) => {
        try {
          const engine = await redraft[make]({ model, cache: 'memory', ...(drafter !== undefined && { drafter }) });
          const { info } = engine;
          await engine.dispose();
          return `loaded${info.drafter ? ' with a drafter' : ''}`;
        } catch (error) {
          return error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error);
        }
      };
      found.push([await load('tiny.gguf'), await load({ url: 'tiny.gguf' }), await load('./tiny.gguf', 'tiny.drafter.safetensors'), await load('smollm2-360m')]);
    }
    return found;
  });
  for (const [bare, field, drafted, unknown] of seen) {
    expect([bare, field, drafted]).toEqual(['loaded', 'loaded', 'loaded with a drafter']);
    expect(unknown).toMatch(/^invalid_request: "smollm2-360m" is neither a known model \(smollm2-135m\) nor an address/);
  }
});

test('an upgrade of the package takes the old drafter out of the cache', async ({ blank, context, server }) => {
  const drafter = readFileSync(join(fixtures, 'tiny.drafter.safetensors'));
  const hash = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
  const flip = drafter.length - 8;
  const old = Uint8Array.from(drafter);
  old[flip] = (old[flip] ?? 0) ^ 1;
  /** The package as a version whose known model is the tiny one, with this drafter. */
  const install = async (address: string, sha256: string): Promise<void> => {
    let source = readFileSync(join(dist, 'models.js'), 'utf8');
    for (const [pattern, text] of [[/url: 'hf:[^']+'/, `url: '/fixtures/tiny.gguf'`], [/sha256: '[0-9a-f]{64}'/, `sha256: '${hash(tiny)}'`], [/size: [\d_]+/, `size: ${tiny.length}`]] as const) {
      expect(source).toMatch(pattern);
      source = source.replace(pattern, text);
    }
    const drafters = `export const DRAFTERS = { 'smollm2-135m': { url: '${address}', sha256: '${sha256}', size: ${drafter.length} } };`;
    for (const [file, body] of [['models.js', source], ['drafters.js', drafters]] as const) {
      await context.unroute(`**/dist/${file}`);
      await context.route(`**/dist/${file}`, (route) => route.fulfill({ contentType: 'text/javascript', body }));
    }
    await openBlank(blank, server);
  };
  const load = () =>
    blank.evaluate(async () => {
      const engine = await redraft.createEngine({ model: 'smollm2-135m' });
      const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 8, ignore_eos: true, speculation: 'chain' });
      await engine.dispose();
      const kept = (await redraft.listModels()).map(({ name, sha256, complete }) => ({ name, sha256, complete }));
      return { drafted: answer.usage.speculation?.drafted ?? 0, kept: kept.sort((a, b) => String(a.name).localeCompare(String(b.name))) };
    });
  const model = { name: 'smollm2-135m', sha256: hash(tiny), complete: true };
  for (const [address, bytes] of [[`/fixtures/tiny.drafter.safetensors?flip=${flip}`, old], ['/fixtures/tiny.drafter.safetensors', drafter]] as const) {
    await install(address, hash(bytes));
    const found = await load();
    expect(found.drafted).toBeGreaterThan(0);
    expect(found.kept).toEqual([model, { name: 'smollm2-135m/drafter', sha256: hash(bytes), complete: true }]);
  }
  // A model of one's own is not touched, and the name deletes both.
  const left = await blank.evaluate(async () => {
    await (await redraft.createEngine({ model: '/fixtures/tiny.gguf?mine' })).dispose();
    await redraft.deleteModel('smollm2-135m');
    return (await redraft.listModels()).map(({ url, name }) => [new URL(url).search, name]);
  });
  expect(left).toEqual([['?mine', undefined]]);
});

test('every store keeps a model', async ({ blank, context, server }) => {
  for (const cache of ['cache', 'opfs', 'memory'] as const) {
    const model = { url: `${PADDED}&store=${cache}`, sha256: padded };
    await blank.evaluate((model) => redraft.deleteModel(model), model);
    server.requests.length = 0;
    expect(await blank.evaluate(tryLoad, { model, cache })).toMatchObject({ ok: true });
    const stores = await blank.evaluate(async () => (await redraft.listModels()).map((m) => m.store));
    expect(stores).toEqual([cache]);
    await context.route('**/*.gguf*', (route) => route.abort());
    expect(await blank.evaluate(tryLoad, { model, cache })).toMatchObject({ ok: true });
    await context.unroute('**/*.gguf*');
    expect(server.requests.filter((request) => request.includes('tiny.gguf'))).toHaveLength(1);
  }
});

test('damaged, truncated, foreign and missing files are refused by name', async ({ blank }) => {
  const cases: [{ url: string; sha256?: string; size?: number }, string, RegExp][] = [
    [{ url: `${PADDED}&flip=${9 << 20}`, sha256: padded }, 'integrity', /sha256/],
    [{ url: '/fixtures/tiny.gguf', size: 12345 }, 'integrity', /12345/],
    [{ url: '/fixtures/tiny.json' }, 'invalid_model', /GGUF/],
    [{ url: '/fixtures/absent.gguf' }, 'http', /404/],
    [{ url: 'http://127.0.0.1:9/x.gguf' }, 'network', /cannot be reached/],
    [{ url: '/fixtures/tiny.gguf?flip=5' }, 'invalid_model', /version/],
  ];
  for (const [model, code, words] of cases) {
    const found = await blank.evaluate(tryLoad, { model });
    expect(found, JSON.stringify(model)).toMatchObject({ ok: false, code });
    if (!found.ok) expect(found.message).toMatch(words);
  }
  expect((await blank.evaluate(() => redraft.listModels())).filter((model) => model.sha256 === padded)).toEqual([]);
  const wrongDrafter = await blank.evaluate(tryLoad, { model: '/fixtures/tiny.gguf', drafter: '/fixtures/tiny.json' });
  expect(wrongDrafter).toMatchObject({ ok: false, code: 'invalid_drafter' });
});

test('files of the user: whole ones load, cut ones are refused', async ({ blank }) => {
  const sha256 = createHash('sha256').update(tiny).digest('hex');
  const seen = await blank.evaluate(async (sha256) => {
    const bytes = await (await fetch('/fixtures/tiny.gguf')).arrayBuffer();
    const load = async (model: File | { file: File; sha256: string }) => {
      try {
        const engine = await redraft.createWorkerEngine({ model });
        const { modelBytes } = engine.info;
        await engine.dispose();
        return modelBytes;
      } catch (error) {
        return error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error);
      }
    };
    return {
      whole: await load(new File([bytes], 'tiny.gguf')),
      size: bytes.byteLength,
      cut: await load(new File([bytes.slice(0, bytes.byteLength - 4000)], 'cut.gguf')),
      header: await load(new File([bytes.slice(0, 300)], 'header.gguf')),
      empty: await load(new File([], 'empty.gguf')),
      checked: await load({ file: new File([bytes], 'tiny.gguf'), sha256 }),
      other: await load({ file: new File([bytes], 'tiny.gguf'), sha256: '0'.repeat(64) }),
    };
  }, sha256);
  expect(seen.whole).toBe(seen.size);
  expect(seen.cut).toMatch(/^invalid_model: .*cut short/);
  expect(seen.header).toMatch(/^invalid_model: .*cut short/);
  expect(seen.checked).toBe(seen.size);
  expect(seen.other).toMatch(/^integrity: .*expected 0{64}/);
  expect(seen.empty).toMatch(/^invalid_model: the file is empty/);
});

test('a file that cannot be read any more is no damaged model', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const said: string[] = [];
    const bytes = new Uint8Array(await (await fetch('/fixtures/tiny.gguf')).arrayBuffer());
    const drafter = new Uint8Array(await (await fetch('/fixtures/tiny.drafter.safetensors')).arrayBuffer());
    const folder = await navigator.storage.getDirectory();
    /** A file of the disk that has changed since it was handed out, as the user's may. */
    const changed = async (name: string, bytes: Uint8Array<ArrayBuffer>): Promise<File> => {
      const handle = await folder.getFileHandle(name, { create: true });
      const write = async (bytes: Uint8Array<ArrayBuffer>): Promise<void> => {
        const stream = await handle.createWritable();
        await stream.write(bytes);
        await stream.close();
      };
      await write(bytes);
      const file = await handle.getFile();
      await new Promise((resolve) => setTimeout(resolve, 1500));
      await write(bytes.slice(0, bytes.length - 1));
      return file;
    };
    const model = await changed('model.gguf', bytes);
    const late = await changed('drafter.safetensors', drafter);
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      for (const options of [{ model }, { model: { file: model, sha256: '0'.repeat(64) } }, { model: '/fixtures/tiny.gguf', drafter: late }]) {
        said.push(await redraft[make](options).then(() => 'loaded', (error: unknown) => (error instanceof redraft.RedraftError ? `${error.code}: ${error.message}` : String(error))));
      }
    }
    await folder.removeEntry('model.gguf');
    await folder.removeEntry('drafter.safetensors');
    return said;
  });
  expect(seen).toHaveLength(6);
  for (const said of seen) expect(said).toMatch(/^storage: .*cannot be read: .*since it was chosen\?$/);
});

test('a full disk is told before the download, or the model is kept in memory', async ({ blank, server }) => {
  const model = { url: `${PADDED}&quota`, sha256: padded };
  // Where the browser says how much it grants, nothing is fetched.
  const refused = await blank.evaluate(async (model) => {
    const { estimate } = navigator.storage;
    navigator.storage.estimate = () => Promise.resolve({ quota: 5_000_000, usage: 1_000_000 });
    const error: unknown = await redraft.createEngine({ model, cache: 'opfs' }).catch((thrown: unknown) => thrown);
    navigator.storage.estimate = estimate;
    return { code: error instanceof redraft.RedraftError ? error.code : '', message: String(error), kept: await redraft.listModels() };
  }, model);
  expect(refused).toMatchObject({ code: 'quota_exceeded', kept: [] });
  expect(refused.message).toMatch(/needs 20971520 bytes .* grants this site 4000000/);
  // A file of known size is not even asked for.
  const sized = { ...model, size: PAD };
  server.requests.length = 0;
  const unasked = await blank.evaluate(async (model) => {
    const { estimate } = navigator.storage;
    navigator.storage.estimate = () => Promise.resolve({ quota: 5_000_000, usage: 1_000_000 });
    const error: unknown = await redraft.createEngine({ model, cache: 'opfs' }).catch((thrown: unknown) => thrown);
    navigator.storage.estimate = estimate;
    return error instanceof redraft.RedraftError ? error.code : String(error);
  }, sized);
  expect(unasked).toBe('quota_exceeded');
  expect(server.requests.filter((request) => request.includes('tiny.gguf'))).toEqual([]);
  // Where it does not tell the truth, writing fails; browsers name that failure after the quota, or after the file.
  const session = await blank.context().newCDPSession(blank);
  await session.send('Storage.overrideQuotaForOrigin', { origin: server.origin, quotaSize: 12 << 20 });
  const strict = await blank.evaluate(tryLoad, { model, cache: 'opfs' as const });
  expect(strict.ok).toBe(false);
  expect(strict).toHaveProperty('code', expect.stringMatching(/^(quota_exceeded|storage)$/));
  // What is done otherwise than asked, the engine tells as soon as it is there; to the console only if nobody listens.
  const seen = await blank.evaluate(async (model) => {
    const results = [];
    const { warn } = console;
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      for (const listens of [true, false]) {
        const heard: string[] = [];
        const told: string[] = [];
        console.warn = (text: string) => told.push(text);
        const engine = await redraft[make]({ model, ...(listens && { onWarning: (text: string) => heard.push(text) }) });
        console.warn = warn;
        results.push({ listens, heard, told, warnings: engine.info.warnings });
        await engine.dispose();
      }
    }
    return { results, stores: (await redraft.listModels()).map((m) => m.store) };
  }, model);
  expect(seen.stores).toEqual(['memory']);
  expect(seen.results).toHaveLength(4);
  for (const [at, { listens, heard, told, warnings }] of seen.results.entries()) {
    // The second engine of a page finds the model in its memory; a worker has a memory of its own.
    const expected = at === 1 ? [] : [expect.stringContaining('memory only')];
    expect(warnings).toEqual(expected);
    expect(heard).toEqual(listens ? warnings : []);
    expect(told).toEqual(listens ? [] : warnings.map((text) => `redraft: ${text}`));
  }
});

test('a lost device is one error, and the next call answers as before', async ({ blank, context }) => {
  const seen = await blank.evaluate(async () => {
    const losses: string[] = [];
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf' });
    engine.on('lost', (message) => losses.push(message));
    const ask = async () => {
      const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true });
      return answer.choices[0].tokens.map((token) => token.id).join();
    };
    return { right: await ask(), count: devices.length, losses: losses.length };
  });
  expect(seen.count).toBe(1);
  // From the cache, not from the network.
  await context.route('**/*.gguf*', (route) => route.abort());
  const after = await blank.evaluate(async () => {
    const losses: string[] = [];
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf' });
    engine.on('lost', (message) => losses.push(message));
    const params = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true } as const;
    const ids = async () => (await engine.chat.completions.create(params)).choices[0].tokens.map((token) => token.id).join();
    const stream = await engine.chat.completions.create({ ...params, max_tokens: 300, stream: true });
    const errors: string[] = [];
    let tokens = 0;
    try {
      for await (const chunk of stream) {
        if (chunk.choices[0]?.token) tokens += 1;
        if (tokens === 3) devices.at(-1)?.destroy();
      }
    } catch (error) {
      errors.push(error instanceof redraft.RedraftError ? error.code : String(error));
    }
    const inAnswer = await ids();
    // Lost while idle: the next call does not notice.
    devices.at(-1)?.destroy();
    await new Promise((resolve) => setTimeout(resolve, 200));
    const idle = await ids();
    await engine.dispose();
    return { errors, inAnswer, idle, losses: losses.length, devices: devices.length };
  });
  expect(after).toEqual({ errors: ['device_lost'], inAnswer: seen.right, idle: seen.right, losses: 2, devices: 4 });
});

test('a device that is lost in a worker is one error, and the next call answers as before', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const source = `import { serveEngine } from '${location.origin}/dist/index.js';
      const devices = [];
      const { requestDevice } = GPUAdapter.prototype;
      GPUAdapter.prototype.requestDevice = async function (...given) {
        const device = await requestDevice.apply(this, given);
        devices.push(device);
        return device;
      };
      addEventListener('message', ({ data }) => { if (data === 'lose') devices.at(-1).destroy(); });
      serveEngine(self);`;
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
    const engine = await redraft.createWorkerEngine({ model: `${location.origin}/fixtures/tiny.gguf`, worker });
    const losses: string[] = [];
    engine.on('lost', (message) => losses.push(message));
    const params = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, ignore_eos: true } as const;
    const ids = async () => (await engine.chat.completions.create(params)).choices[0].tokens.map((token) => token.id).join();
    const right = await ids();
    const errors: string[] = [];
    let tokens = 0;
    try {
      for await (const chunk of await engine.chat.completions.create({ ...params, max_tokens: 300, stream: true })) {
        if (chunk.choices[0]?.token) tokens += 1;
        if (tokens === 3) worker.postMessage('lose');
      }
    } catch (error) {
      errors.push(error instanceof redraft.RedraftError ? error.code : String(error));
    }
    const inAnswer = [losses.length, (await ids()) === right];
    worker.postMessage('lose');
    await new Promise((resolve) => setTimeout(resolve, 200));
    const idle = [(await ids()) === right, losses.length];
    await engine.dispose();
    worker.terminate();
    return { errors, inAnswer, idle };
  });
  expect(seen).toEqual({ errors: ['device_lost'], inAnswer: [1, true], idle: [true, 2] });
});

test('a page keeps drawing while a worker works, however long one step of it takes', async ({ blank }) => {
  const BUSY = 5000;
  const seen = await blank.evaluate(async (busy) => {
    // As if one step of the load, such as packing a large tensor, took so many milliseconds.
    const slow = `const { submit } = GPUQueue.prototype;
      GPUQueue.prototype.submit = function (...given) {
        GPUQueue.prototype.submit = submit;
        for (const end = performance.now() + ${busy}; performance.now() < end; );
        return submit.apply(this, given);
      };`;
    const source = `import { serveEngine } from '${location.origin}/dist/index.js'; ${slow} serveEngine(self);`;
    const model = `${location.origin}/fixtures/tiny.gguf`;
    const longest = async (load: () => ReturnType<typeof redraft.createEngine>) => {
      let [last, most, took] = [performance.now(), 0, 0];
      let sampling = true;
      const frame = (): void => {
        const now = performance.now();
        [last, most] = [now, Math.max(most, now - last)];
        if (sampling) requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
      const start = last;
      const engine = await load();
      await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 4, ignore_eos: true });
      took = performance.now() - start;
      await new Promise((resolve) => requestAnimationFrame(resolve));
      sampling = false;
      await engine.dispose();
      return { most, took };
    };
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
    const inWorker = await longest(() => redraft.createWorkerEngine({ model, worker }));
    worker.terminate();
    (0, eval)(slow);
    return { inWorker, inPage: await longest(() => redraft.createEngine({ model })) };
  }, BUSY);
  // What the measure finds where the page does the work itself.
  expect(seen.inPage.most).toBeGreaterThanOrEqual(BUSY);
  expect(seen.inWorker.took).toBeGreaterThanOrEqual(BUSY);
  expect(seen.inWorker.most).toBeLessThan(BUSY / 2);
});

test('a worker of the app serves an engine too, and one that dies says so', async ({ blank, page, server }) => {
  const seen = await blank.evaluate(async () => {
    const source = `import { serveEngine } from '${location.origin}/dist/index.js'; serveEngine(self); addEventListener('message', (e) => { if (e.data === 'die') setTimeout(() => { throw new Error('died'); }); });`;
    const address = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    const worker = new Worker(address, { type: 'module' });
    const model = `${location.origin}/fixtures/tiny.gguf`;
    const engine = await redraft.createWorkerEngine({ model, worker });
    const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 3, ignore_eos: true });
    await engine.dispose();
    const again = await redraft.createWorkerEngine({ model, worker });
    const dying = again.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], ignore_eos: true });
    worker.postMessage('die');
    const error: unknown = await dying.catch((thrown: unknown) => thrown);
    worker.terminate();
    return { tokens: answer.usage.completion_tokens, code: error instanceof redraft.RedraftError ? error.code : String(error) };
  });
  expect(seen).toEqual({ tokens: 3, code: 'worker' });
  await openBlank(page, server);
});
