/** Serves the models that the command line has fetched, so that a local demo needs no download. */
import { createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { pipeline } from 'node:stream';
import type { Plugin } from 'vite';

/**
 * Where the command line keeps models. `cargo xtask` tells, which knows the folders of all systems; without it, those of
 * Linux are taken.
 */
export function modelsFolder(): string {
  const { REDRAFT_WEB_MODELS: told, XDG_CACHE_HOME: cache = '' } = process.env;
  // A relative path there is to be ignored by the XDG specification.
  return told ?? join(isAbsolute(cache) ? cache : join(homedir(), '.cache'), 'redraft', 'models');
}

function list(): { file: string; size: number }[] {
  const folder = modelsFolder();
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).filter((name) => /\.(gguf|safetensors)$/.test(name));
  return names.flatMap((file) => {
    // Folders, and links to what is gone, may have such names too.
    const found = statSync(join(folder, file), { throwIfNoEntry: false });
    return found?.isFile() ? { file, size: found.size } : [];
  });
}

/** The part of an address as text; undefined for what is none. */
function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

export function answer(request: IncomingMessage, response: ServerResponse, next: () => void): void {
  const [path = ''] = (request.url ?? '').split('?');
  const part = /^\/models\/([^/]+)$/.exec(path)?.[1];
  if (part === undefined) return next();
  if (part === 'index.json') {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(list()));
    return;
  }
  const name = decoded(part);
  const known = list().find(({ file }) => file === name);
  if (!known) {
    response.writeHead(404).end();
    return;
  }
  const { file, size } = known;
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  const start = Number(range?.[1] ?? 0);
  const end = Math.min(size, range?.[2] ? Number(range[2]) + 1 : size);
  if (range && start >= end) {
    response.writeHead(416, { 'Content-Range': `bytes */${size}` }).end();
    return;
  }
  response.writeHead(range ? 206 : 200, {
    'Content-Type': 'application/octet-stream',
    'Content-Length': end - start,
    'Accept-Ranges': 'bytes',
    ...(range && { 'Content-Range': `bytes ${start}-${end - 1}/${size}` }),
  });
  if (request.method === 'HEAD' || start === end) {
    response.end();
    return;
  }
  // A file that goes away, and a reader that does, end the answer, not the server.
  pipeline(createReadStream(join(modelsFolder(), file), { start, end: end - 1 }), response, () => undefined);
}

export function serveModels(): Plugin {
  return {
    name: 'redraft-models',
    configureServer: (server) => void server.middlewares.use(answer),
    configurePreviewServer: (server) => void server.middlewares.use(answer),
  };
}
