import { type ChildProcess, execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BrowserContext, Page } from '@playwright/test';
import { type TestServer, fixtures, models } from './server.ts';
import { expect, needs, test } from './support.ts';
import { startVite } from './vite.ts';

const MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf';
const web = fileURLToPath(new URL('..', import.meta.url));

/** The programs of a README. */
const snippets = (path: string): string[] => [...readFileSync(path, 'utf8').matchAll(/```ts\n([^]*?)```/g)].map(([, code = '']) => code);

/** What a new user copies from a README: eight lines at most to the first token. */
const example = (path: string): string => snippets(path).find((code) => code.startsWith('import { createWorkerEngine }')) ?? '';

const README = example(join(web, 'package/README.md'));

/** The configuration of Vite that it asks for, and nothing else. */
const CONFIG = snippets(join(web, 'package/README.md')).find((code) => code.includes('defineConfig')) ?? '';

/** The same with the small model, and a sign that it is done. */
const APP = `import { createWorkerEngine } from '@redraft/web';

const engine = await createWorkerEngine({ model: '/tiny.gguf' });
const messages = [{ role: 'user', content: 'Hello' }];
const stream = await engine.chat.completions.create({ messages, stream: true, max_tokens: 8, ignore_eos: true });
for await (const chunk of stream) document.body.append(chunk.choices[0]?.delta.content ?? '');
document.title = 'done';
`;

/** The same with a drafter: that of a known model comes with the package. */
const DRAFTED = `import { createWorkerEngine } from '@redraft/web';

const engine = await createWorkerEngine({ model: 'smollm2-135m' });
const messages = [{ role: 'user', content: 'Count from one to twelve.' }];
const answer = await engine.chat.completions.create({ messages, max_tokens: 16, speculation: 'tree' });
document.body.append(answer.choices[0].message.content);
document.title = \`done, \${answer.usage.speculation?.accepted} guesses accepted\`;
`;

/** The same in a worker of the app, with the module named by its address. */
const OWN = `/// <reference types="vite/client" />
import { createWorkerEngine } from '@redraft/web';
import wasmUrl from '@redraft/web/redraft.wasm?url';

const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
const engine = await createWorkerEngine({ model: 'tiny.gguf', worker, wasmUrl: \`\${wasmUrl}?named\` });
const messages = [{ role: 'user', content: 'Hello' }];
const stream = await engine.chat.completions.create({ messages, stream: true, max_tokens: 8, ignore_eos: true });
for await (const chunk of stream) document.body.append(chunk.choices[0]?.delta.content ?? '');
document.title = 'done';
`;

/** The worker of the README. */
const WORKER = snippets(join(web, 'package/README.md')).find((code) => code.includes('serveEngine(self)')) ?? '';

