/** What kind of thing went wrong. Stable: code may switch over it. */
export type ErrorCode =
  /** The caller's `AbortSignal` fired. */
  | 'aborted'
  /** This browser has no WebGPU, or no adapter that redraft can use, or one that computes wrong. */
  | 'webgpu_unavailable'
  /** The GPU device is gone. The next call loads the model again from the cache. */
  | 'device_lost'
  /** Not enough GPU memory, or a limit of the adapter on it. */
  | 'out_of_memory'
  /** The model's file is damaged, or of a kind that is not supported. */
  | 'invalid_model'
  /** The drafter's file is damaged, or was made for another model. */
  | 'invalid_drafter'
  /** An argument that cannot be. */
  | 'invalid_request'
  /** A parameter of OpenAI's interface that redraft does not have. */
  | 'unsupported'
  /** The prompt does not fit the context. */
  | 'context_length_exceeded'
  /** The network failed, or the download ended early. */
  | 'network'
  /** The server answered with an error. */
  | 'http'
  /** What was downloaded is not what was expected. */
  | 'integrity'
  /** The browser grants too little storage. */
  | 'quota_exceeded'
  /** Storage failed, or a file of the user cannot be read. */
  | 'storage'
  /** The worker died or could not start. */
  | 'worker'
  /** The engine was disposed. */
  | 'disposed'
  /** A bug of redraft or of the browser. Where it ended the module, no engine of this page or worker goes on. */
  | 'internal';

/** Every code there is: one that `ErrorCode` has and this has not does not compile. */
export const CODES: Readonly<Record<ErrorCode, true>> = {
  aborted: true, webgpu_unavailable: true, device_lost: true, out_of_memory: true, invalid_model: true, invalid_drafter: true,
  invalid_request: true, unsupported: true, context_length_exceeded: true, network: true, http: true, integrity: true,
  quota_exceeded: true, storage: true, worker: true, disposed: true, internal: true,
};

/** Every error that the package throws. The message says what was expected, what was found and what to do. */
export class RedraftError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    // `AbortError` is what code written for `fetch` looks for.
    this.name = code === 'aborted' ? 'AbortError' : 'RedraftError';
    this.code = code;
  }
}

/** An error as it crosses to or from a worker. */
export interface WireError {
  readonly code: ErrorCode;
  readonly message: string;
}

export function toWire(error: unknown): WireError {
  const { code, message } = asRedraftError(error);
  return { code, message };
}

export function fromWire(error: WireError): RedraftError {
  return new RedraftError(error.code, error.message);
}

/** Whatever was thrown, as one of ours: the module's errors carry a `code`, anything else is a bug. */
export function asRedraftError(error: unknown): RedraftError {
  if (error instanceof RedraftError) return error;
  if (isUnreadable(error)) return new RedraftError('storage', `a file cannot be read: ${error.message}; was it moved or changed since it was chosen?`, { cause: error });
  if (error instanceof Error) return new RedraftError(codeOf(error) ?? 'internal', error.message, { cause: error });
  return new RedraftError('internal', String(error), { cause: error });
}

/** The code of an error that the package or its module made; nothing of another. */
export function codeOf(error: Error): ErrorCode | undefined {
  return 'code' in error && typeof error.code === 'string' && Object.hasOwn(CODES, error.code) ? (error.code as ErrorCode) : undefined;
}

/** What browsers throw where bytes of a file are not there any more, or may not be read any more. */
function isUnreadable(error: unknown): error is DOMException {
  return error instanceof DOMException && (error.name === 'NotReadableError' || error.name === 'NotFoundError');
}

/** The bytes of a file or of a part of it; `what` names it where it cannot be read. */
export async function bytesOf(blob: Blob, what: string): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await blob.arrayBuffer());
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new RedraftError('storage', `${what} cannot be read: ${message}; was the file moved or changed since it was chosen?`, { cause: error });
  }
}

export function abortedError(signal: AbortSignal): RedraftError {
  return new RedraftError('aborted', 'the operation was aborted', { cause: signal.reason });
}

export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortedError(signal);
}
