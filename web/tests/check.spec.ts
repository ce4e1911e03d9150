import { expect, test, tinyReference } from './support.ts';

/** The generated binding of the module, as far as it is called here. */
interface Module {
  default(options: { module_or_path: string }): Promise<unknown>;
  checkPath(path: string, progress: (share: number) => void): Promise<string>;
}

for (const path of ['plain', 'slices']) {
  test(`the start-up check passes for the kernels called ${path}`, async ({ blank }) => {
    const found = await blank.evaluate(async (path) => {
      const address = '/dist/wasm/redraft_wasm.js';
      const module = (await import(address)) as Module;
      await module.default({ module_or_path: '/dist/wasm/redraft_wasm_bg.wasm' });
      const shares: number[] = [];
      const wrong = await module.checkPath(path, (share) => shares.push(share));
      return { wrong, steps: shares.length, forward: shares.every((share, at) => at === 0 || share >= (shares[at - 1] ?? 0)) };
    }, path);
    expect(found.wrong).toBe('');
    expect(found.forward).toBe(true);
    // Every weight format, and the batches of a small built-in model.
    expect(found.steps).toBeGreaterThan(15);
  });
}

test('kernels that a driver gets wrong do not run: slower ones do, with a warning, and the check is made once', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    // An adapter that is no software one, as far as the package can tell, whose driver miscompiles some of the kernels.
    for (const name of ['vendor', 'architecture', 'description'] as const) Object.defineProperty(GPUAdapterInfo.prototype, name, { get: () => 'a GPU' });
    Object.defineProperty(GPUAdapterInfo.prototype, 'isFallbackAdapter', { get: () => false });
    const miscompiled = new Set<string>();
    const { createShaderModule } = GPUDevice.prototype;
    GPUDevice.prototype.createShaderModule = function (this: GPUDevice, descriptor: GPUShaderModuleDescriptor) {
      const { code, label = '' } = descriptor;
      const wrong = /^matmul\b.*\bslices$/.test(label) ? code.replace('return place.slice;', 'return place.slice + 1u;') : code;
      if (wrong !== code) miscompiled.add(label);
      return createShaderModule.call(this, { ...descriptor, code: wrong });
    };
    const load = async () => {
      const before = devices.length;
      const engine = await redraft.createEngine({ model: '/fixtures/tiny.gguf', kv: 'f32', onWarning: () => undefined });
      const answer = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 12, ignore_eos: true });
      const { path, warnings } = engine.info;
      await engine.dispose();
      return { path, warnings, ids: answer.choices[0].tokens.map((token) => token.id), devices: devices.length - before };
    };
    return { first: await load(), second: await load(), miscompiled: [...miscompiled] };
  });
  expect(seen.miscompiled.length).toBeGreaterThan(4);
  // Its own device, and one for the check of each family.
  expect([seen.first.devices, seen.second.devices]).toEqual([3, 1]);
  for (const { path, warnings } of [seen.first, seen.second]) {
    expect(path).toBe('plain');
    expect(warnings).toEqual([expect.stringMatching(/slower ones run in their place: .*matmul/)]);
  }
  const reference = tinyReference.find(({ prompt }) => prompt === 'Hello there');
  for (const { ids } of [seen.first, seen.second]) expect(ids).toEqual(reference?.greedy_ids.slice(0, 12));
});

/** The generated files of the package that choose kernels, as far as they are called here. */
interface Subgroups {
  requestSubgroups(): void;
}

test('devices have subgroups once they are asked for, in the page and in a worker', async ({ blank }) => {
  const seen = await blank.evaluate(async () => {
    const ask = async (features: GPUFeatureName[] = []) => {
      const adapter = await navigator.gpu.requestAdapter();
      const device = await adapter?.requestDevice({ requiredFeatures: features });
      const found = ['subgroups', ...features].filter((feature) => device?.features.has(feature));
      device?.destroy();
      return found.join();
    };
    const address = `${location.origin}/dist/subgroups.js`;
    const source = `import { requestSubgroups } from '${address}';
      const ask = ${String(ask)};
      const before = await ask();
      requestSubgroups();
      requestSubgroups();
      postMessage({ before, after: await ask(), more: await ask(['indirect-first-instance']) });`;
    const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
    const inWorker = await new Promise<unknown>((resolve, reject) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = ({ message }) => reject(new Error(message));
    });
    worker.terminate();
    const before = await ask();
    ((await import(address)) as Subgroups).requestSubgroups();
    const inPage = { before, after: await ask(), more: await ask(['indirect-first-instance']) };
    // An adapter without them is asked for nothing that it lacks.
    Object.defineProperty(GPUAdapter.prototype, 'features', { get: () => new Set() });
    return { inWorker, inPage, lacking: await ask() };
  });
  const found = { before: '', after: 'subgroups', more: 'subgroups,indirect-first-instance' };
  expect(seen).toEqual({ inWorker: found, inPage: found, lacking: '' });
});
