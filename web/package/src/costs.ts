/**
 * What steps and rounds cost on an adapter, kept between visits: an automatic choice of speculation needs it, and
 * measuring takes about a second on a GPU and many on a software adapter.
 */
import type { Notes } from './notes.js';
import type { ProbeAdapter } from './probe.js';
import { Sha256 } from './sha256.js';
import type { ModuleInfo } from './wasm.js';

/** Bytes at the beginning and at the end of a file that tell it from others. */
const EDGE = 64 << 10;

/** What costs depend on. */
export interface CostSetting {
  readonly version: string;
  readonly adapter: Pick<ProbeAdapter, 'vendor' | 'architecture' | 'description'>;
  readonly info: Pick<ModuleInfo, 'adapter' | 'path' | 'context'>;
  readonly kv: string;
  readonly model: Blob;
  readonly drafter: Blob | undefined;
}

/** All that costs depend on, as the key of a note. A new version of the browser may compile kernels to other code. */
export async function costsKey({ version, adapter, info, kv, model, drafter }: CostSetting): Promise<string> {
  const browser = typeof navigator === 'undefined' ? '' : navigator.userAgent;
  const files = await Promise.all([model, drafter].map((file) => file && identity(file)));
  const { vendor, architecture, description } = adapter;
  return JSON.stringify([version, browser, vendor, architecture, description, info.adapter, info.path, info.context, kv, ...files.map((file) => file ?? null)]);
}

/** Size, beginning and end: shapes and types of tensors stand there, and no two models have the same. */
async function identity(file: Blob): Promise<string> {
  const edges = [file.slice(0, EDGE), file.slice(Math.max(0, file.size - EDGE))];
  const hash = new Sha256();
  for (const edge of edges) hash.update(new Uint8Array(await edge.arrayBuffer()));
  return `${file.size}-${hash.hex()}`;
}

/** An engine that costs can be given to; it throws for what are none. */
export interface CostTaker {
  setCosts(json: string): void;
}

/** Gives the engine the costs that are kept under `key`; whether there were any. What cannot be used is measured again. */
export async function recallCosts(notes: Notes, key: string, engine: CostTaker): Promise<boolean> {
  try {
    const kept = await notes.get(key);
    if (kept === undefined) return false;
    engine.setCosts(kept);
    return true;
  } catch {
    // Storage failed, or something else wrote there: only a measurement is lost.
    return false;
  }
}
