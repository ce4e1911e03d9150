/** Tells the service worker what the built page is made of, so that all of it is there without a network. */
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Plugin } from 'vite';

/** Not for the service worker to keep: itself, and drafters, which are kept with their models. */
const LEFT_OUT = /^(sw|shell)\.js$|\.safetensors$/;

function list(folder: string): string {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => name.replaceAll('\\', '/'));
  const files = names.filter((name) => !LEFT_OUT.test(name) && statSync(join(folder, name)).isFile()).sort();
  const hash = createHash('sha256');
  for (const name of files) hash.update(`${name}\n`).update(readFileSync(join(folder, name)));
  return `self.SHELL = ${JSON.stringify({ version: hash.digest('hex').slice(0, 16), files })};\n`;
}

export function listShell(): Plugin {
  let folder = '';
  return {
    name: 'redraft-shell',
    apply: 'build',
    configResolved: ({ root, build }) => void (folder = resolve(root, build.outDir)),
    // Only then are the files of `public` and the worker's there too.
    writeBundle: { order: 'post', handler: () => writeFileSync(join(folder, 'shell.js'), list(folder)) },
  };
}
