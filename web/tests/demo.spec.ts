import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { type TestServer, fixtures } from './server.ts';
import { expect, test } from './support.ts';

declare global {
  /** What the page said while an answer was waited for. */
  var said: string[];
}

const pictures = fileURLToPath(new URL('../.build/screenshots/', import.meta.url));

/** Opens the demo and loads the tiny model by its address, with its drafter if wanted. */
async function openDemo(page: Page, server: TestServer, drafter = false): Promise<void> {
  await page.goto(`${server.origin}/demo/`);
  await loadTiny(page, server, drafter);
}

async function loadTiny(page: Page, server: TestServer, drafter: boolean): Promise<void> {
  await page.getByLabel('Address of a GGUF file').fill(`${server.origin}/fixtures/tiny.gguf`);
  if (drafter) {
    await page.getByText('Add a drafter').click();
    await page.getByLabel('Drafter file').setInputFiles(join(fixtures, 'tiny.drafter.safetensors'));
  }
  await page.getByRole('button', { name: 'Load', exact: true }).click();
  await expect(page.getByLabel('Your message')).toBeVisible();
}

async function settings(page: Page, values: Record<string, string>): Promise<void> {
  await page.getByRole('button', { name: 'Settings' }).click();
  for (const [label, value] of Object.entries(values)) await page.getByLabel(label).fill(value);
  await page.getByRole('button', { name: 'Done' }).click();
}

const answers = (page: Page) => page.locator('.message.assistant .text');
const status = (page: Page) => page.locator('#status');

test('load, ask with the keyboard, regenerate, reload: the conversation stays', async ({ page, server }) => {
  await openDemo(page, server);
  await settings(page, { 'Longest answer, in tokens': '8', Temperature: '0' });
  const question = page.getByLabel('Your message');
  await expect(question).toBeEditable();
  await question.fill('one two one two');
  await question.press('Enter');
  await expect(status(page)).toHaveText(/Answer complete, \d+ tokens/);
  const first = await answers(page).textContent();
  expect(first?.length).toBeGreaterThan(0);
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await expect(status(page)).toHaveText(/Answer complete/);
  await expect(answers(page)).toHaveText([first ?? '']);
  await settings(page, { 'System prompt': 'You are a poet.' });
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await expect(status(page)).toHaveText(/Answer complete/);
  await expect(answers(page)).not.toHaveText([first ?? '']);
  const changed = await answers(page).textContent();
  await page.reload();
  await loadTiny(page, server, false);
  await expect(answers(page)).toHaveText([changed ?? '']);
  await page.getByRole('button', { name: 'New chat' }).click();
  await expect(answers(page)).toHaveCount(0);
});

test('an answer can be stopped, and a question that got none comes back', async ({ page, server }) => {
  await openDemo(page, server);
  await settings(page, { 'Longest answer, in tokens': '400' });
  const question = page.getByLabel('Your message');
  await question.fill('tell me everything');
  await question.press('Enter');
  await expect(answers(page).locator('.token')).not.toHaveCount(0);
  await page.getByRole('button', { name: 'Stop' }).click();
  await expect(status(page)).toHaveText('Answer stopped.');
  await expect(page.getByRole('button', { name: 'Send' })).toBeVisible();
  const kept = await answers(page).textContent();
  expect(kept?.length).toBeGreaterThan(0);
  // The GPU is gone before the first word: one message, the question returns, and sending it again works.
  await question.fill('again');
  await question.press('Enter');
  await page.keyboard.press('Escape');
  await expect(status(page)).toHaveText('Answer stopped.');
});

