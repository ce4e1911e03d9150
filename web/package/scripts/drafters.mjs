// Writes src/drafters.ts: the drafters that the package ships, with sizes and hashes as their files have them.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

/** Known models (src/models.ts) and where their drafters lie, seen from this folder. */
export const DRAFTERS = { 'smollm2-135m': '../../../models/smollm2-135m-drafter/drafter.safetensors' };

/** The drafter's file, if it is one of ours: a header of JSON that says so, and all the bytes that it speaks of. */
export function read(path) {
  const file = new URL(path, import.meta.url);
  const bytes = readFileSync(file);
  const length = bytes.length < 8 ? Infinity : Number(bytes.readBigUInt64LE(0));
  const wrong = (what) => new Error(`${file.pathname} is no drafter of redraft: ${what}`);
  if (length > bytes.length - 8) throw wrong('its header is longer than the file');
  const { __metadata__: metadata, ...tensors } = JSON.parse(bytes.toString('utf8', 8, 8 + length));
  if (metadata?.redraft === undefined) throw wrong('its header does not speak of redraft');
  const end = Math.max(...Object.values(tensors).map(({ data_offsets: [, last] }) => last));
  if (8 + length + end !== bytes.length) throw wrong(`${bytes.length} bytes, its header speaks of ${8 + length + end}`);
  return bytes;
}

const entries = Object.entries(DRAFTERS).map(([name, path]) => {
  const bytes = read(path);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  // Written out like this, bundlers find the file and emit it; asked for only when it is loaded.
  const url = `new URL('./drafters/${name}.safetensors', import.meta.url).href`;
  return `  '${name}': {\n    get url() {\n      return ${url};\n    },\n    sha256: '${sha256}',\n    size: ${bytes.length},\n  },\n`;
});
const head = "// Made by scripts/drafters.mjs from the files in models/ of the repository.\nimport type { PinnedFile } from './models.js';\n\n";
const table = `/** Drafters of known models, by the model's name. */\nexport const DRAFTERS = {\n${entries.join('')}} as const satisfies Readonly<Record<string, PinnedFile>>;\n`;
writeFileSync(new URL('../src/drafters.ts', import.meta.url), head + table);
