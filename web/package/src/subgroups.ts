/**
 * Subgroups in browsers. The GPU layer underneath cannot ask for them yet, so the request is amended on its way: this
 * is the one place where the package touches a prototype of the browser, in the realm (page or worker) it runs in, and
 * only when an engine is about to use kernels that need subgroups.
 */
import { RedraftError } from './errors.js';
import type { Notes } from './notes.js';
import type { ProbeAdapter } from './probe.js';

/** Whether kernels with subgroups are used: `auto` where the adapter has them and a check of all kernels passed. */
export type SubgroupChoice = 'auto' | 'off';

export type PathName = 'plain' | 'broadcast' | 'slices' | 'shuffle' | 'slices16' | 'shuffle16';

/** What the model multiplies in; `f16` needs `shader-f16`. */
export type Precision = 'f32' | 'f16';

const NEED_SUBGROUPS: ReadonlySet<PathName> = new Set(['broadcast', 'shuffle', 'shuffle16']);

/** Lanes that the kernels need. */
const LANES = 8;

/** The families for an adapter: the one without subgroups, and the one with them where it can run. */
export function pathsFor(adapter: Pick<ProbeAdapter, 'software' | 'subgroups' | 'subgroupSizes'>, precision: Precision = 'f32'): { base: PathName; faster?: PathName } {
  const base = precision === 'f16' ? 'slices16' : adapter.software ? 'plain' : 'slices';
  const able = adapter.subgroups && adapter.subgroupSizes[0] >= LANES;
  if (!able) return { base };
  return { base, faster: precision === 'f16' ? 'shuffle16' : adapter.software ? 'broadcast' : 'shuffle' };
}

/** How many want the request amended now. */
let wanted = 0;
let restore: (() => void) | undefined;

/** Has every device of this realm made with subgroups where its adapter has them, until what comes back is called. */
export function requestSubgroups(): () => void {
  if (typeof GPUAdapter === 'undefined') return () => undefined;
  if (wanted === 0) restore = amend();
  wanted += 1;
  let released = false;
  return () => {
    if (released) return;
    released = true;
    wanted -= 1;
    if (wanted === 0) restore?.();
  };
}

/** Amends the request; what comes back undoes it. */
function amend(): () => void {
  const request = GPUAdapter.prototype.requestDevice;
  let on = true;
  const amended: typeof request = function (this: GPUAdapter, descriptor = {}) {
    if (!on) return request.call(this, descriptor);
    const features = new Set<GPUFeatureName>(descriptor.requiredFeatures ?? []);
    if (this.features.has('subgroups')) features.add('subgroups');
    return request.call(this, { ...descriptor, requiredFeatures: [...features] });
  };
  GPUAdapter.prototype.requestDevice = amended;
  return () => {
    // What somebody else amended since is theirs; ours under it then asks for nothing.
    on = false;
    if (GPUAdapter.prototype.requestDevice === amended) GPUAdapter.prototype.requestDevice = request;
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

/**
 * The family to run. On a GPU none runs before a check of all its kernels has passed, once: drivers have bugs, and wrong
 * kernels answer with nonsense. Software adapters are tested where redraft is, and take long to check.
 */
export async function choosePath(options: ChooseOptions): Promise<PathName> {
  const { adapter, choice, precision, warn } = options;
  const { base, faster } = pathsFor(adapter, precision);
  if (choice === 'auto' && faster) {
    const wrong = await verdict(options, faster).catch((error: unknown) => `the check failed: ${String(error)}`);
    if (wrong === '') {
      // For good: the model may be loaded again after its device was lost.
      requestSubgroups();
      return faster;
    }
    warn(`kernels with subgroups compute wrong results on this adapter and are not used: ${wrong}`);
  }
  if (adapter.software) return base;
  const wrong = await verdict(options, base);
  if (wrong === '') return base;
  if (base === 'slices16') {
    throw new RedraftError('webgpu_unavailable', `precision 'f16' computes wrong results on this adapter: ${wrong}; leave precision out, or pass 'f32'; a newer driver or browser may help`);
  }
  const failing = await verdict(options, 'plain');
  if (failing !== '') {
    throw new RedraftError('webgpu_unavailable', `this adapter computes wrong results: ${failing}; a newer driver or browser may help`);
  }
  warn(`the usual kernels compute wrong results on this adapter, and slower ones run in their place: ${wrong}`);
  return 'plain';
}

/** What the check of a family found, now or in an earlier load: an empty text, or what is wrong. */
async function verdict({ adapter, version, memory, check }: ChooseOptions, path: PathName): Promise<string> {
  const browser = typeof navigator === 'undefined' ? '' : navigator.userAgent;
  const key = [version, path, adapter.vendor, adapter.architecture, adapter.description, browser].join('|');
  // Not being able to remember is no reason not to run.
  const known = await memory.get(key).catch(() => undefined);
  if (known !== undefined) return known;
  const release = NEED_SUBGROUPS.has(path) ? requestSubgroups() : undefined;
  const found = await check(path).finally(release);
  await memory.set(key, found).catch(() => undefined);
  return found;
}
