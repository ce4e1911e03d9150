import { expect, test } from './support.ts';

/** Three pieces of the cache. */
const PAD = 20 << 20;

test('a load can be aborted in each of its phases, and then loads', async ({ blank }) => {
  const seen = await blank.evaluate(async (pad) => {
    const results: Record<string, string> = {};
    for (const phase of ['download', 'compile', 'upload'] as const) {
      for (const make of ['createEngine', 'createWorkerEngine'] as const) {
        const controller = new AbortController();
        const model = `/fixtures/tiny.gguf?pad=${pad}&slow=20&abort=${phase}${make}`;
        const load = redraft[make]({
          model,
          signal: controller.signal,
          onProgress: (progress) => {
            if (progress.phase === phase) controller.abort();
          },
        });
        const error: unknown = await load.then(() => 'loaded', (thrown: unknown) => thrown);
        results[`${phase} ${make}`] = error instanceof redraft.RedraftError ? `${error.code} ${error.name}` : String(error);
      }
    }
    // What is kept already is looked at in a phase of its own.
    const kept = `/fixtures/tiny.gguf?pad=${pad}&kept`;
    await (await redraft.createEngine({ model: kept })).dispose();
    for (const make of ['createEngine', 'createWorkerEngine'] as const) {
      const controller = new AbortController();
      const load = redraft[make]({ model: kept, signal: controller.signal, onProgress: ({ phase }) => phase === 'cache' && controller.abort() });
      const error: unknown = await load.then(() => 'loaded', (thrown: unknown) => thrown);
      results[`cache ${make}`] = error instanceof redraft.RedraftError ? `${error.code} ${error.name}` : String(error);
    }
    const before: unknown = await redraft.createEngine({ model: '/fixtures/tiny.gguf', signal: AbortSignal.abort() }).catch((thrown: unknown) => thrown);
    results['before'] = before instanceof redraft.RedraftError ? before.code : String(before);
    const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf' });
    await engine.dispose();
    // What an aborted worker was about to fetch is free for the next.
    await (await redraft.createWorkerEngine({ model: `/fixtures/tiny.gguf?pad=${pad}&slow=20&abort=downloadcreateWorkerEngine` })).dispose();
    // What an aborted load had allocated is freed.
    const lost = await Promise.all(devices.map((device) => Promise.race([device.lost.then(() => true), new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 2000))])));
    return { results, lost };
  }, PAD);
  const { before, ...rest } = seen.results;
  expect(before).toBe('aborted');
  expect(rest).toEqual(Object.fromEntries(Object.keys(rest).map((key) => [key, 'aborted AbortError'])));
  expect(Object.keys(rest)).toHaveLength(8);
  expect(seen.lost.every(Boolean)).toBe(true);
});

test('a load can be aborted while its kernels are checked, and the next one checks them again', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    /** An adapter that is no software one, as far as the package can tell. */
    const disguise = `for (const name of ['vendor', 'architecture', 'description']) Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => 'a GPU' });
      Object.defineProperty(GPUAdapterInfo.prototype, 'isFallbackAdapter', { get: () => false });`;
    const source = `import { serveEngine } from '${location.origin}/dist/index.js'; ${disguise} serveEngine(self);`;
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
    (0, eval)(disguise);
    const model = `${location.origin}/fixtures/tiny.gguf`;
    const found = [];
    // The worker first: what is found out is kept for all of the site.
    for (const make of [(more: object) => redraft.createWorkerEngine({ model, worker, ...more }), (more: object) => redraft.createEngine({ model, ...more })]) {
      const controller = new AbortController();
      const load = make({ signal: controller.signal, onProgress: ({ phase }: { phase: string }) => phase === 'check' && controller.abort() });
      const error: unknown = await load.then(() => 'loaded', (thrown: unknown) => thrown);
      const notes = await (await navigator.storage.getDirectory()).getDirectoryHandle('redraft').then((folder) => folder.getDirectoryHandle('checks')).then(() => true, () => false);
      found.push([error instanceof redraft.RedraftError ? error.code : String(error), notes]);
    }
    const engine = await redraft.createEngine({ model });
    const { path } = engine.info;
    await engine.dispose();
    worker.terminate();
    return { found, path };
  });
  expect(seen).toEqual({ found: [['aborted', false], ['aborted', false]], path: 'slices' });
});

