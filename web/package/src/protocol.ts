/** What passes between a page and a worker. */
import type { EngineInfo, LoadOptions } from './backend.js';
import { RedraftError, type WireError } from './errors.js';
import type { LoadProgress } from './progress.js';
import { VERSION } from './version.js';
import type { AnswerReport, AnswerRequest, TokenReport } from './wasm.js';

/** From the page. Every call has a number, which its answers carry. */
export type ToWorker =
  | { readonly type: 'load'; readonly id: number; readonly options: LoadOptions }
  | { readonly type: 'answer'; readonly id: number; readonly request: AnswerRequest }
  | { readonly type: 'encode'; readonly id: number; readonly text: string }
  | { readonly type: 'dispose'; readonly id: number }
  | { readonly type: 'abort'; readonly id: number };

/** What a call gives in the end. */
export type Outcome =
  | { readonly kind: 'loaded'; readonly info: EngineInfo }
  | { readonly kind: 'answer'; readonly report: AnswerReport; readonly info: EngineInfo }
  | { readonly kind: 'tokens'; readonly tokens: readonly number[] }
  | { readonly kind: 'disposed' };

/** From the worker. */
export type FromWorker =
  /** The call was taken. Who gets the lock of this name, where there are locks, knows that the worker is no more. */
  | { readonly type: 'alive'; readonly lock: string | undefined }
  | { readonly type: 'progress'; readonly progress: LoadProgress }
  | { readonly type: 'warning'; readonly text: string }
  | { readonly type: 'lost'; readonly message: string }
  | { readonly type: 'token'; readonly id: number; readonly token: TokenReport }
  | { readonly type: 'done'; readonly id: number; readonly outcome: Outcome }
  | { readonly type: 'failed'; readonly id: number; readonly error: WireError };

/** Marks our messages among whatever else an app's own worker sends and hears. */
const MARK = 'redraft';

export interface Envelope<T> {
  readonly mark: typeof MARK;
  /** Of the package that wrote it. */
  readonly version: string;
  /** Which of the engines of the page it is of. */
  readonly client: string;
  readonly body: T;
}

export function seal<T>(client: string, body: T): Envelope<T> {
  return { mark: MARK, version: VERSION, client, body };
}

/** Our message in what came, if it is one; `body` is as promised only if the version is ours. */
export function open<T>(data: unknown): Envelope<T> | undefined {
  const ours = typeof data === 'object' && data !== null && 'mark' in data && data.mark === MARK && 'body' in data && 'client' in data && 'version' in data;
  return ours ? (data as Envelope<T>) : undefined;
}

/** Page and worker were built from two versions of the package. */
export function versions(other: string): RedraftError {
  return new RedraftError('worker', `page and worker are of two versions of redraft, ${VERSION} and ${other}; build both from one, and reload the page without its cache`);
}
