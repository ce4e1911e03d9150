import { createHash } from 'node:crypto';
import { afterEach, expect, test, vi } from 'vitest';
import { PIECE, cached, download, keyOf, readManifest } from '../src/download.js';
import { RedraftError } from '../src/errors.js';
import { MemoryStore } from '../src/store.js';

/** Two whole pieces and a rest. */
const BYTES = Uint8Array.from({ length: 2 * PIECE + 1000 }, (_, i) => (i * 31 + (i >> 9)) & 255);
BYTES.set(new TextEncoder().encode('GGUF'));
const SHA256 = createHash('sha256').update(BYTES).digest('hex');
const URL_ = 'https://models.test/a.gguf';
const FILE = { url: URL_, sha256: SHA256, size: BYTES.length };

interface Behaviour {
  /** Breaks off after so many bytes: by an error, or by a quiet end. */
  readonly breakAfter?: number;
  readonly how?: 'error' | 'end' | 'silence';
  /** Sends ranges from so many bytes before where they were asked for. */
  readonly early?: number;
  /** Says how long the file is. */
  readonly sized?: boolean;
  readonly ranges?: boolean;
  readonly status?: number;
  readonly etag?: string;
  readonly bytes?: Uint8Array;
}

/** A server that behaves like the first of `behaviours`, then like the next; the last goes on for ever. */
function serve(...behaviours: Behaviour[]): string[] {
  const asked: string[] = [];
  vi.stubGlobal('fetch', (_: string, init: RequestInit = {}) => {
    const { breakAfter, how = 'error', ranges = true, sized = true, status, etag, early = 0, bytes = BYTES } = behaviours[Math.min(asked.length, behaviours.length - 1)] ?? {};
    const range = new Headers(init.headers).get('Range');
    asked.push(range ?? 'all');
    if (status !== undefined) return Promise.resolve(new Response('no', { status }));
    const from = ranges && range ? Number(/\d+/.exec(range)?.[0]) - early : 0;
    const body = bytes.subarray(from);
    let at = 0;
    const stream = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (init.signal?.aborted) return controller.error(init.signal.reason);
        if (at >= Math.min(body.length, breakAfter ?? Infinity)) {
          if (at < body.length && how === 'silence') return new Promise<void>(() => undefined);
          if (at < body.length && how === 'error') return controller.error(new TypeError('connection reset'));
          return controller.close();
        }
        const end = Math.min(at + 300_000, body.length, breakAfter ?? Infinity);
        controller.enqueue(body.slice(at, end));
        at = end;
      },
    });
    const headers = { ...(from > 0 && { 'Content-Range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` }), ...(sized && { 'Content-Length': String(body.length) }), ...(etag !== undefined && { ETag: etag }) };
    return Promise.resolve(new Response(stream, { status: from > 0 ? 206 : 200, headers }));
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

const retries = [0, 0];
const options = (store: MemoryStore, more: object = {}) => ({ file: FILE, store, retries, magic: 'GGUF', ...more });

async function code(work: Promise<unknown>): Promise<string> {
  const error = await work.then(() => undefined, (thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(RedraftError);
  return error instanceof RedraftError ? error.code : '';
}

async function whole(blob: Blob): Promise<boolean> {
  return Buffer.from(await blob.arrayBuffer()).equals(BYTES);
}

test('a download is kept and not made again', async () => {
  const asked = serve({});
  const store = new MemoryStore();
  const heard: number[] = [];
  const blob = await download(options(store, { heard: (_: string, loaded: number) => heard.push(loaded) }));
  expect(await whole(blob)).toBe(true);
  expect(heard.at(-1)).toBe(BYTES.length);
  expect([...heard].sort((a, b) => a - b)).toEqual(heard);
  expect((await download(options(store))).size).toBe(BYTES.length);
  expect(asked).toEqual(['all']);
  expect(await readManifest(store, keyOf(FILE))).toMatchObject({ complete: true, size: BYTES.length, sha256: SHA256 });
});

test('what broke off is taken up where it broke off', async () => {
  for (const how of ['error', 'end'] as const) {
    const asked = serve({ breakAfter: PIECE + 700_000, how }, {});
    const blob = await download(options(new MemoryStore()));
    expect(await whole(blob)).toBe(true);
    expect(asked).toEqual(['all', `bytes=${PIECE + 700_000}-`]);
  }
});

test('a later download takes up whole pieces of an earlier one', async () => {
  const store = new MemoryStore();
  serve({ breakAfter: 2 * PIECE + 10 }, { status: 503 });
  expect(await code(download(options(store)))).toBe('network');
  expect(await cached(store, keyOf(FILE))).toBeUndefined();
  const asked = serve({});
  expect(await whole(await download(options(store)))).toBe(true);
  expect(asked).toEqual([`bytes=${2 * PIECE}-`]);
});

test('a server without ranges sends everything again', async () => {
  const asked = serve({ breakAfter: PIECE + 5 }, { ranges: false });
  expect(await whole(await download(options(new MemoryStore())))).toBe(true);
  expect(asked).toHaveLength(2);
});

test('another part than the one that was asked for is not taken', async () => {
  const asked = serve({ breakAfter: PIECE + 5 }, { early: 5 }, {});
  expect(await whole(await download(options(new MemoryStore())))).toBe(true);
  expect(asked).toEqual(['all', `bytes=${PIECE + 5}-`, 'all']);
  // One that does so whatever it is asked is given up.
  vi.stubGlobal('fetch', () => Promise.resolve(new Response('GGUF', { status: 206, headers: { 'Content-Range': 'bytes 7-10/11' } })));
  await expect(download(options(new MemoryStore()))).rejects.toMatchObject({ code: 'network', message: expect.stringContaining('bytes 7-10/11 where those from 0 on') });
});

test('a file that changed in between is fetched from its beginning', async () => {
  const asked = serve({ breakAfter: PIECE + 5, etag: '"a"' }, { etag: '"b"' }, { etag: '"b"' });
  expect(await whole(await download(options(new MemoryStore())))).toBe(true);
  expect(asked).toEqual(['all', `bytes=${PIECE + 5}-`, 'all']);
});

test('a damaged download is refused and forgotten', async () => {
  const damaged = BYTES.slice();
  damaged[PIECE + 17]! ^= 1;
  serve({ bytes: damaged });
  const store = new MemoryStore();
  expect(await code(download(options(store)))).toBe('integrity');
  expect(await store.keys()).toEqual([]);
});

test('a truncated download is no download', async () => {
  serve({ breakAfter: 5000, how: 'end' }, { bytes: BYTES.subarray(0, 5000), breakAfter: 0, how: 'end' });
  expect(await code(download(options(new MemoryStore(), { file: { url: URL_ } })))).toBe('network');
});

test('another size than that of a known file is another file', async () => {
  serve({ bytes: BYTES.subarray(0, 5000) });
  expect(await code(download(options(new MemoryStore())))).toBe('integrity');
});

test('without a hash the length counts, and the hash is noted', async () => {
  serve({});
  const store = new MemoryStore();
  const file = { url: URL_ };
  await download(options(store, { file }));
  expect((await readManifest(store, keyOf(file)))?.sha256).toBe(SHA256);
  expect(keyOf(file)).not.toBe(keyOf(FILE));
});

test('errors of the server: named at once, or tried again where that may help', async () => {
  let asked = serve({ status: 404 });
  expect(await code(download(options(new MemoryStore())))).toBe('http');
  expect(asked).toHaveLength(1);
  asked = serve({ status: 503 }, { status: 503 }, {});
  expect((await download(options(new MemoryStore()))).size).toBe(BYTES.length);
  expect(asked).toHaveLength(3);
  asked = serve({ status: 503 });
  expect(await code(download(options(new MemoryStore())))).toBe('network');
  expect(asked).toHaveLength(3);
});

test('what is no GGUF file is refused by its first bytes', async () => {
  serve({ bytes: new TextEncoder().encode('<!doctype html> this is not the model').slice() });
  expect(await code(download(options(new MemoryStore(), { file: { url: URL_ } })))).toBe('invalid_model');
});

test('storage that is too small is named before a byte is stored', async () => {
  const asked = serve({});
  const store = new MemoryStore();
  const sizes: number[] = [];
  const admit = (bytes: number): Promise<void> => {
    sizes.push(bytes);
    return Promise.reject(new RedraftError('quota_exceeded', 'full'));
  };
  expect(await code(download(options(store, { admit })))).toBe('quota_exceeded');
  expect(sizes).toEqual([BYTES.length]);
  expect(asked, 'a file of known size is not even asked for').toEqual([]);
  expect(await code(download(options(store, { admit, file: { url: URL_ } })))).toBe('quota_exceeded');
  expect(sizes).toEqual([BYTES.length, BYTES.length]);
  expect(await store.keys()).toEqual([]);
});

test('aborting ends a download and keeps what came', async () => {
  serve({});
  const store = new MemoryStore();
  const controller = new AbortController();
  const heard = (_: string, loaded: number): void => {
    if (loaded > PIECE + 100) controller.abort();
  };
  expect(await code(download(options(store, { signal: controller.signal, heard })))).toBe('aborted');
  const asked = serve({});
  await download(options(store));
  expect(asked).toEqual([`bytes=${PIECE}-`]);
  expect(await code(download(options(new MemoryStore(), { signal: AbortSignal.abort() })))).toBe('aborted');
});

test('an empty answer is no file', async () => {
  serve({ bytes: new Uint8Array(0) });
  const store = new MemoryStore();
  expect(await code(download(options(store, { file: { url: URL_ } })))).toBe('invalid_model');
  expect(await store.keys()).toEqual([]);
});

test('a download of unknown size that broke off starts over, and is not taken for whole', async () => {
  const store = new MemoryStore();
  const file = { url: URL_ };
  let asked = serve({ breakAfter: PIECE + 10, sized: false }, { status: 503 });
  expect(await code(download(options(store, { file })))).toBe('network');
  expect(await cached(store, keyOf(file))).toBeUndefined();
  asked = serve({ sized: false });
  expect(await whole(await download(options(store, { file })))).toBe(true);
  expect(asked).toEqual(['all']);
});

test('a server that falls silent is given up and asked again', async () => {
  let asked = serve({ breakAfter: PIECE + 5, how: 'silence' }, {});
  expect(await whole(await download(options(new MemoryStore(), { patience: 1000 })))).toBe(true);
  expect(asked).toEqual(['all', `bytes=${PIECE + 5}-`]);
  asked = serve({ how: 'silence', breakAfter: 0 });
  await expect(download(options(new MemoryStore(), { patience: 20 }))).rejects.toMatchObject({ code: 'network', message: expect.stringContaining('no byte came for 0.02 s') });
  expect(asked).toHaveLength(3);
  // One that does not even begin to answer.
  vi.stubGlobal('fetch', (_: string, { signal }: RequestInit) => new Promise((__, reject) => signal?.addEventListener('abort', () => reject(signal.reason))));
  await expect(download(options(new MemoryStore(), { patience: 20 }))).rejects.toMatchObject({ code: 'network', message: expect.stringContaining('cannot be reached') });
});

test('a piece that storage lost is not taken for a file', async () => {
  serve({});
  const store = new MemoryStore();
  await download(options(store));
  await store.write(keyOf(FILE), 'part-00001', new Uint8Array(5));
  expect(await cached(store, keyOf(FILE))).toBeUndefined();
  const asked = serve({});
  expect(await whole(await download(options(store)))).toBe(true);
  expect(asked).toEqual([`bytes=${PIECE}-`]);
});
