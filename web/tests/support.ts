import { type Page, test as base, expect } from '@playwright/test';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type * as Redraft from '@redraft/web';
import { type TestServer, fixtures, serve } from './server.ts';

declare global {
  var redraft: typeof Redraft;
  /** Devices that the page made, the newest last. */
  var devices: GPUDevice[];
}

export { expect };

/** Tests with a server, and a page that has the package as `redraft`. */
export const test = base.extend<{ blank: Page }, { server: TestServer }>({
  server: [
    // eslint-disable-next-line no-empty-pattern
    async ({}, use) => {
      const server = await serve();
      await use(server);
      server.close();
    },
    { scope: 'worker' },
  ],
  blank: async ({ page, server }, use) => {
    const unexpected: string[] = [];
    page.on('pageerror', (error) => unexpected.push(String(error)));
    await openBlank(page, server);
    await use(page);
    expect(unexpected, 'errors that nobody caught').toEqual([]);
  },
});

export async function openBlank(page: Page, server: TestServer, path = '/blank.html'): Promise<void> {
  await page.addInitScript(() => {
    globalThis.devices = [];
    if (typeof GPUAdapter === 'undefined') return;
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (this: GPUAdapter, descriptor?: GPUDeviceDescriptor) {
      const device = await request.call(this, descriptor);
      globalThis.devices.push(device);
      return device;
    };
  });
  await page.goto(`${server.origin}${path}`);
  await page.waitForFunction(() => typeof globalThis.redraft === 'object');
}

export interface Reference {
  readonly prompt: string;
  readonly prompt_ids: readonly number[];
  readonly greedy_ids: readonly number[];
  readonly margins: readonly number[];
}

/** What the plain f32 forward answers with the tiny model. */
export const tinyReference = JSON.parse(readFileSync(join(fixtures, 'tiny.json'), 'utf8')) as readonly Reference[];

/** How many ids must agree: up to the first step whose two best tokens are so close that rounding may decide. */
export function agreed(margins: readonly number[], tie: number): number {
  const first = margins.findIndex((margin) => margin < tie);
  return first < 0 ? margins.length : first;
}

/** A file that tests need but the repository does not have; its absence is a declared skip. */
export function needs(path: string): string | undefined {
  return existsSync(path) ? path : undefined;
}
