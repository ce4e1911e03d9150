import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { fixtures } from './server.ts';
import { expect, test } from './support.ts';

const web = fileURLToPath(new URL('..', import.meta.url));

/** What a new user writes: eight lines to the first token. */
const APP = `import { createWorkerEngine } from '@redraft/web';

const engine = await createWorkerEngine({ model: '/tiny.gguf' });
const messages = [{ role: 'user', content: 'Hello' }];
const stream = await engine.chat.completions.create({ messages, stream: true, max_tokens: 8, ignore_eos: true });
for await (const chunk of stream) document.body.append(chunk.choices[0]?.delta.content ?? '');
document.title = 'done';
`;

/** The documented line, and nothing else. */
const CONFIG = `export default { optimizeDeps: { exclude: ['@redraft/web'] }, build: { target: 'es2022' } };
`;

const npm = (folder: string, ...args: string[]): string =>
  execFileSync('npm', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

/** Starts a server of Vite and gives its address. */
async function start(folder: string, ...args: string[]): Promise<{ address: string; child: ChildProcess }> {
  const vite = join(folder, 'node_modules/vite/bin/vite.js');
  const child = spawn(process.execPath, [vite, ...args, '--port', '0'], { cwd: folder, env: { ...process.env, NO_COLOR: '1' } });
  const address = await new Promise<string>((resolve, reject) => {
    let said = '';
    const hear = (data: Buffer): void => {
      said += data.toString();
      const found = /http:\/\/localhost:\d+\//.exec(said)?.[0];
      if (found) resolve(found);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('exit', () => reject(new Error(`vite ended: ${said}`)));
  });
  return { address, child };
}

async function answers(page: Page, address: string): Promise<void> {
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(address);
  await expect.poll(() => page.title(), { timeout: 180_000, message: `errors: ${errors.join()}` }).toBe('done');
  expect((await page.locator('body').textContent())?.length).toBeGreaterThan(3);
  expect(errors).toEqual([]);
}

test('the tarball works in a fresh Vite app, in development and built', async ({ page }) => {
  const folder = mkdtempSync(join(tmpdir(), 'redraft-app-'));
  const running: ChildProcess[] = [];
  try {
    npm(join(web, 'package'), 'pack', '--pack-destination', folder);
    const [tarball] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
    expect(tarball).toMatch(/^redraft-web-\d+\.\d+\.\d+\.tgz$/);
    const manifest = { name: 'app', private: true, type: 'module', dependencies: { '@redraft/web': `file:./${tarball}` }, devDependencies: { vite: '8.3.8', typescript: '7.0.2' } };
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
    writeFileSync(join(folder, 'index.html'), '<!doctype html><title>app</title><link rel="icon" href="data:,"><script type="module" src="/main.ts"></script>');
    writeFileSync(join(folder, 'main.ts'), APP);
    writeFileSync(join(folder, 'vite.config.js'), CONFIG);
    const options = { target: 'es2022', module: 'esnext', moduleResolution: 'bundler', strict: true, noEmit: true, types: [], lib: ['es2023', 'dom', 'dom.asynciterable', 'esnext.disposable'] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, files: ['main.ts'] }));
    mkdirSync(join(folder, 'public'));
    cpSync(join(fixtures, 'tiny.gguf'), join(folder, 'public/tiny.gguf'));
    npm(folder, 'install', '--no-audit', '--no-fund', '--prefer-offline');
    // The types are those of the tarball, and hold without skipping its declarations.
    npm(folder, 'exec', '--', 'tsc', '-p', '.');
    const development = await start(folder);
    running.push(development.child);
    await answers(page, development.address);
    npm(folder, 'exec', '--', 'vite', 'build');
    const built = await start(folder, 'preview');
    running.push(built.child);
    await answers(page, built.address);
  } finally {
    for (const child of running) child.kill();
    rmSync(folder, { recursive: true, force: true });
  }
});
