import { orAborted, sleep } from './abort.js';
import { RedraftError, asRedraftError, bytesOf, throwIfAborted } from './errors.js';
import { type ModelFile, identityOf } from './models.js';
import { Sha256 } from './sha256.js';
import type { Store } from './store.js';

/** Bytes of a piece in the cache: what an interrupted download loses at most. */
export const PIECE = 8 << 20;
/** Milliseconds without a byte after which a download is taken for broken off. */
const PATIENCE = 60_000;
/** Waits before a failed download is taken up again, in milliseconds. */
const RETRIES = [500, 1500, 4000];
const MANIFEST = 'manifest.json';

/** What the cache knows of a file. */
export interface Manifest {
  readonly version: 1;
  readonly url: string;
  /** 0 while it is not known. */
  readonly size: number;
  readonly sha256?: string;
  /** What the file is of the known models (`identityOf`). */
  readonly name?: string;
  readonly etag?: string;
  readonly complete: boolean;
}

export interface DownloadOptions {
  readonly file: ModelFile;
  readonly store: Store;
  readonly signal?: AbortSignal | undefined;
  /** First bytes that the file must have, as text. */
  readonly magic?: string;
  /** Called once with what is to come: before it is asked for where the size is known, else before the first byte is taken. Throws to refuse. */
  readonly admit?: (bytes: number) => Promise<void>;
  readonly heard?: (phase: 'cache' | 'download', loaded: number, total: number) => void;
  /** In place of the waits between attempts; for tests. */
  readonly retries?: readonly number[];
  /** In place of the longest wait for a byte, in milliseconds; for tests. */
  readonly patience?: number;
}

/** The place of a file in the cache: its hash where it is known, else that of its address. */
export function keyOf(file: ModelFile): string {
  return file.sha256 ?? `url-${new Sha256().update(new TextEncoder().encode(file.url)).hex()}`;
}

export async function readManifest(store: Store, key: string): Promise<Manifest | undefined> {
  const blob = await store.read(key, MANIFEST);
  if (!blob) return undefined;
  try {
    const value: unknown = JSON.parse(await blob.text());
    const known = typeof value === 'object' && value !== null && 'version' in value && value.version === 1 && 'url' in value && typeof value.url === 'string';
    const sized = known && 'size' in value && typeof value.size === 'number' && Number.isSafeInteger(value.size) && value.size >= 0;
    return sized ? (value as Manifest) : undefined;
  } catch {
    // Written only half: as good as absent.
    return undefined;
  }
}

async function writeManifest(store: Store, key: string, manifest: Manifest): Promise<void> {
  await store.write(key, MANIFEST, new TextEncoder().encode(JSON.stringify(manifest)));
}

const pieceName = (index: number): string => `part-${String(index).padStart(5, '0')}`;

/** The whole file from the cache, if all of it is there. */
export async function cached(store: Store, key: string): Promise<Blob | undefined> {
  const manifest = await readManifest(store, key);
  if (!manifest?.complete || manifest.size === 0) return undefined;
  const pieces: Blob[] = [];
  for (let at = 0; at < manifest.size; at += PIECE) {
    const piece = await store.read(key, pieceName(at / PIECE));
    if (piece?.size !== Math.min(PIECE, manifest.size - at)) return undefined;
    pieces.push(piece);
  }
  // Refers to the pieces, copies nothing.
  return new Blob(pieces);
}

/**
 * The same, also where the file was asked for without its hash then, and turned out to have it, or is asked for without it
 * now, and what came from the address with one is here.
 */
export async function held(store: Store, file: ModelFile): Promise<Blob | undefined> {
  const blob = await cached(store, keyOf(file));
  if (blob) return blob;
  if (file.sha256 !== undefined) {
    const byAddress = keyOf({ url: file.url });
    return (await readManifest(store, byAddress))?.sha256 === file.sha256 ? cached(store, byAddress) : undefined;
  }
  for (const key of await store.keys()) {
    const manifest = await readManifest(store, key);
    const found = manifest?.complete === true && manifest.url === file.url ? await cached(store, key) : undefined;
    if (found) return found;
  }
  return undefined;
}

/** The file, from the cache or the network; what an earlier attempt left is used. One download of a file at a time. */
export async function download(options: DownloadOptions): Promise<Blob> {
  const key = keyOf(options.file);
  const run = async (): Promise<Blob> => (await cached(options.store, key)) ?? new Download(options, key).run();
  if (typeof navigator === 'undefined' || !('locks' in navigator)) return run();
  const { signal } = options;
  throwIfAborted(signal);
  // Other tabs and workers of the site wait here, and then find the file in the cache.
  const lock = navigator.locks.request(lockName(options.store, key), { ...(signal && { signal }) }, run);
  return orAborted(lock, signal) as Promise<Blob>;
}

const lockName = (store: Store, key: string): string => `redraft/${store.kind}/${key}`;

/** Deletes a file from the cache, unless somebody is downloading it just now. */
export async function forget(store: Store, key: string): Promise<void> {
  if (typeof navigator === 'undefined' || !('locks' in navigator)) return store.delete(key);
  await navigator.locks.request(lockName(store, key), { ifAvailable: true }, (lock) => (lock ? store.delete(key) : undefined));
}