test('an answer can be aborted in its prompt and in its middle, and the next one is right', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    /** Counts what is given to the GPU; a worker of the app does so too, and tells. */
    const count = `globalThis.submits = 0; const { submit } = GPUQueue.prototype;
      GPUQueue.prototype.submit = function (...given) { globalThis.submits += 1; return submit.apply(this, given); };`;
    const source = `import { serveEngine } from '${location.origin}/dist/index.js'; ${count} serveEngine(self);
      addEventListener('message', ({ data }) => { if (data === 'submits') postMessage({ submits: globalThis.submits }); });`;
    (0, eval)(count);
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
    const ofWorker = () =>
      new Promise<number>((resolve) => {
        const hear = ({ data }: MessageEvent<{ submits?: number }>): void => {
          if (typeof data.submits !== 'number') return;
          worker.removeEventListener('message', hear);
          resolve(data.submits);
        };
        worker.addEventListener('message', hear);
        worker.postMessage('submits');
      });
    const ofPage = () => Promise.resolve((globalThis as unknown as { submits: number }).submits);
    const model = `${location.origin}/fixtures/tiny.gguf`;
    const results = [];
    for (const [load, submits] of [[() => redraft.createEngine({ model }), ofPage], [() => redraft.createWorkerEngine({ model, worker }), ofWorker]] as const) {
      const engine = await load();
      const ask = async (signal?: AbortSignal, content = 'hi', max_tokens = 12) => {
        const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content }], max_tokens, ignore_eos: true, ...(signal && { signal }) });
        return answer.choices[0].tokens.map((token) => token.id);
      };
      const right = await ask();
      const code = async (work: Promise<unknown>) => work.then(() => 'none', (error: unknown) => (error instanceof redraft.RedraftError ? error.code : String(error)));
      /** What `work` costs the GPU, and a short answer after it, which waits for what is left of it. */
      const cost = async (work: () => Promise<unknown>) => {
        const before = await submits();
        await work();
        await ask();
        return (await submits()) - before;
      };
      const whole = await cost(() => ask(undefined, 'hi', 200));
      let inPrompt = '';
      const promptCost = await cost(async () => {
        const controller = new AbortController();
        const long = ask(controller.signal, 'word '.repeat(80), 200);
        setTimeout(() => controller.abort(), 5);
        inPrompt = await code(long);
      });
      let inMiddle = '';
      let tokens = 0;
      const middleCost = await cost(async () => {
        const stream = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 200, ignore_eos: true, stream: true });
        const read = async () => {
          for await (const chunk of stream) {
            if (chunk.choices[0]?.token) tokens += 1;
            if (tokens === 3) stream.abort();
          }
        };
        inMiddle = await code(read());
      });
      const waiting = new AbortController();
      const [busy, waited] = await Promise.all([ask(), code((setTimeout(() => waiting.abort(), 1), ask(waiting.signal)))]);
      const same = [busy, await ask()].every((ids) => ids.join() === right.join());
      // Disposing ends what runs.
      const before = await submits();
      const running = code(engine.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 400, ignore_eos: true }));
      await engine.dispose();
      const disposalCost = (await submits()) - before;
      results.push({ said: { inPrompt, inMiddle, tokens, waited, same, running: await running }, whole, aborted: [promptCost, middleCost, disposalCost] });
    }
    worker.terminate();
    return results;
  });
  for (const { said, whole, aborted } of seen) {
    expect(said).toEqual({ inPrompt: 'aborted', inMiddle: 'aborted', tokens: 3, waited: 'aborted', same: true, running: 'aborted' });
    expect(whole).toBeGreaterThanOrEqual(200);
    // A fourth of it is more than what a short answer takes, and what is under way when the abort comes.
    for (const cost of aborted) expect(cost).toBeLessThan(whole / 4);
  }
});
