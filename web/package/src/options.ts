/** What `createEngine` and `createWorkerEngine` are given, checked before anything is done with it. */
import type { LoadOptions } from './backend.js';
import { U32, fieldsOf, invalid, oneOf, onlyKnown, shown, signalOf, text, wholeNumber } from './checks.js';
import type { EngineOptions } from './engine.js';
import { type ModelSpec, checkSpec } from './models.js';
import type { LoadProgress } from './progress.js';

/** Every option there is: one that `EngineOptions` has and this has not does not compile. */
const KNOWN: Readonly<Record<keyof EngineOptions, true>> = {
  model: true, drafter: true, context: true, kv: true, precision: true, cache: true, memoryLimit: true, subgroups: true, wasmUrl: true, signal: true, onProgress: true, onWarning: true,
};

export interface CheckedOptions {
  /** Only what crosses to a worker. */
  readonly load: LoadOptions;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: LoadProgress) => void) | undefined;
  readonly onWarning: ((text: string) => void) | undefined;
  readonly worker: Worker | undefined;
}

type AllOptions = { readonly [K in keyof Required<LoadOptions>]: LoadOptions[K] | undefined };

/** The options, or an error that says which of them cannot be. */
export function checkOptions(given: unknown, ofWorker: boolean): CheckedOptions {
  const options = fieldsOf('the argument', given, "an object such as { model: 'smollm2-135m' }");
  onlyKnown('the argument', options, new Set([...Object.keys(KNOWN), ...(ofWorker ? ['worker'] : [])]));
  const { model, drafter, memoryLimit, onProgress, onWarning, worker } = options;
  if (model === undefined) throw invalid('model is missing: give a name, an address or a File');
  const context = wholeNumber('context', options['context'], 1, U32);
  const kv = oneOf('kv', options['kv'], ['f16', 'f32']);
  const precision = oneOf('precision', options['precision'], ['f32', 'f16']);
  const cache = oneOf('cache', options['cache'], ['auto', 'opfs', 'cache', 'memory']);
  const subgroups = oneOf('subgroups', options['subgroups'], ['auto', 'off']);
  // No limit is what there is without one.
  const limit = memoryLimit === Infinity ? undefined : wholeNumber('memoryLimit', memoryLimit, 1);
  const wasmUrl = options['wasmUrl'] === undefined ? undefined : text('wasmUrl', options['wasmUrl']);
  if (!isListener<LoadProgress>(onProgress)) throw invalid(`onProgress must be a function, found ${shown(onProgress)}`);
  if (!isListener<string>(onWarning)) throw invalid(`onWarning must be a function, found ${shown(onWarning)}`);
  if (worker !== undefined && !isWorker(worker)) throw invalid(`worker must be a Worker, found ${shown(worker)}`);
  // Nor may what crosses to a worker lack one.
  const load: AllOptions = {
    model: checkSpec('model', model),
    drafter: drafter === undefined || drafter === false ? drafter : drafterOf(drafter),
    context, kv, precision, cache, memoryLimit: limit, subgroups, wasmUrl,
  };
  return { load: present(load), signal: signalOf(options['signal']), onProgress, onWarning, worker };
}

/** The same without the fields that nobody gave. */
function present(load: AllOptions): LoadOptions {
  return Object.fromEntries(Object.entries(load).filter(([, value]) => value !== undefined)) as unknown as LoadOptions;
}

function drafterOf(drafter: unknown): ModelSpec {
  if (drafter === null || drafter === true) throw invalid(`drafter must be false, a name, an address or a File, found ${shown(drafter)}; leave it out for the one of a known model`);
  return checkSpec('drafter', drafter);
}

const isListener = <T>(value: unknown): value is ((told: T) => void) | undefined => value === undefined || typeof value === 'function';

function isWorker(value: unknown): value is Worker {
  return typeof value === 'object' && value !== null && 'postMessage' in value && 'addEventListener' in value && 'terminate' in value;
}