const silent = (milliseconds: number): Error => new Error(`no byte came for ${milliseconds / 1000} s`);

/** Where the part of a file begins that came; other sites need not let pages know. */
function rangeStart(response: Response): number | undefined {
  const start = /^bytes (\d+)-/.exec(response.headers.get('Content-Range') ?? '')?.[1];
  return start === undefined ? undefined : Number(start);
}

/** Gives what `work` gives, or throws if that takes longer. */
async function inTime<T>(work: Promise<T>, milliseconds: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(silent(milliseconds)), milliseconds);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** One file under way. */
class Download {
  readonly #options: DownloadOptions;
  readonly #key: string;
  #hash = new Sha256();
  /** Bytes that are in the cache, whole pieces. */
  #stored = 0;
  /** Bytes behind them. */
  #tail = new Uint8Array(0);
  #size: number | undefined;
  #etag: string | undefined;
  #admitted = false;

  constructor(options: DownloadOptions, key: string) {
    this.#options = options;
    this.#key = key;
    this.#size = options.file.size;
  }

  async run(): Promise<Blob> {
    const { file, store, signal, retries = RETRIES } = this.#options;
    await this.#resume();
    for (let failures = 0; ; failures += 1) {
      throwIfAborted(signal);
      const before = this.#loaded;
      try {
        await this.#attempt();
        break;
      } catch (thrown) {
        throwIfAborted(signal);
        const error = asRedraftError(thrown);
        // As long as each attempt brings something, patience does not end.
        if (this.#loaded > before) failures = 0;
        const wait = retries[failures];
        if (error.code !== 'network' || wait === undefined) throw error;
        await sleep(wait, signal);
      }
    }
    const sha256 = this.#hash.hex();
    if (file.sha256 !== undefined && sha256 !== file.sha256) {
      await store.delete(this.#key);
      throw new RedraftError('integrity', `${file.url} has sha256 ${sha256}, expected ${file.sha256}; it was changed, or damaged on the way, and is not used`);
    }
    await writeManifest(store, this.#key, { ...this.#manifest(), sha256, complete: true });
    const blob = await cached(store, this.#key);
    if (blob) return blob;
    throw new RedraftError('storage', `${file.url} was stored but cannot be read back`);
  }

  get #loaded(): number {
    return this.#stored + this.#tail.length;
  }

  /** Takes over the pieces of an earlier attempt. */
  async #resume(): Promise<void> {
    const { file, store, signal, heard } = this.#options;
    const manifest = await readManifest(store, this.#key);
    // The sizes differ where the file has changed; a known hash would tell in the end, an address alone would not. Where no
    // size was told, nothing says where the file ends.
    if (!manifest || manifest.size === 0 || manifest.url !== file.url || (file.size !== undefined && manifest.size !== file.size)) {
      await store.delete(this.#key);
      return;
    }
    this.#size = manifest.size;
    this.#etag = manifest.etag;
    for (;;) {
      throwIfAborted(signal);
      const piece = await store.read(this.#key, pieceName(this.#stored / PIECE));
      if (piece?.size !== Math.min(PIECE, manifest.size - this.#stored) || piece.size === 0) break;
      this.#hash.update(await bytesOf(piece, 'what is kept of an earlier download'));
      this.#stored += piece.size;
      heard?.('cache', this.#stored, manifest.size);
      if (this.#stored % PIECE !== 0) break;
    }
  }

  #manifest(): Manifest {
    const { file } = this.#options;
    const name = identityOf(file.sha256);
    return {
      version: 1,
      url: file.url,
      size: this.#size ?? 0,
      ...(name !== undefined && { name }),
      ...(this.#etag !== undefined && { etag: this.#etag }),
      complete: false,
    };
  }

  async #restart(): Promise<void> {
    await this.#options.store.delete(this.#key);
    this.#hash = new Sha256();
    this.#stored = 0;
    this.#tail = new Uint8Array(0);
    this.#size = this.#options.file.size;
    this.#etag = undefined;
  }

  /** Asks for what is missing and takes what comes. */
  async #attempt(): Promise<void> {
    const { file, signal, heard, patience = PATIENCE } = this.#options;
    if (this.#size !== undefined && this.#loaded === this.#size) return;
    if (this.#size !== undefined) await this.#admit(this.#size - this.#loaded);
    const from = this.#loaded;
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(silent(patience)), patience);
    let response: Response;
    try {
      response = await fetch(file.url, {
        signal: signal ? AbortSignal.any([signal, silence.signal]) : silence.signal,
        ...(from > 0 && { headers: { Range: `bytes=${from}-` } }),
      });
    } catch (error) {
      throw new RedraftError('network', `${file.url} cannot be reached: ${String(error)}; is the network up, and does the server allow this site (CORS)?`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
    const etag = response.headers.get('ETag') ?? undefined;
    const length = Number(response.headers.get('Content-Length') ?? Number.NaN);
    // A compressed answer states its compressed length.
    const encoded = response.headers.get('Content-Encoding') !== null;
    const behind = response.status === 206 ? from : 0;
    const total = response.ok && Number.isFinite(length) && !encoded ? behind + length : undefined;
    if (response.status === 206 && (rangeStart(response) ?? from) !== from) {
      await response.body?.cancel();
      await this.#restart();
      throw new RedraftError('network', `${file.url}: the server sent the bytes ${response.headers.get('Content-Range')} where those from ${from} on were asked for; it is fetched again`);
    }
    const differs = (was: unknown, is: unknown): boolean => was !== undefined && is !== undefined && was !== is;
    const moved = from > 0 && (differs(this.#etag, etag) || (differs(this.#size, total) && file.size === undefined));
    if (response.status === 416 || moved) {
      await response.body?.cancel();
      await this.#restart();
      throw new RedraftError('network', `${file.url} changed while it was downloaded; it is fetched again`);
    }
    if (!response.ok) {
      await response.body?.cancel();
      const retry = response.status >= 500 || response.status === 429;
      throw new RedraftError(retry ? 'network' : 'http', `${file.url}: the server answered ${response.status} ${response.statusText}; ${retry ? 'try again later' : 'is the address right, and may everybody read it?'}`);
    }
    // A server that knows no ranges sends the whole file again.
    if (from > 0 && response.status !== 206) await this.#restart();
    this.#etag ??= etag;
    this.#expect(total);
    try {
      await this.#admit((this.#size ?? 0) - this.#loaded);
    } catch (error) {
      await response.body?.cancel();
      throw error;
    }
    heard?.('download', this.#loaded, this.#size ?? 0);
    await this.#take(response);
  }

  async #admit(bytes: number): Promise<void> {
    if (this.#admitted) return;
    this.#admitted = true;
    await this.#options.admit?.(bytes);
  }

  /** What the server says of the size must be what is known of it. */
  #expect(total: number | undefined): void {
    const { file } = this.#options;
    if (total === undefined) return;
    if (file.size !== undefined && total !== file.size) {
      throw new RedraftError('integrity', `${file.url} has ${total} bytes, expected ${file.size}; it is another file`);
    }
    this.#size = total;
  }

  async #take(response: Response): Promise<void> {
    const { file, signal, heard, patience = PATIENCE } = this.#options;
    const reader = (response.body ?? new Blob().stream()).getReader();
    // One piece is filled in place, so that memory holds a piece and what the network hands over.
    const piece = new Uint8Array(PIECE);
    piece.set(this.#tail);
    let filled = this.#tail.length;
    const keep = (): void => {
      this.#tail = piece.slice(0, filled);
    };
    try {
      for (;;) {
        const { done, value } = await inTime(reader.read(), patience).catch((error: unknown) => {
          keep();
          throwIfAborted(signal);
          throw new RedraftError('network', `${file.url}: the download broke off after ${this.#loaded} bytes: ${String(error)}`, { cause: error });
        });
        if (done) break;
        if (this.#size !== undefined && this.#stored + filled + value.length > this.#size) {
          throw new RedraftError('integrity', `${file.url} sends more than its ${this.#size} bytes`);
        }
        for (let at = 0; at < value.length; ) {
          const part = value.subarray(at, at + PIECE - filled);
          piece.set(part, filled);
          filled += part.length;
          at += part.length;
          if (this.#stored === 0) this.#checkMagic(piece, filled);
          if (filled === PIECE) {
            await this.#store(piece);
            filled = 0;
          }
        }
        heard?.('download', this.#stored + filled, this.#size ?? this.#stored + filled);
      }
      keep();
    } catch (error) {
      await reader.cancel().catch(() => undefined);
      throw error;
    }
    if (this.#size === undefined ? this.#loaded === 0 : this.#size === 0) {
      throw new RedraftError('invalid_model', `${file.url} is empty: the server sent no byte`);
    }
    if (this.#size !== undefined && this.#loaded < this.#size) {
      throw new RedraftError('network', `${file.url} ended after ${this.#loaded} of ${this.#size} bytes; the download was cut short`);
    }
    this.#size = this.#loaded;
    if (this.#tail.length > 0) {
      const rest = this.#tail;
      await this.#store(rest);
    }
  }

  async #store(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const { store } = this.#options;
    if (this.#stored === 0) await writeManifest(store, this.#key, this.#manifest());
    await store.write(this.#key, pieceName(Math.floor(this.#stored / PIECE)), bytes);
    this.#hash.update(bytes);
    this.#stored += bytes.length;
    this.#tail = new Uint8Array(0);
  }

  #checkMagic(piece: Uint8Array, filled: number): void {
    const { magic, file } = this.#options;
    if (magic === undefined || filled < magic.length) return;
    const found = String.fromCharCode(...piece.subarray(0, magic.length));
    if (found !== magic) {
      throw new RedraftError('invalid_model', `${file.url} does not begin with ${magic}: it is no such file (a page of text, or a pointer to the file, perhaps)`);
    }
  }
}
