/**
 * Subgroups in browsers. The GPU layer underneath cannot ask for them yet, so the request is amended on its way: this
 * is the one place where the package touches a prototype of the browser, in the realm (page or worker) it runs in, and
 * only when an engine is about to use kernels that need subgroups.
 */
import type { Notes } from './notes.js';
import type { ProbeAdapter } from './probe.js';

/** Whether kernels with subgroups are used: `auto` where the adapter has them and a check of all kernels passed. */
export type SubgroupChoice = 'auto' | 'off';

export type PathName = 'plain' | 'broadcast' | 'slices' | 'shuffle' | 'slices16' | 'shuffle16';

/** What the model multiplies in; `f16` needs `shader-f16`. */
export type Precision = 'f32' | 'f16';

/** Lanes that the kernels need. */
const LANES = 8;

/** The families for an adapter: the one without subgroups, and the one with them where it can run. */
export function pathsFor(adapter: Pick<ProbeAdapter, 'software' | 'subgroups' | 'subgroupSizes'>, precision: Precision = 'f32'): { base: PathName; faster?: PathName } {
  const base = precision === 'f16' ? 'slices16' : adapter.software ? 'plain' : 'slices';
  const able = adapter.subgroups && adapter.subgroupSizes[0] >= LANES;
  if (!able) return { base };
  return { base, faster: precision === 'f16' ? 'shuffle16' : adapter.software ? 'broadcast' : 'shuffle' };
}

let patched = false;

/** Has every device of this realm made with subgroups where its adapter has them. */
export function requestSubgroups(): void {
  if (patched || typeof GPUAdapter === 'undefined') return;
  patched = true;
  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = function (this: GPUAdapter, descriptor: GPUDeviceDescriptor = {}) {
    const features = new Set<GPUFeatureName>(descriptor.requiredFeatures ?? []);
    if (this.features.has('subgroups')) features.add('subgroups');
    return request.call(this, { ...descriptor, requiredFeatures: [...features] });
  };
}

export interface ChooseOptions {
  readonly adapter: ProbeAdapter;
  readonly choice: SubgroupChoice;
  readonly precision?: Precision;
  readonly version: string;
  /** What the check found is kept for each adapter, browser and version of the package. */
  readonly memory: Notes;
  /** Runs the check; gives an empty text, or what is wrong. */
  readonly check: (path: PathName) => Promise<string>;
  readonly warn: (text: string) => void;
}

/** The family to run: that with subgroups only once its check has passed. */
export async function choosePath(options: ChooseOptions): Promise<PathName> {
  const { adapter, choice, precision, version, memory, check, warn } = options;
  const { base, faster } = pathsFor(adapter, precision);
  if (choice === 'off' || !faster) return base;
  const browser = typeof navigator === 'undefined' ? '' : navigator.userAgent;
  const key = [version, faster, adapter.vendor, adapter.architecture, adapter.description, browser].join('|');
  // Not being able to remember is no reason not to run.
  let found = await memory.get(key).catch(() => undefined);
  if (found === undefined) {
    requestSubgroups();
    found = await check(faster).catch((error: unknown) => `the check failed: ${String(error)}`);
    await memory.set(key, found).catch(() => undefined);
  }
  if (found !== '') {
    warn(`kernels with subgroups compute wrong results on this adapter and are not used: ${found}`);
    return base;
  }
  requestSubgroups();
  return faster;
}
