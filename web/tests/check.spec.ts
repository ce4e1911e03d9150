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