const npm = (folder: string, ...args: string[]): string =>
  execFileSync('npm', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

async function answers(page: Page, address: string): Promise<string> {
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(address);
  await expect.poll(() => page.title(), { timeout: 400_000, message: `errors: ${errors.join()}` }).toMatch(/^done/);
  expect((await page.locator('body').textContent())?.length).toBeGreaterThan(3);
  expect(errors).toEqual([]);
  return page.title();
}

/** Has requests to the hub answered by the test's own server. */
const hub = (context: BrowserContext, server: TestServer): Promise<unknown> =>
  context.route(/^https:\/\/huggingface\.co\//, (route) => route.fulfill({ status: 302, headers: { Location: `${server.origin}/models/${MODEL}`, 'Access-Control-Allow-Origin': '*' } }));

test.describe('a fresh Vite app with the tarball', () => {
  let folder = '';
  const running: ChildProcess[] = [];

  test.beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'redraft-app-'));
    npm(join(web, 'package'), 'pack', '--pack-destination', folder);
    const [tarball] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
    expect(tarball).toMatch(/^redraft-web-\d+\.\d+\.\d+\.tgz$/);
    const manifest = { name: 'app', private: true, type: 'module', dependencies: { '@redraft/web': `file:./${tarball}` }, devDependencies: { vite: '8.3.8', typescript: '7.0.2' } };
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
    writeFileSync(join(folder, 'index.html'), '<!doctype html><title>app</title><link rel="icon" href="data:,"><script type="module" src="/main.ts"></script>');
    writeFileSync(join(folder, 'vite.config.ts'), CONFIG);
    const options = { target: 'es2022', module: 'esnext', moduleResolution: 'bundler', strict: true, noEmit: true, types: [], lib: ['es2022', 'dom', 'dom.asynciterable', 'esnext.disposable'] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, files: ['main.ts'] }));
    mkdirSync(join(folder, 'public'));
    cpSync(join(fixtures, 'tiny.gguf'), join(folder, 'public/tiny.gguf'));
    npm(folder, 'install', '--no-audit', '--no-fund', '--prefer-offline');
  });

  test.afterEach(() => {
    for (const child of running.splice(0)) child.kill();
  });

  test.afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Writes the program and runs it, in development and built; the titles that its pages end with. */
  async function run(page: Page, program: string): Promise<string[]> {
    writeFileSync(join(folder, 'main.ts'), program);
    // The types are those of the tarball, and hold without skipping its declarations.
    npm(folder, 'exec', '--', 'tsc', '-p', '.');
    const development = await startVite(folder, folder, []);
    running.push(development.child);
    const titles = [await answers(page, development.address)];
    npm(folder, 'exec', '--', 'vite', 'build');
    const built = await startVite(folder, folder, ['preview']);
    running.push(built.child);
    return [...titles, await answers(page, built.address)];
  }

  test('every program of the README compiles', () => {
    const programs = snippets(join(web, 'package/README.md')).filter((code) => code !== CONFIG);
    expect(CONFIG).toContain("exclude: ['@redraft/web']");
    expect(programs.length).toBeGreaterThan(1);
    for (const program of programs) {
      writeFileSync(join(folder, 'main.ts'), program);
      npm(folder, 'exec', '--', 'tsc', '-p', '.');
    }
  });

  test('answers, in development and built', async ({ page }) => {
    expect(await run(page, APP)).toEqual(['done', 'done']);
  });

  test('answers in a worker of the app, with the module named by its address', async ({ page, context }) => {
    const modules: string[] = [];
    context.on('request', (request) => {
      if (request.url().includes('.wasm')) modules.push(new URL(request.url()).pathname + new URL(request.url()).search);
    });
    expect(WORKER.trim().split('\n').length).toBeLessThan(5);
    writeFileSync(join(folder, 'worker.ts'), WORKER);
    expect(await run(page, OWN)).toEqual(['done', 'done']);
    expect(modules.filter((path) => !/[?&]url$/.test(path))).toEqual([expect.stringMatching(/dist\/wasm\/redraft_wasm_bg\.wasm\?named$/), expect.stringMatching(/^\/assets\/redraft_wasm_bg-.+\.wasm\?named$/)]);
  });

  test('the example of the README runs as it stands', async ({ page, server, context }) => {
    test.setTimeout(1_800_000);
    test.skip(!needs(join(models, MODEL)), `the model is missing: cargo xtask setup fetches ${MODEL}`);
    const lines = README.split('\n').filter((line) => line.trim() !== '');
    expect(lines.length).toBeGreaterThan(4);
    expect(lines.length).toBeLessThanOrEqual(8);
    expect(example(join(web, '../README.md'))).toBe(README);
    await hub(context, server);
    writeFileSync(join(folder, 'main.ts'), README);
    npm(folder, 'exec', '--', 'tsc', '-p', '.');
    npm(folder, 'exec', '--', 'vite', 'build');
    const built = await startVite(folder, folder, ['preview']);
    running.push(built.child);
    const errors: string[] = [];
    page.on('pageerror', (error) => errors.push(String(error)));
    await page.goto(built.address);
    await expect(page.locator('body'), `errors: ${errors.join()}`).toHaveText(/Paris/, { timeout: 900_000 });
  });

  test('drafts ahead with what the package brings, in development and built', async ({ page, server, context }) => {
    test.setTimeout(1_800_000);
    test.skip(!needs(join(models, MODEL)), `the model is missing: cargo xtask setup fetches ${MODEL}`);
    const drafters: string[] = [];
    context.on('request', (request) => {
      if (request.url().includes('safetensors')) drafters.push(new URL(request.url()).pathname);
    });
    await hub(context, server);
    for (const title of await run(page, DRAFTED)) expect(title).toMatch(/^done, [1-9]\d* guesses accepted$/);
    expect(drafters).toEqual([expect.stringMatching(/\/dist\/drafters\/smollm2-135m\.safetensors$/), expect.stringMatching(/^\/assets\/smollm2-135m-.+\.safetensors$/)]);
  });
});