test('how it guessed: trees, origins, numbers, and the same answer without drafting', async ({ page, server }) => {
  await openDemo(page, server, true);
  await settings(page, { 'Longest answer, in tokens': '10', Seed: '4' });
  await page.getByLabel('Drafting').selectOption('reconsider');
  const question = page.getByLabel('Your message');
  await question.fill('Hello there');
  await question.press('Enter');
  await expect(status(page)).toHaveText(/Answer complete/);
  const tree = page.getByRole('img', { name: /reconsider: \d+ of \d+ guesses verified/ });
  await expect(tree).toBeVisible();
  expect(await tree.locator('g').count()).toBeGreaterThan(5);
  await expect(tree.locator('g.accepted')).not.toHaveCount(0);
  await expect(page.locator('#speed-on')).toHaveText(/\d/);
  await expect(page.locator('#tau')).toHaveText(/^\d\.\d\d$/);
  await expect(page.locator('#accepted')).toHaveText(/^\d+ of \d+$/);
  const counts = await page.locator('.legend b').allTextContents();
  const tokens = Number(/\d+/.exec((await status(page).textContent()) ?? '')?.[0]);
  expect(counts.reduce((sum, count) => sum + Number(count), 0)).toBe(tokens);
  await page.getByRole('button', { name: 'Answer again the other way' }).click();
  await expect(page.locator('#same')).toHaveText('The same answer, word for word.');
  await expect(page.locator('#speed-off')).toHaveText(/\d/);
  await page.getByRole('button', { name: 'Answer again the other way' }).click();
  await expect(page.locator('#same')).toHaveText('The same answer, word for word.');
});

test('the automatic choice is the default, and says when it measures what steps cost', async ({ page, server }) => {
  await openDemo(page, server, true);
  await expect(page.getByLabel('Drafting')).toHaveValue('auto');
  // The browser of these tests computes on the processor, and the page says so while it is used.
  await expect(page.locator('#software')).toHaveText(/computes on the processor \(SwiftShader\)/);
  await settings(page, { 'Longest answer, in tokens': '8' });
  await page.evaluate(() => {
    const look = (): void => {
      const waiting = document.querySelector('.waiting')?.textContent;
      if (waiting && said.at(-1) !== waiting) said.push(waiting);
    };
    globalThis.said = [];
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
  });
  const ask = async (question: string): Promise<unknown> => {
    await page.getByLabel('Your message').fill(question);
    await page.getByLabel('Your message').press('Enter');
    await expect(status(page)).toHaveText(/Answer complete/);
    await expect(page.locator('.waiting')).toHaveCount(0);
    return page.evaluate(() => globalThis.said);
  };
  const measuring = expect.stringMatching(/^Measuring once what steps cost/);
  expect(await ask('one two one two')).toEqual([measuring]);
  // Answered by both ways, word for word the same.
  await page.getByRole('button', { name: 'Answer again the other way' }).click();
  await expect(page.locator('#same')).toHaveText('The same answer, word for word.');
  expect(await ask('again')).toEqual([measuring, 'Reading …']);
});

test('cancelling a load and bad addresses lead back to the choice', async ({ page, server }) => {
  await page.goto(`${server.origin}/demo/`);
  const address = page.getByLabel('Address of a GGUF file');
  const load = page.getByRole('button', { name: 'Load', exact: true });
  await address.fill(`${server.origin}/fixtures/tiny.gguf?pad=${20 << 20}&slow=50`);
  await load.click();
  await expect(page.locator('#loading-words')).toHaveText(/Downloading: .* of 21 MB/);
  await expect(page.getByRole('heading', { name: 'Loading tiny.gguf' })).toBeVisible();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(load).toBeVisible();
  await expect(page.getByRole('alert')).toBeHidden();
  await address.fill(`${server.origin}/fixtures/absent.gguf`);
  await load.click();
  await expect(page.getByRole('alert')).toHaveText(/404/);
  // It is in sight, and what was entered can be put right.
  await expect(page.getByRole('alert')).toBeInViewport();
  await expect(address).toHaveValue(`${server.origin}/fixtures/absent.gguf`);
  await address.press('End');
  await address.press('Backspace');
  await load.click();
  await expect(page.getByRole('alert')).toHaveText(/absent\.ggu: .*404/);
  await page.getByText('A file of mine').click();
  await load.click();
  await expect(page.getByRole('alert')).toHaveText(/Choose a GGUF file/);
});

