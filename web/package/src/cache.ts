import { RedraftError, throwIfAborted } from './errors.js';
import { type Manifest, download, forget, held, keyOf, readManifest } from './download.js';
import {
  type LocalModel, type ModelFile, type ModelSpec, type RemoteModel, checkHash, checkRemote, drafterName, identityOf, isLocal, knownModel, pageAddress, resolveFile,
} from './models.js';
import type { ProgressMeter } from './progress.js';
import { sha256OfBlob } from './sha256.js';
import { type Store, type StoreKind, openStore, openStores } from './store.js';

/** Where models are kept: `auto` takes the best there is and falls back to memory where the browser grants too little. */
export type CacheChoice = 'auto' | StoreKind;

/** A file of the cache. */
export interface CachedModel {
  readonly url: string;
  /** Bytes of the whole file. */
  readonly size: number;
  readonly sha256?: string;
  /** Of a known model its name, of a drafter that came with one `name/drafter`, whatever version of the package it is of. */
  readonly name?: string;
  /** False for what an interrupted download left. */
  readonly complete: boolean;
  readonly store: StoreKind;
}

/** All files that were downloaded, in any of the stores of this browser. */
export async function listModels(): Promise<CachedModel[]> {
  const found: CachedModel[] = [];
  for await (const { store, manifest } of files(await openStores())) {
    const { url, size, sha256, name, complete } = manifest;
    found.push({ url, size, complete, store: store.kind, ...(sha256 !== undefined && { sha256 }), ...(name !== undefined && { name }) });
  }
  return found;
}

async function* files(stores: readonly Store[]): AsyncGenerator<{ store: Store; key: string; manifest: Manifest }> {
  for (const store of stores) {
    for (const key of await store.keys()) {
      const manifest = await readManifest(store, key);
      if (manifest) yield { store, key, manifest };
    }
  }
}

/** Whether a model is in the cache as a whole, so that it loads without the network. */
export async function hasModel(model: RemoteModel): Promise<boolean> {
  const file = resolveFile(checkRemote(model), pageAddress());
  for (const store of await openStores()) if (await held(store, file)) return true;
  return false;
}

/**
 * Deletes a model, or what an interrupted download of it left, from all stores: what has the hash, if there is one, and
 * what came from the address without another; of a known model the drafter too, and what earlier versions of the package
 * knew by its name. Takes the entries of {@link listModels} as they are.
 */
export async function deleteModel(model: RemoteModel): Promise<void> {
  checkRemote(model);
  const stores = await openStores();
  const known = knownModel(model);
  const drafter = known?.drafter;
  const doomed = [model, ...(drafter ? [drafter] : [])].map((file) => resolveFile(file, pageAddress()));
  for (const store of stores) for (const file of doomed) await store.delete(keyOf(file));
  const names = known ? [known.name, drafterName(known.name)] : [];
  for await (const { store, key, manifest } of files(stores)) {
    const named = manifest.name !== undefined && names.includes(manifest.name);
    if (named || doomed.some((file) => isOf(manifest, file))) await store.delete(key);
  }
}

/** Whether what is kept, maybe not whole yet, came from the address of the file and has no other hash. */
function isOf(kept: Manifest, file: ModelFile): boolean {
  return kept.url === file.url && (kept.sha256 === undefined || file.sha256 === undefined || kept.sha256 === file.sha256);
}

/**
 * Deletes drafters that other versions of the package brought for the same model, once its own is there. Models stay: they
 * are large, and two pages of one site may want two.
 */
async function forgetSuperseded(file: ModelFile): Promise<void> {
  const name = identityOf(file.sha256);
  if (name === undefined || knownModel(name)) return;
  try {
    for await (const { store, key, manifest } of files(await openStores())) {
      if (manifest.name === name && key !== keyOf(file)) await forget(store, key);
    }
  } catch {
    // Only room is lost, and the next load tries again.
  }
}

/**
 * Deletes a download that turned out to be of no use, unless its hash says that it is what it should be: otherwise the next
 * load would find the same bytes again, though the server has better ones by now. Whether there was one.
 */
