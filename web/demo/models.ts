/** Serves the models that the command line has fetched, so that a local demo needs no download. */
import { createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import type { Plugin } from 'vite';

const FOLDER = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'redraft', 'models');

function list(): { file: string; size: number }[] {
  if (!existsSync(FOLDER)) return [];
  const files = readdirSync(FOLDER).filter((file) => /\.(gguf|safetensors)$/.test(file));
  return files.map((file) => ({ file, size: statSync(join(FOLDER, file)).size }));
}

function answer(request: IncomingMessage, response: ServerResponse, next: () => void): void {
  const [path = ''] = (request.url ?? '').split('?');
  const name = /^\/models\/([^/]+)$/.exec(path)?.[1];
  if (name === undefined) return next();
  if (name === 'index.json') {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(list()));
    return;
  }
  const file = join(FOLDER, basename(decodeURIComponent(name)));
  if (!list().some((known) => join(FOLDER, known.file) === file)) {
    response.statusCode = 404;
    response.end();
    return;
  }
  const { size } = statSync(file);
  const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? '');
  const start = range ? Number(range[1]) : 0;
  if (start >= size) {
    response.statusCode = 416;
    response.end();
    return;
  }
  response.writeHead(range ? 206 : 200, {
    'Content-Type': 'application/octet-stream',
    'Content-Length': size - start,
    'Accept-Ranges': 'bytes',
    ...(range && { 'Content-Range': `bytes ${start}-${size - 1}/${size}` }),
  });
  createReadStream(file, { start }).pipe(response);
}

export function serveModels(): Plugin {
  return {
    name: 'redraft-models',
    configureServer: (server) => void server.middlewares.use(answer),
    configurePreviewServer: (server) => void server.middlewares.use(answer),
  };
}
