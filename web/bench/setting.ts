/** What both measurements need: files, settings, a page with the package. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from '@playwright/test';
import type * as Redraft from '@redraft/web';
import { type TestServer, models, serve } from '../tests/server.ts';

declare global {
  var redraft: typeof Redraft;
  var engine: Redraft.Engine;
}

const here = fileURLToPath(new URL('.', import.meta.url));

export const MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf';
export const RUNTIME = join(here, 'node_modules/onnxruntime-web/dist');
/** Where results are left. */
export const RESULTS = join(here, '../.build');

const DRAFTER = join(here, '../../models/smollm2-135m-drafter');

/** The path, or an error that says how to come by what is missing. */
export function needed(path: string, what: string, how: string): string {
  if (!existsSync(path)) throw new Error(`${what} is missing: there is no ${path}\n${how}`);
  return path;
}

/** A whole number of the environment. */
export function setting(name: string, otherwise: number): number {
  const given = process.env[name];
  if (given === undefined) return otherwise;
  const value = Number(given);
  if (!Number.isInteger(value) || value < 1) throw new Error(`${name} is "${given}"; it must be a whole number from 1`);
  return value;
}

/** A server with the package, the model, the drafter and the folders of `more`. */
export async function serveAll(more: Readonly<Record<string, string>>): Promise<TestServer> {
  needed(join(here, '../package/dist/index.js'), 'the built package', 'cargo xtask web build makes it');
  needed(join(models, MODEL), 'the model', 'cargo xtask setup fetches it');
  return serve({ ...more, drafter: DRAFTER });
}

/** Loads redraft in the page, with the drafter, as `engine`. */
export async function loadRedraft(page: Page, server: TestServer): Promise<Redraft.Engine['info']> {
  await page.goto(`${server.origin}/blank.html`);
  await page.waitForFunction(() => typeof globalThis.redraft === 'object');
  return page.evaluate(async ({ model, drafter }) => {
    // In the page as the peer is, so that both share one thread.
    globalThis.engine = await redraft.createEngine({ model, drafter, context: 512 });
    const found = await redraft.probe();
    return { ...engine.info, adapter: found.ok ? [found.adapter.vendor, found.adapter.architecture].join(' ') : '' };
  }, { model: `${server.origin}/models/${MODEL}`, drafter: `${server.origin}/drafter/drafter.safetensors` });
}

interface ProcessInfo {
  readonly processInfo: readonly { readonly type: string; readonly cpuTime: number }[];
}

/** Processor seconds that the browser's GPU process has taken: what a software adapter computes, whoever else does what. */
export async function gpuSeconds(browser: Browser): Promise<() => Promise<number>> {
  const session = await browser.newBrowserCDPSession();
  return async () => {
    const { processInfo } = (await session.send('SystemInfo.getProcessInfo')) as ProcessInfo;
    return processInfo.filter((process) => process.type === 'GPU').reduce((sum, process) => sum + process.cpuTime, 0);
  };
}
