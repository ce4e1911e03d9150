/** axe-core: what is wrong with a page for people who do not see it, or do not use a mouse. */
import { createRequire } from 'node:module';
import type { Page } from '@playwright/test';
import type * as Axe from 'axe-core';

declare global {
  var axe: typeof Axe;
}

const script = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** All that it finds in the page as it stands: rule, what is wrong, where. */
export async function faults(page: Page): Promise<string[]> {
  await page.addScriptTag({ path: script });
  return page.evaluate(async () => {
    const { violations } = await globalThis.axe.run();
    return violations.flatMap(({ id, help, nodes }) => nodes.map(({ target }) => `${id}: ${help}: ${target.join(' ')}`));
  });
}