test('after the first load everything works offline', async ({ page, server, context }) => {
  await openDemo(page, server);
  await page.evaluate(() => navigator.serviceWorker.ready);
  // The first visit was not under the worker's control; the second fills its cache.
  await page.reload();
  await loadTiny(page, server, false);
  await context.setOffline(true);
  await page.reload();
  await loadTiny(page, server, false);
  await settings(page, { 'Longest answer, in tokens': '4' });
  await page.getByLabel('Your message').fill('hi');
  await page.getByLabel('Your message').press('Enter');
  await expect(status(page)).toHaveText(/Answer complete/);
  await context.setOffline(false);
});

test('the benchmark measures every way and finds the same answers', async ({ page, server }) => {
  await page.goto(`${server.origin}/demo/bench.html`);
  await page.getByLabel('Address of a GGUF file').fill(`${server.origin}/fixtures/tiny.gguf`);
  await page.getByLabel('Drafter file').setInputFiles(join(fixtures, 'tiny.drafter.safetensors'));
  for (const [label, value] of [['Tokens an answer', '12'], ['Repetitions', '1'], ['Prompts', '1']] as const) await page.getByLabel(label).fill(value);
  await page.getByRole('button', { name: 'Measure' }).click();
  await expect(page.locator('#status')).toHaveText(/^Done: 1 repetitions of 1 prompts, 12 tokens each/);
  await expect(page.locator('tbody th')).toHaveText(['plain', 'lookup', 'chain', 'tree', 'reconsider', 'auto']);
  await expect(page.locator('tbody tr td:last-child')).toHaveText(Array.from({ length: 6 }, () => 'yes'));
  await expect(page.locator('tbody tr[data-way=off] td').nth(2)).toHaveText('1.00');
  await expect(page.locator('tbody tr[data-way=tree] td').nth(3)).toHaveText(/^\d\.\d\d$/);
});

test('without WebGPU the page says what to do', async ({ page, server }) => {
  await page.addInitScript(() => Object.defineProperty(navigator, 'gpu', { value: undefined }));
  await page.goto(`${server.origin}/demo/`);
  await expect(page.getByRole('heading', { name: 'This browser cannot run the model yet' })).toBeVisible();
  await expect(page.locator('#unsupported-advice')).toHaveText(/enable-unsafe-webgpu|chrome:/);
  await page.screenshot({ path: join(pictures, 'unsupported.png') });
});

for (const [name, viewport, colorScheme] of [
  ['light', { width: 1200, height: 800 }, 'light'],
  ['dark', { width: 1200, height: 800 }, 'dark'],
  ['mobile', { width: 390, height: 800 }, 'light'],
] as const) {
  test(`looks: ${name}`, async ({ page, server }) => {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
    await page.goto(`${server.origin}/demo/`);
    await expect(page.getByRole('button', { name: 'Load', exact: true })).toBeVisible();
    await page.screenshot({ path: join(pictures, `${name}-start.png`) });
    await loadTiny(page, server, true);
    await settings(page, { 'Longest answer, in tokens': '16', Seed: '4' });
    await page.getByLabel('Drafting').selectOption('reconsider');
    await page.getByLabel('Your message').fill('What do you see?');
    await page.getByLabel('Your message').press('Enter');
    await expect(status(page)).toHaveText(/Answer complete/);
    await page.screenshot({ path: join(pictures, `${name}-chat.png`), fullPage: true });
    // Nothing sticks out sideways, and the colours follow the system.
    const sticksOut = (): Promise<boolean> => page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    expect(await sticksOut()).toBe(false);
    const brightness = await page.evaluate(() => {
      const [red = 0, green = 0, blue = 0] = (getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g) ?? []).map(Number);
      return (red + green + blue) / 3;
    });
    if (colorScheme === 'dark') expect(brightness).toBeLessThan(90);
    else expect(brightness).toBeGreaterThan(160);
    await page.goto(`${server.origin}/demo/bench.html`);
    await expect(page.getByRole('button', { name: 'Measure' })).toBeVisible();
    await expect(page.getByLabel('An address')).toBeVisible();
    await page.screenshot({ path: join(pictures, `${name}-bench.png`), fullPage: true });
    expect(await sticksOut()).toBe(false);
  });
}
