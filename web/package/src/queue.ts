interface Waiting<T> {
  readonly resolve: (result: IteratorResult<T, undefined>) => void;
  readonly reject: (error: unknown) => void;
}

/** Values that come one by one; several readers share them, each value goes to one. */
export class AsyncQueue<T> implements AsyncIterableIterator<T> {
  readonly #values: T[] = [];
  readonly #waiting: Waiting<T>[] = [];
  #ended: { error?: unknown } | undefined;
  readonly #onReturn: () => void;

  /** `onReturn` is called when the reader stops before the end. */
  constructor(onReturn: () => void) {
    this.#onReturn = onReturn;
  }

  push(value: T): void {
    if (this.#ended) return;
    const waiting = this.#waiting.shift();
    if (waiting) waiting.resolve({ done: false, value });
    else this.#values.push(value);
  }

  end(): void {
    this.#finish({});
  }

  fail(error: unknown): void {
    this.#finish({ error });
  }

  next(): Promise<IteratorResult<T, undefined>> {
    const value = this.#values.shift();
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.#ended) {
      const { error } = this.#ended;
      // An error is told once.
      this.#ended = {};
      return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
    }
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  return(): Promise<IteratorResult<T, undefined>> {
    if (!this.#ended) this.#onReturn();
    this.#values.length = 0;
    this.#finish({});
    this.#ended = {};
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #finish(how: { error?: unknown }): void {
    if (this.#ended) return;
    this.#ended = how;
    const [first, ...others] = this.#waiting.splice(0);
    if (!first) return;
    this.#ended = {};
    if (how.error === undefined) first.resolve({ done: true, value: undefined });
    else first.reject(how.error);
    for (const other of others) other.resolve({ done: true, value: undefined });
  }
}
