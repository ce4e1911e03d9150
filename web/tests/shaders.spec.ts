import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fixtures } from './server.ts';
import { expect, test } from './support.ts';

interface Variant {
  readonly label: string;
  readonly subgroups: boolean;
  readonly code: string;
}

test('every variant of every kernel compiles in this browser', async ({ blank }) => {
  test.setTimeout(1_800_000);
  const lines = readFileSync(join(fixtures, 'shaders.jsonl'), 'utf8').trim().split('\n');
  const variants = lines.map((line) => JSON.parse(line) as Variant);
  expect(variants.length).toBeGreaterThan(300);
  expect(variants.some((variant) => variant.subgroups)).toBe(true);
  const refused = await blank.evaluate(async (all: Variant[]) => {
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter?.features.has('subgroups')) throw new Error('the adapter has no subgroups');
    const device = await adapter.requestDevice({ requiredFeatures: ['subgroups'] });
    const found: string[] = [];
    for (const { label, code } of all) {
      device.pushErrorScope('validation');
      const module = device.createShaderModule({ label, code });
      const pipeline = device.createComputePipelineAsync({ label, layout: 'auto', compute: { module, entryPoint: 'main' } });
      const failure = await pipeline.then(() => undefined, (error: unknown) => String(error));
      const error = await device.popErrorScope();
      if (failure ?? error) found.push(`${label}: ${failure ?? error?.message ?? ''}`);
    }
    // A text that is wrong must be found out, or the list above means nothing.
    device.pushErrorScope('validation');
    device.createShaderModule({ code: 'fn main() { let x: u32 = 1.5; }' });
    if ((await device.popErrorScope()) === null) found.push('a wrong kernel compiled');
    device.destroy();
    return found;
  }, variants);
  expect(refused).toEqual([]);
});
