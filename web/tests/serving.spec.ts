/** What `cargo xtask web` serves: the built demo, and the models that the command line has fetched. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { answer, modelsFolder } from '../demo/models.ts';
import { fixtures } from './server.ts';
import { expect, test } from './support.ts';
import { type Vite, startVite } from './vite.ts';

const web = fileURLToPath(new URL('..', import.meta.url));
const bytes = readFileSync(join(fixtures, 'tiny.gguf'));

let cache = '';
let models = '';
let vite: Vite;

test.beforeAll(async () => {
  cache = mkdtempSync(join(tmpdir(), 'redraft-cache-'));
  models = join(cache, 'redraft/models');
  mkdirSync(join(models, 'folder.gguf'), { recursive: true });
  copyFileSync(join(fixtures, 'tiny.gguf'), join(models, 'tiny 1.gguf'));
  symlinkSync(join(models, 'absent'), join(models, 'gone.gguf'));
  writeFileSync(join(models, 'notes.txt'), 'not for others');
  writeFileSync(join(models, 'empty.gguf'), '');
  // The command that `cargo xtask web` runs.
  const { scripts } = JSON.parse(readFileSync(join(web, 'demo/package.json'), 'utf8')) as { scripts: { serve: string } };
  const [program, ...args] = scripts.serve.split(' ');
  expect(program).toBe('vite');
  vite = await startVite(web, join(web, 'demo'), args, { REDRAFT_WEB_MODELS: models });
});

test('the folder of models is the one that is told, else that of the cache folder', () => {
  const before = { ...process.env };
  const folder = (told: string | undefined, cache: string | undefined): string => {
    for (const [name, value] of [['REDRAFT_WEB_MODELS', told], ['XDG_CACHE_HOME', cache]] as const) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    return modelsFolder();
  };
  try {
    expect(folder('/told', '/cache')).toBe('/told');
    expect(folder(undefined, '/cache')).toBe('/cache/redraft/models');
    for (const none of [undefined, '', 'relative']) expect(folder(undefined, none)).toBe(join(homedir(), '.cache/redraft/models'));
  } finally {
    process.env = before;
  }
});

test.afterAll(() => {
  vite.child.kill();
  rmSync(cache, { recursive: true, force: true });
});

/** Asks for a file of the models' folder, named as it is to stand in the address. */
const ask = (name: string, range?: string): Promise<Response> => fetch(`${vite.address}models/${name}`, range === undefined ? {} : { headers: { Range: range } });

test('models are listed and sent, in whole and in part, and nothing else is', async () => {
  const list = (await (await ask('index.json')).json()) as { file: string; size: number }[];
  expect(list.sort((a, b) => a.file.localeCompare(b.file))).toEqual([{ file: 'empty.gguf', size: 0 }, { file: 'tiny 1.gguf', size: bytes.length }]);
  const whole = await ask('tiny%201.gguf');
  expect([whole.status, whole.headers.get('Content-Length'), whole.headers.get('Accept-Ranges')]).toEqual([200, String(bytes.length), 'bytes']);
  expect(bytes.equals(new Uint8Array(await whole.arrayBuffer()))).toBe(true);
  for (const [range, from, to] of [['bytes=1000-', 1000, bytes.length], ['bytes=0-0', 0, 1], ['bytes=10-9999999999', 10, bytes.length]] as const) {
    const part = await ask('tiny%201.gguf', range);
    expect([part.status, part.headers.get('Content-Range')], range).toEqual([206, `bytes ${from}-${to - 1}/${bytes.length}`]);
    expect(bytes.subarray(from, to).equals(new Uint8Array(await part.arrayBuffer())), range).toBe(true);
  }
  for (const range of [`bytes=${bytes.length}-`, 'bytes=5-4']) {
    const refused = await ask('tiny%201.gguf', range);
    expect([refused.status, refused.headers.get('Content-Range')], range).toEqual([416, `bytes */${bytes.length}`]);
  }
  for (const name of ['absent.gguf', 'folder.gguf', 'gone.gguf', 'notes.txt', '..%2Fmodels%2Ftiny%201.gguf', '%E0%A4%A.gguf']) expect((await ask(name)).status, name).toBe(404);
  const empty = await ask('empty.gguf');
  expect([empty.status, (await empty.arrayBuffer()).byteLength]).toEqual([200, 0]);
  expect((await ask('index.json')).status).toBe(200);
});

test('a file that goes away breaks the answer off, not the server', async () => {
  // Read in this process, where an error that nobody takes fails the test.
  process.env['REDRAFT_WEB_MODELS'] = models;
  const file = join(models, 'short-lived.gguf');
  writeFileSync(file, bytes);
  const response = new Writable({ write: (_chunk, _encoding, done) => done() });
  const closed = new Promise((resolve) => response.on('close', resolve));
  // Between the look at the file and its opening.
  Object.assign(response, { writeHead: () => unlinkSync(file) });
  const request = { url: '/models/short-lived.gguf', method: 'GET', headers: {} } as IncomingMessage;
  answer(request, response as unknown as ServerResponse, () => expect(true, 'passed on').toBe(false));
  await closed;
  expect(response.errored).toMatchObject({ code: 'ENOENT' });
});

test('a served model is offered, loads and answers, and does so when the server is gone', async ({ page }) => {
  const offered = page.getByRole('radio', { name: /^tiny 1\.gguf/ });
  const loadAndAsk = async (question: string): Promise<void> => {
    await offered.check();
    await page.getByRole('button', { name: 'Load', exact: true }).click();
    await page.getByLabel('Your message').fill(question);
    await page.getByLabel('Your message').press('Enter');
    await expect(page.locator('#status')).toHaveText(/Answer complete/);
  };
  await page.addInitScript(() => localStorage.setItem('redraft.settings', JSON.stringify({ max_tokens: 4 })));
  await page.goto(vite.address);
  await expect(page.locator('.model', { has: offered })).toContainText('from this server');
  await loadAndAsk('hello');
  await page.evaluate(() => navigator.serviceWorker.ready);
  vite.child.kill();
  await expect(fetch(vite.address)).rejects.toThrow();
  await page.reload();
  await expect(page.locator('.model', { has: offered })).toContainText('already in this browser');
  await loadAndAsk('hello again');
});
