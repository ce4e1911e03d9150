import { abortedError, throwIfAborted } from './errors.js';

/** Gives what `work` gives, or throws as soon as `signal` fires; `work` then goes on unheard. */
export async function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  throwIfAborted(signal);
  let stop: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(abortedError(signal));
    signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (stop) signal.removeEventListener('abort', stop);
    work.catch(() => undefined);
  }
}

/** A promise that settles when `signal` fires or `release` is called: what the module takes for a signal. */
export function settledOnAbort(signal: AbortSignal | undefined): { promise: Promise<void>; release: () => void } {
  let settle = (): void => undefined;
  const promise = new Promise<void>((resolve) => {
    settle = resolve;
  });
  if (signal?.aborted) settle();
  signal?.addEventListener('abort', settle);
  const release = (): void => {
    signal?.removeEventListener('abort', settle);
    settle();
  };
  return { promise, release };
}

/** Waits, unless `signal` fires. */
export async function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  try {
    await orAborted(wait, signal);
  } finally {
    clearTimeout(timer);
  }
}
