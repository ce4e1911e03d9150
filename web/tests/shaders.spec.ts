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

/** The same text with numbers of 32 bits where it has such of 16, so that all of it but the type is read by any browser. */
function widened(code: string): string {
  return code
    .replace(/^enable f16;\n/m, '')
    .replace(/\bf16\b/g, 'f32')
    .replace(/\b(vec[234]|mat[234]x[234])h\b/g, '$1f')
    .replace(/(\b\d[\d.]*(?:e[+-]?\d+)?)h\b/g, '$1f');
}

test('every variant of every kernel compiles in this browser', async ({ blank }) => {
  test.setTimeout(1_800_000);
  const lines = readFileSync(join(fixtures, 'shaders.jsonl'), 'utf8').trim().split('\n');
  const variants = lines.map((line) => JSON.parse(line) as Variant);
  expect(variants.length).toBeGreaterThan(300);
  expect(variants.some((variant) => variant.subgroups)).toBe(true);
  expect(variants.some((variant) => variant.f16)).toBe(true);
  const halves = variants.filter((variant) => variant.f16);
  for (const { label, code } of halves) expect(widened(code), label).not.toMatch(/f16|\b(vec|mat)\w*h\b|\b\d[\w.]*h\b/);
  const given = variants.map((variant) => ({ ...variant, widened: variant.f16 ? widened(variant.code) : '' }));
  const { refused, read, f16 } = await blank.evaluate(async (all) => {
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter?.features.has('subgroups')) throw new Error('the adapter has no subgroups');
    const f16 = adapter.features.has('shader-f16');
    const device = await adapter.requestDevice({ requiredFeatures: f16 ? ['subgroups', 'shader-f16'] : ['subgroups'] });
    const found: string[] = [];
    let read = 0;
    for (const { label, code: text, f16: half, widened } of all) {
      // Where the adapter has no f16, as SwiftShader, `tint` alone has read these as they are (crates/redraft-shaders).
      const code = half && !f16 ? widened : text;
      read += 1;
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
    return { refused: found, read, f16 };
  }, given);
  expect(refused).toEqual([]);
  expect(read).toBe(variants.length);
  const how = f16 ? `all ${variants.length} variants as they are` : `${variants.length - halves.length} variants as they are, ${halves.length} with f32 in place of f16, which this adapter lacks`;
  test.info().annotations.push({ type: 'compiled', description: how });
  console.log(`compiled: ${how}`);
});
