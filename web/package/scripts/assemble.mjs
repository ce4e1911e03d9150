// Puts the module beside the compiled TypeScript, and holds it to its budget.
import { cpSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

/** Bytes that the module may take on its way, compressed as servers do it. */
const BUDGET = 1_500_000;

const from = new URL('../src/wasm/', import.meta.url);
const to = new URL('../dist/wasm/', import.meta.url);
for (const file of ['redraft_wasm.js', 'redraft_wasm.d.ts', 'redraft_wasm_bg.wasm']) cpSync(new URL(file, from), new URL(file, to));
const wasm = readFileSync(new URL('redraft_wasm_bg.wasm', to));
const packed = gzipSync(wasm, { level: 9 }).length;
console.log(`redraft_wasm_bg.wasm: ${wasm.length} bytes, ${packed} compressed, of ${BUDGET} allowed`);
if (packed > BUDGET) {
  console.error('the module is over its budget: see what grew, for instance with twiggy');
  process.exit(1);
}
