import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fixtures } from './server.ts';
import { expect, test } from './support.ts';

interface Variant {
  readonly label: string;
  readonly subgroups: boolean;
  readonly f16: boolean;
  readonly code: string;
}

test('every variant of every kernel compiles in this browser', async ({ blank }) => {
  test.setTimeout(1_800_000);
  const lines = readFileSync(join(fixtures, 'shaders.jsonl'), 'utf8').trim().split('\n');
  const variants = lines.map((line) => JSON.parse(line) as Variant);
  expect(variants.length).toBeGreaterThan(300);
  expect(variants.some((variant) => variant.subgroups)).toBe(true);
  expect(variants.some((variant) => variant.f16)).toBe(true);
  const refused = await blank.evaluate(async (all: Variant[]) => {
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter?.features.has('subgroups')) throw new Error('the adapter has no subgroups');
    const f16 = adapter.features.has('shader-f16');
    const device = await adapter.requestDevice({ requiredFeatures: f16 ? ['subgroups', 'shader-f16'] : ['subgroups'] });
    const found: string[] = [];
    for (const { label, code, f16: half } of all) {
      // Where the adapter has no f16, as SwiftShader, `tint` alone has read these (crates/redraft-shaders).
      if (half && !f16) continue;
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