export async function dropUseless(spec: ModelSpec): Promise<boolean> {
  if (isLocal(spec)) return false;
  const file = resolveFile(spec, pageAddress());
  if (file.sha256 !== undefined) return false;
  let dropped = false;
  for (const store of await openStores()) {
    if (!(await readManifest(store, keyOf(file)))) continue;
    await store.delete(keyOf(file));
    dropped = true;
  }
  return dropped;
}

/** Refuses what the browser will not store, before it is downloaded. */
async function checkQuota(bytes: number): Promise<void> {
  if (bytes === 0 || typeof navigator === 'undefined' || navigator.storage?.estimate === undefined) return;
  const room = async (): Promise<number> => {
    const { quota, usage } = await navigator.storage.estimate();
    return quota === undefined ? Infinity : quota - (usage ?? 0);
  };
  if ((await room()) >= bytes) return;
  // Sites that may persist are granted more in some browsers.
  await navigator.storage.persist?.().catch(() => false);
  const left = await room();
  if (left < bytes) {
    throw new RedraftError('quota_exceeded', `the model needs ${bytes} bytes of storage, the browser grants this site ${Math.max(0, left)} more; free disk space, delete cached models, or load with cache: 'memory'`);
  }
}

export interface FetchOptions {
  readonly cache: CacheChoice;
  readonly meter: ProgressMeter;
  readonly magic?: string;
  readonly signal?: AbortSignal | undefined;
  /** Told what was done otherwise than asked. */
  readonly warn: (text: string) => void;
}

/** The bytes of a model: from the cache, from the network into the cache, or the caller's own file. */
export async function openModel(spec: ModelSpec, options: FetchOptions): Promise<Blob> {
  if (isLocal(spec)) return openLocal(spec, options);
  const file = resolveFile(spec, pageAddress());
  const blob = await openRemote(file, options);
  await forgetSuperseded(file);
  return blob;
}

async function openRemote(file: ModelFile, options: FetchOptions): Promise<Blob> {
  const { cache, meter, magic, signal, warn } = options;
  const heard = meter.file(file.size ?? 0);
  const stores = cache === 'auto' ? await openStores() : ([await openStore(cache)] as const);
  for (const store of stores) {
    const blob = await held(store, file).catch((error: unknown) => {
      // There may be others, and writing to this one tells.
      if (cache === 'auto' && isOfStorage(error)) return undefined;
      throw error;
    });
    if (blob) {
      heard('cache', blob.size, blob.size);
      return blob;
    }
  }
  const into = (store: Store): Promise<Blob> =>
    download({
      file,
      store,
      signal,
      heard,
      ...(magic !== undefined && { magic }),
      ...(store.kind !== 'memory' && { admit: checkQuota }),
    });
  let full = false;
  const failures: string[] = [];
  for (const store of stores) {
    // All lasting stores of a site share what the browser grants it.
    if (full && store.kind !== 'memory') continue;
    if (failures.length > 0 && store.kind === 'memory') warn(`the model is kept in memory only and will be downloaded again: ${failures.join('; ')}`);
    try {
      return await into(store);
    } catch (error) {
      if (cache !== 'auto' || store.kind === 'memory' || !isOfStorage(error)) throw error;
      full = error.code === 'quota_exceeded';
      failures.push(error.message);
      await store.delete(keyOf(file)).catch(() => undefined);
    }
  }
  // Not reached: memory is the last of the stores, and gives or throws.
  throw new RedraftError('internal', 'no store took the model');
}

function isOfStorage(error: unknown): error is RedraftError {
  return error instanceof RedraftError && (error.code === 'quota_exceeded' || error.code === 'storage');
}

/** A file of the user: checked where its hash is given. */
async function openLocal(spec: Blob | LocalModel, { meter, signal }: FetchOptions): Promise<Blob> {
  const [file, expected] = spec instanceof Blob ? [spec, undefined] : [spec.file, checkHash(spec.sha256)];
  if (file.size === 0) throw new RedraftError('invalid_model', 'the file is empty');
  if (expected === undefined) return file;
  const heard = meter.file(file.size);
  let read = 0;
  const found = await sha256OfBlob(file, (bytes) => {
    throwIfAborted(signal);
    read += bytes;
    heard('cache', read, file.size);
  });
  if (found !== expected) {
    throw new RedraftError('integrity', `the file has sha256 ${found}, expected ${expected}; it is another file, or damaged`);
  }
  return file;
}
