import { expect, test } from './support.ts';

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
