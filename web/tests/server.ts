/** Serves the package, the demo and models to the tests, and misbehaves on request. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { existsSync, readFileSync, statSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { modelsFolder } from '../demo/models.ts';

const web = fileURLToPath(new URL('..', import.meta.url));

export const fixtures = process.env['REDRAFT_WEB_FIXTURES'] ?? join(web, '.build/fixtures');

/** Where `cargo xtask setup` puts the default model. */
export const models = modelsFolder();

/** The built package. */
export const dist = join(web, 'package/dist');

const FOLDERS: Record<string, string> = {
  dist,
  fixtures,
  demo: join(web, 'demo/dist'),
  models,
};

const TYPES: Record<string, string> = {
  '.css': 'text/css', '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json', '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm', '.webmanifest': 'application/manifest+json',
};

const PAGE = `<!doctype html><html lang="en"><title>redraft tests</title><link rel="icon" href="data:,">
<script type="module">import * as redraft from '/dist/index.js'; globalThis.redraft = redraft;</script>`;

export interface TestServer {
  readonly origin: string;
  /** Paths with queries and ranges, in the order they came. */
  readonly requests: string[];
  close(): void;
}

/** What a query may ask for: `pad` and `flip` change the file, the others how it is sent. */
interface Fault {
  /** Appends zeros up to so many bytes. */
  readonly pad: number;
  /** Changes the byte at this offset. */
  readonly flip: number | undefined;
  /** Breaks the connection after so many bytes of every answer from the start of the file. */
  readonly drop: number | undefined;
  /** Answers ranges with the whole file. */
  readonly ranges: boolean;
  /** Milliseconds between pieces of 256 KiB. */
  readonly slow: number;
}

function faultOf(query: URLSearchParams): Fault {
  const number = (name: string): number | undefined => (query.has(name) ? Number(query.get(name)) : undefined);
  return { pad: number('pad') ?? 0, flip: number('flip'), drop: number('drop'), ranges: query.get('ranges') !== 'no', slow: number('slow') ?? 0 };
}

async function send(request: IncomingMessage, response: ServerResponse, path: string, fault: Fault): Promise<void> {
  let bytes: Uint8Array = readFileSync(path);
  if (fault.pad > bytes.length) bytes = Buffer.concat([bytes, Buffer.alloc(fault.pad - bytes.length)]);
  if (fault.flip !== undefined) {
    bytes = Uint8Array.from(bytes);
    bytes[fault.flip] = (bytes[fault.flip] ?? 0) ^ 1;
  }
  const range = fault.ranges ? /bytes=(\d+)-/.exec(request.headers.range ?? '') : null;
  const from = range ? Number(range[1]) : 0;
  const body = bytes.subarray(from);
  response.writeHead(range ? 206 : 200, {
    'Content-Type': TYPES[extname(path)] ?? 'application/octet-stream',
    'Content-Length': body.length,
    'Cache-Control': 'no-store',
    // As hubs of models do: pages of other origins may read.
    'Access-Control-Allow-Origin': '*',
    ...(range && { 'Content-Range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` }),
  });
  const end = fault.drop !== undefined && from === 0 ? Math.min(fault.drop, body.length) : body.length;
  const piece = 256 << 10;
  for (let at = 0; at < end && !response.destroyed; at += piece) {
    const more = response.write(body.subarray(at, Math.min(at + piece, end)));
    if (!more) await drained(response);
    if (fault.slow > 0) await new Promise((resolve) => setTimeout(resolve, fault.slow));
  }
  if (end < body.length) response.destroy();
  else response.end();
}

/** Until more may be written, or nobody listens any more. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off('drain', done).off('close', done);
      resolve();
    };
    response.on('drain', done).on('close', done);
  });
}

/** Serves the folders of the tests, and those of `more` under their names. */
export async function serve(more: Readonly<Record<string, string>> = {}): Promise<TestServer> {
  const folders: Readonly<Record<string, string>> = { ...FOLDERS, ...more };
  const requests: string[] = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const path = normalize(decodeURIComponent(url.pathname));
    requests.push(`${request.url ?? ''}${request.headers.range ? ` ${request.headers.range}` : ''}`);
    // Also in the folder of the fixtures, for addresses relative to the page.
    if (path === '/blank.html' || path === '/fixtures/blank.html') {
      response.writeHead(200, { 'Content-Type': 'text/html' }).end(PAGE);
      return;
    }
    const [, top = '', ...rest] = path.split('/');
    const folder = folders[top];
    const file = folder && join(folder, rest.length === 1 && rest[0] === '' ? 'index.html' : rest.join('/'));
    if (!file || !existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404).end();
      return;
    }
    void send(request, response, file, faultOf(url.searchParams));
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    origin: `http://localhost:${port}`,
    requests,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
