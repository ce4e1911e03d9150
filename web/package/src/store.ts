import { RedraftError } from './errors.js';

/** Where downloaded files are kept. */
export type StoreKind = 'opfs' | 'cache' | 'memory';

/**
 * Named pieces under a key, one key a file. Each piece is written whole: what an interrupted download left is whole
 * pieces, whatever the storage underneath.
 */
export interface Store {
  readonly kind: StoreKind;
  read(key: string, name: string): Promise<Blob | undefined>;
  write(key: string, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  keys(): Promise<string[]>;
  delete(key: string): Promise<void>;
}

const FOLDER = 'redraft';

/** Storage errors with what to do about them. */
function failed(error: unknown, doing: string): RedraftError {
  if (error instanceof RedraftError) return error;
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof DOMException && error.name === 'QuotaExceededError') {
    return new RedraftError('quota_exceeded', `${doing}: the browser's storage is full (${message}); free space or delete cached models`, { cause: error });
  }
  return new RedraftError('storage', `${doing}: ${message}`, { cause: error });
}

function isNotFound(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'NotFoundError';
}

/** The origin private file system: a folder a key, a file a piece. */
class OpfsStore implements Store {
  readonly kind = 'opfs';
  readonly #root: FileSystemDirectoryHandle;

  constructor(root: FileSystemDirectoryHandle) {
    this.#root = root;
  }

  async read(key: string, name: string): Promise<Blob | undefined> {
    try {
      const folder = await this.#root.getDirectoryHandle(key);
      return await (await folder.getFileHandle(name)).getFile();
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw failed(error, `reading ${name} from the file system of this site`);
    }
  }

  async write(key: string, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    try {
      const folder = await this.#root.getDirectoryHandle(key, { create: true });
      const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
      try {
        await file.write(bytes);
      } catch (error) {
        await file.abort().catch(() => undefined);
        throw error;
      }
      await file.close();
    } catch (error) {
      throw failed(error, `writing ${name} to the file system of this site`);
    }
  }

  async keys(): Promise<string[]> {
    const keys: string[] = [];
    try {
      for await (const [name, handle] of this.#root.entries()) if (handle.kind === 'directory') keys.push(name);
    } catch (error) {
      throw failed(error, 'listing the file system of this site');
    }
    return keys;
  }

  async delete(key: string): Promise<void> {
    try {
      await this.#root.removeEntry(key, { recursive: true });
    } catch (error) {
      if (!isNotFound(error)) throw failed(error, 'deleting a cached model');
    }
  }
}

/** The Cache API: a response a piece, under addresses that lead nowhere. */
class CacheStore implements Store {
  readonly kind = 'cache';
  readonly #cache: Cache;

  constructor(cache: Cache) {
    this.#cache = cache;
  }

  static address(key: string, name: string): string {
    return `https://redraft.invalid/${encodeURIComponent(key)}/${encodeURIComponent(name)}`;
  }

  async read(key: string, name: string): Promise<Blob | undefined> {
    try {
      return await (await this.#cache.match(CacheStore.address(key, name)))?.blob();
    } catch (error) {
      throw failed(error, `reading ${name} from the cache of this site`);
    }
  }

  async write(key: string, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    try {
      await this.#cache.put(CacheStore.address(key, name), new Response(bytes));
    } catch (error) {
      throw failed(error, `writing ${name} to the cache of this site`);
    }
  }

  async keys(): Promise<string[]> {
    try {
      const names = (await this.#cache.keys()).map((request) => new URL(request.url).pathname.split('/')[1] ?? '');
      return [...new Set(names.map(decodeURIComponent))];
    } catch (error) {
      throw failed(error, 'listing the cache of this site');
    }
  }

  async delete(key: string): Promise<void> {
    const prefix = CacheStore.address(key, '');
    try {
      const own = (await this.#cache.keys()).filter((request) => request.url.startsWith(prefix));
      await Promise.all(own.map((request) => this.#cache.delete(request)));
    } catch (error) {
      throw failed(error, 'deleting a cached model');
    }
  }
}

/** Blobs that live as long as the page; browsers may move large ones to disk. */
export class MemoryStore implements Store {
  readonly kind = 'memory';
  readonly #keys = new Map<string, Map<string, Blob>>();

  read(key: string, name: string): Promise<Blob | undefined> {
    return Promise.resolve(this.#keys.get(key)?.get(name));
  }

  write(key: string, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const names = this.#keys.get(key) ?? new Map<string, Blob>();
    this.#keys.set(key, names.set(name, new Blob([bytes])));
    return Promise.resolve();
  }

  keys(): Promise<string[]> {
    return Promise.resolve([...this.#keys.keys()]);
  }

  delete(key: string): Promise<void> {
    this.#keys.delete(key);
    return Promise.resolve();
  }
}

const memory = new MemoryStore();

async function openOpfs(): Promise<Store | undefined> {
  // Without `createWritable` (old Safari) a page can read this file system but not write to it.
  if (typeof FileSystemFileHandle === 'undefined' || !('createWritable' in FileSystemFileHandle.prototype)) return undefined;
  try {
    const root = await navigator.storage.getDirectory();
    return new OpfsStore(await root.getDirectoryHandle(FOLDER, { create: true }));
  } catch {
    return undefined;
  }
}

async function openCache(): Promise<Store | undefined> {
  try {
    // Where a page may not have them, as in a sandboxed frame, even asking throws.
    if (typeof caches === 'undefined') return undefined;
    return new CacheStore(await caches.open(FOLDER));
  } catch {
    return undefined;
  }
}

/** The store of a kind; an error where this browser, or its private window, does not have it. */
export async function openStore(kind: StoreKind): Promise<Store> {
  const store = kind === 'opfs' ? await openOpfs() : kind === 'cache' ? await openCache() : memory;
  if (store) return store;
  throw new RedraftError('storage', `this browser has no ${kind === 'opfs' ? 'origin private file system' : 'Cache API'} here (private windows and plain http lack it); choose another cache`);
}

/** The best store there is, and all of them for looking things up, best first. */
export async function openStores(): Promise<[Store, ...Store[]]> {
  const lasting = (await Promise.all([openOpfs(), openCache()])).filter((store) => store !== undefined);
  const [first, ...rest] = lasting;
  return first ? [first, ...rest, memory] : [memory];
}
