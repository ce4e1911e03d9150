// Puts the module and the drafters beside the compiled TypeScript, and holds the module to its budget.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { DRAFTERS, read } from './drafters.mjs';

/** Bytes that the module may take on its way, compressed as servers do it. */
const BUDGET = 1_500_000;

const from = new URL('../src/wasm/', import.meta.url);
const to = new URL('../dist/wasm/', import.meta.url);
for (const file of ['redraft_wasm.js', 'redraft_wasm.d.ts', 'redraft_wasm_bg.wasm']) cpSync(new URL(file, from), new URL(file, to));
mkdirSync(new URL('../dist/drafters/', import.meta.url));
for (const [name, path] of Object.entries(DRAFTERS)) {
  const bytes = read(path);
  writeFileSync(new URL(`../dist/drafters/${name}.safetensors`, import.meta.url), bytes);
  console.log(`drafters/${name}.safetensors: ${bytes.length} bytes`);
}
const wasm = readFileSync(new URL('redraft_wasm_bg.wasm', to));
const packed = gzipSync(wasm, { level: 9 }).length;
console.log(`redraft_wasm_bg.wasm: ${wasm.length} bytes, ${packed} compressed, of ${BUDGET} allowed`);
if (packed > BUDGET) {
  console.error('the module is over its budget: see what grew, for instance with twiggy');
  process.exit(1);
}
