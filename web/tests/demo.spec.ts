import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { faults } from './axe.ts';
import { type TestServer, fixtures, serve } from './server.ts';
import { expect, test } from './support.ts';

declare global {
  /** What the page said while a load or an answer was waited for. */
  var said: string[];
}

const pictures = fileURLToPath(new URL('../.build/screenshots/', import.meta.url));
const built = fileURLToPath(new URL('../demo/dist/', import.meta.url));

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
const load = (page: Page) => page.getByRole('button', { name: 'Load', exact: true });

/** How much lines of a colour stand out from what is behind them, as WCAG counts it: 1 for nothing, 21 for black on white. */
async function contrast(page: Page, selector: string, property: 'border-top-color' | 'stroke'): Promise<number> {
  return page.locator(selector).first().evaluate((element, property) => {
    const parts = (colour: string): number[] => (colour.match(/[\d.]+/g) ?? []).map(Number);
    let around: Element | null = element.parentElement;
    while (around && parts(getComputedStyle(around).backgroundColor)[3] === 0) around = around.parentElement;
    const light = (colour: string): number => {
      const [red = 0, green = 0, blue = 0] = parts(colour).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    };
    const [one, other] = [light(getComputedStyle(element).getPropertyValue(property)), light(getComputedStyle(around ?? document.body).backgroundColor)];
    return Math.max(one, other) / Math.min(one, other);
  }, property);
}

/** Asks and waits for the whole answer. */
async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel('Your message').fill(question);
  await page.getByLabel('Your message').press('Enter');
  await expect(page.getByRole('button', { name: 'Stop' })).toBeHidden();
  await expect(status(page)).toHaveText(/Answer complete/);
}

/** Makes the last answer again and waits for all of it: what is there afterwards is another element. */
async function regenerate(page: Page): Promise<void> {
  await page.locator('.message').last().evaluate((element) => (element.dataset['old'] = ''));
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await expect(page.locator('.message[data-old]')).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Regenerate' })).toBeVisible();
  await expect(status(page)).toHaveText(/Answer complete/);
}

test('load, ask with the keyboard, regenerate, reload: the conversation stays', async ({ page, server }) => {
  await openDemo(page, server);
  await settings(page, { 'Longest answer, in tokens': '8', Temperature: '0' });
  await ask(page, 'one two one two');
  const first = await answers(page).textContent();
  expect(first?.length).toBeGreaterThan(0);
  await regenerate(page);
  await expect(answers(page)).toHaveText([first ?? '']);
  await settings(page, { 'System prompt': 'You are a poet.' });
  await regenerate(page);
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
  // Greedily, because a drawn answer may end by itself before the click comes.
  await settings(page, { 'Longest answer, in tokens': '400', Temperature: '0' });
  const question = page.getByLabel('Your message');
  await question.fill('tell me everything');
  await question.press('Enter');
  await expect(answers(page).locator('.token')).not.toHaveCount(0);
  await page.getByRole('button', { name: 'Stop' }).click();
  await expect(status(page)).toHaveText('Answer stopped.');
  await expect(page.getByRole('button', { name: 'Send' })).toBeVisible();
  const kept = await answers(page).textContent();
  expect(kept?.length).toBeGreaterThan(0);
  // Stopped before the first word can have come: the question returns, and sending it again works.
  await settings(page, { 'Longest answer, in tokens': '4' });
  await question.fill('again');
  const sent = await question.evaluate((field) => {
    field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
    const taken = { left: (field as HTMLTextAreaElement).value, status: document.getElementById('status')?.textContent };
    field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
    return taken;
  });
  expect(sent).toEqual({ left: '', status: expect.stringMatching(/^(Answering|Measuring)/) });
  await expect(question).toHaveValue('again');
  await expect(status(page)).toHaveText('Answer stopped.');
  await expect(page.locator('.message')).toHaveCount(2);
  await question.press('Enter');
  await expect(status(page)).toHaveText(/Answer complete/);
  await expect(page.locator('.message.user .text')).toHaveText(['tell me everything', 'again']);
});

test('the keyboard: the focus goes on where a control goes away, and Escape closes one thing', async ({ page, server }) => {
  await page.goto(`${server.origin}/demo/`);
  // On the way from the list to the button nothing is chosen.
  const chosen = page.locator('input[name=model]:checked');
  await chosen.focus();
  const before = await chosen.inputValue();
  for (let steps = 0; steps < 12 && (await page.evaluate(() => document.activeElement?.id)) !== 'load'; steps += 1) await page.keyboard.press('Tab');
  await expect(load(page)).toBeFocused();
  expect(await chosen.inputValue()).toBe(before);
  // What is entered there is meant.
  const address = page.getByLabel('Address of a GGUF file');
  await address.focus();
  await page.keyboard.type('x');
  expect(await chosen.inputValue()).toBe('own-address');
  await address.fill(`${server.origin}/fixtures/tiny.gguf?pad=${20 << 20}&slow=50`);
  await load(page).press('Enter');
  await expect(page.getByRole('button', { name: 'Cancel' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(load(page)).toBeFocused();
  await loadTiny(page, server, false);
  const question = page.getByLabel('Your message');
  await expect(question).toBeFocused();
  await settings(page, { 'Longest answer, in tokens': '400', Temperature: '0' });
  await question.fill('tell me everything');
  await page.getByRole('button', { name: 'Send' }).press('Enter');
  await expect(page.getByRole('button', { name: 'Stop' })).toBeVisible();
  await expect(question).toBeFocused();
  await expect(answers(page).locator('.token')).not.toHaveCount(0);
  await page.getByRole('button', { name: 'Settings' }).press('Enter');
  await page.getByLabel('Longest answer, in tokens').fill('6');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toBeHidden();
  const tokens = await answers(page).locator('.token').count();
  await expect(answers(page).locator('.token').nth(tokens + 2)).toBeAttached();
  await page.getByRole('button', { name: 'Stop' }).press('Enter');
  await expect(status(page)).toHaveText('Answer stopped.');
  await expect(question).toBeFocused();
  await regenerate(page);
  await expect(question).toBeFocused();
  // The whole answer is read out, since word for word it would be only noise.
  const text = (await answers(page).textContent()) ?? '';
  await expect(status(page)).toContainText(`Answer complete, 6 tokens. ${text}`, { useInnerText: false });
  await page.getByRole('button', { name: 'Answer again the other way' }).press('Enter');
  await expect(page.locator('#same')).toHaveText('The same answer, word for word.');
  await expect(page.getByRole('button', { name: 'Answer again the other way' })).toBeFocused();
  await page.getByRole('button', { name: 'Change model' }).press('Enter');
  await expect(load(page)).toBeFocused();
  await page.getByRole('button', { name: 'Delete downloaded models' }).press('Enter');
  await expect(page.getByRole('button', { name: 'Delete downloaded models' })).toBeHidden();
  await expect(load(page)).toBeFocused();
});

for (const [name, viewport] of [['in itself', { width: 1200, height: 800 }], ['with the page', { width: 390, height: 700 }]] as const) {
  test(`the conversation scrolls ${name}: it follows an answer, except for who reads further up`, async ({ page, server }) => {
    await page.setViewportSize(viewport);
    const turns = Array.from({ length: 6 }, (_, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', text: `${at}\n\n\n\n\n\n` }));
    await page.addInitScript((turns) => localStorage.setItem('redraft.turns', JSON.stringify(turns)), turns);
    await openDemo(page, server);
    await settings(page, { 'Longest answer, in tokens': '120' });
    /** Pixels of the conversation below what is in sight, and how far it was scrolled. */
    const place = () =>
      page.evaluate(() => {
        const list = document.getElementById('messages');
        const [item, form] = [list?.lastElementChild, document.getElementById('ask')];
        return { below: Math.round((item?.getBoundingClientRect().bottom ?? 0) - (form?.getBoundingClientRect().top ?? 0)), above: (list?.scrollTop ?? 0) + scrollY };
      });
    const question = page.getByLabel('Your message');
    await question.fill('and?');
    await question.press('Enter');
    await expect(answers(page).last().locator('.token').nth(2)).toBeAttached();
    await page.evaluate(() => {
      document.getElementById('messages')?.scrollTo(0, 0);
      scrollTo(0, 0);
    });
    await expect(status(page)).toHaveText(/Answer complete/);
    expect(await place()).toMatchObject({ above: 0 });
    expect((await place()).below).toBeGreaterThan(100);
    await ask(page, 'more');
    expect((await place()).below).toBeLessThanOrEqual(0);
  });
}

test('a conversation that outgrows the context goes on without its beginning', async ({ page, server }) => {
  const words = 'many words that fill the context '.repeat(3);
  const turns = Array.from({ length: 12 }, (_, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', text: `${at}: ${words}` }));
  await page.addInitScript((turns) => localStorage.setItem('redraft.turns', JSON.stringify(turns)), turns);
  await openDemo(page, server);
  await settings(page, { 'Longest answer, in tokens': '4' });
  await ask(page, 'short');
  await expect(page.getByRole('alert')).toBeHidden();
  const leftOut = page.locator('.left-out');
  await expect(leftOut).toHaveCount(1);
  await expect(leftOut).toHaveText(/no longer shown what is above/);
  // The first turn that is shown is the user's, and the question is.
  await expect(page.locator('.left-out + .message.user')).toHaveCount(1);
  await expect(page.locator('.message')).toHaveCount(14);
  await ask(page, 'and again');
  await expect(leftOut).toHaveCount(1);
  // A question that does not fit by itself comes back, with a reason.
  const long = words.repeat(20).trim();
  await page.getByLabel('Your message').fill(long);
  await page.getByLabel('Your message').press('Enter');
  await expect(page.getByRole('alert')).toHaveText(/context/);
  await expect(page.getByLabel('Your message')).toHaveValue(long);
  await ask(page, 'short again');
  await expect(page.getByRole('alert')).toBeHidden();
  await page.getByRole('button', { name: 'New chat' }).click();
  await expect(leftOut).toHaveCount(0);
});

for (const [what, why] of [['a worker that ends', /the worker failed/], ['a module that fails', /the WebAssembly module failed/]] as const) {
  test(`${what} is replaced, and the question can be sent again`, async ({ page, server }) => {
    await openDemo(page, server);
    await settings(page, { 'Longest answer, in tokens': '4' });
    await ask(page, 'first');
    await page.workers()[0]?.evaluate((what) => {
      if (what === 'a worker that ends') return self.close();
      GPUQueue.prototype.submit = () => {
        throw new Error('thrown through the module');
      };
    }, what);
    const question = page.getByLabel('Your message');
    await question.fill('second');
    await question.press('Enter');
    await expect(page.getByRole('alert')).toHaveText(/^The answer broke off: .* loaded again/);
    await expect(page.getByRole('alert')).toHaveText(why);
    await expect(question).toHaveValue('second');
    await expect(question).toBeFocused();
    await question.press('Enter');
    await expect(page.locator('.message.user .text')).toHaveText(['first', 'second']);
    await expect(status(page)).toHaveText(/Answer complete/);
    await expect(answers(page)).toHaveCount(2);
    await expect(page.getByRole('alert')).toBeHidden();
  });
}

test('what a load did otherwise than asked is shown', async ({ page, server }) => {
  await page.goto(`${server.origin}/demo/`);
  const session = await page.context().newCDPSession(page);
  await session.send('Storage.overrideQuotaForOrigin', { origin: server.origin, quotaSize: 12 << 20 });
  await page.getByLabel('Address of a GGUF file').fill(`${server.origin}/fixtures/tiny.gguf?pad=${20 << 20}`);
  await load(page).click();
  await expect(page.getByLabel('Your message')).toBeVisible();
  await expect(page.locator('#warnings')).toHaveText(/^The model is kept in memory only and will be downloaded again/);
  await page.getByRole('button', { name: 'Change model' }).click();
  await expect(page.locator('#warnings')).toBeEmpty();
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
  // The caption counts what is marked in the picture, and the marks are those of what the boxes say.
  const caption = (await page.locator('#tree-caption').textContent()) ?? '';
  expect(await tree.getAttribute('aria-label')).toBe(caption);
  const titles = await tree.locator('g > title').allTextContents();
  const said = (pattern: RegExp): number => Number(pattern.exec(caption)?.[1] ?? 0);
  const rings = await tree.locator('rect.ring').count();
  expect(rings, caption).toBe(said(/(\d+) of them in the picture/));
  expect(rings).toBe(titles.filter((title) => title.includes('thought over again')).length);
  expect(said(/(\d+) thought over again/)).toBeGreaterThan(0);
  expect(said(/: (\d+) of/), caption).toBe(titles.length - 1);
  const unsure = await tree.locator('g.unsure > title').allTextContents();
  const percent = (title: string): number => Number(/unsure (\d+) %/.exec(title)?.[1] ?? -1);
  expect(unsure.every((title) => percent(title) >= 50), unsure.join()).toBe(true);
  expect(unsure.length).toBeGreaterThanOrEqual(titles.filter((title) => percent(title) > 50).length);
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

test('copying an answer says whether it was copied', async ({ page, server }) => {
  await openDemo(page, server);
  await settings(page, { 'Longest answer, in tokens': '4' });
  const question = page.getByLabel('Your message');
  await question.fill('Hello there');
  await question.press('Enter');
  await expect(status(page)).toHaveText(/Answer complete/);
  for (const [clipboard, word] of [['refuses', 'Copying failed'], ['takes', 'Copied'], ['is missing', 'Copying failed']] as const) {
    await page.evaluate((clipboard) => {
      const writeText = () => (clipboard === 'takes' ? Promise.resolve() : Promise.reject(new DOMException('not allowed', 'NotAllowedError')));
      Object.defineProperty(navigator, 'clipboard', { configurable: true, value: clipboard === 'is missing' ? undefined : { writeText } });
    }, clipboard);
    await page.locator('.message.assistant .tools button').first().click();
    await expect(page.locator('.message.assistant .tools button').first(), clipboard).toHaveText(word);
    await expect(status(page)).toHaveText(`${word}.`);
  }
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
  await page.evaluate(() => {
    const [phase, words] = [document.getElementById('loading-phase'), document.getElementById('loading-words')];
    globalThis.said = [];
    if (phase) new MutationObserver(() => said.push(phase.textContent ?? '')).observe(phase, { childList: true });
    // Rewritten all the time, so not for reading out.
    if (words?.closest('[role=status], [aria-live]')) said.push('every piece');
  });
  await address.fill(`${server.origin}/fixtures/tiny.gguf?pad=${20 << 20}&slow=50`);
  await load(page).click();
  await expect(page.locator('#loading-words')).toHaveText(/Downloading: .* of 21 MB/);
  await expect(page.locator('#loading-words')).not.toHaveText(/Downloading: [0-5]\.\d MB/);
  expect(await page.evaluate(() => globalThis.said)).toEqual(['Downloading']);
  await expect(page.getByRole('heading', { name: 'Loading tiny.gguf' })).toBeVisible();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(load(page)).toBeVisible();
  await expect(page.getByRole('alert')).toBeHidden();
  await address.fill(`${server.origin}/fixtures/absent.gguf`);
  await load(page).click();
  await expect(page.getByRole('alert')).toHaveText(/404/);
  // It is in sight, and what was entered can be put right.
  await expect(page.getByRole('alert')).toBeInViewport();
  await expect(address).toHaveValue(`${server.origin}/fixtures/absent.gguf`);
  await address.press('End');
  await address.press('Backspace');
  await load(page).click();
  await expect(page.getByRole('alert')).toHaveText(/absent\.ggu: .*404/);
  await page.getByText('A file of mine').click();
  await load(page).click();
  await expect(page.getByRole('alert')).toHaveText(/Choose a GGUF file/);
});

test('after the first load everything works offline', async ({ page }) => {
  const server = await serve();
  await openDemo(page, server);
  await page.evaluate(() => navigator.serviceWorker.ready);
  server.close();
  await expect(fetch(server.origin)).rejects.toThrow();
  await page.goto(`${server.origin}/demo/index.html?again`);
  // What an address led to is offered as itself from now on.
  const kept = page.getByRole('radio', { name: /^tiny\.gguf/ });
  await expect(page.locator('.model', { has: kept })).toContainText('already in this browser');
  await kept.check();
  await load(page).click();
  await settings(page, { 'Longest answer, in tokens': '4' });
  await ask(page, 'hi');
  await page.goto(`${server.origin}/demo/bench.html`);
  await expect(page.getByRole('radio', { name: /^tiny\.gguf/ })).toBeVisible();
  await page.goto(`${server.origin}/demo/`);
  await page.getByRole('button', { name: 'Delete downloaded models' }).click();
  await expect(kept).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Delete downloaded models' })).toBeHidden();
});

test('a new version of the page replaces what is kept of the old one', async ({ context, page }) => {
  const folder = mkdtempSync(join(tmpdir(), 'redraft-demo-'));
  cpSync(built, folder, { recursive: true });
  const server = await serve({ app: folder });
  const shells = (page: Page) => page.evaluate(async () => (await caches.keys()).filter((name) => name.startsWith('redraft-shell')));
  await page.goto(`${server.origin}/app/`);
  await page.evaluate(() => navigator.serviceWorker.ready);
  const old = await shells(page);
  expect(old).toHaveLength(1);
  const change = (file: string, pattern: RegExp, text: string): void => {
    const source = readFileSync(join(folder, file), 'utf8');
    expect(source).toMatch(pattern);
    writeFileSync(join(folder, file), source.replace(pattern, text));
  };
  change('index.html', /<title>.*<\/title>/, '<title>the next one</title>');
  change('shell.js', /"version":"\w+"/, '"version":"next"');
  await page.goto(`${server.origin}/app/`);
  await expect(page).toHaveTitle('the next one');
  // An open page may still need files of its own version, so the new one waits.
  await expect.poll(() => page.evaluate(async () => (await navigator.serviceWorker.getRegistration())?.waiting?.state)).toBe('installed');
  expect(await shells(page)).toHaveLength(2);
  await page.close();
  const next = await context.newPage();
  await next.goto(`${server.origin}/app/`);
  await expect.poll(() => shells(next)).toHaveLength(1);
  expect(await shells(next)).not.toEqual(old);
  server.close();
  await next.reload();
  await expect(next).toHaveTitle('the next one');
  await expect(load(next)).toBeVisible();
  rmSync(folder, { recursive: true, force: true });
});

test('the benchmark measures every way and finds the same answers', async ({ page, server }) => {
  await page.goto(`${server.origin}/demo/bench.html`);
  await page.getByLabel('Address of a GGUF file').fill(`${server.origin}/fixtures/tiny.gguf`);
  await page.getByLabel('Drafter file').setInputFiles(join(fixtures, 'tiny.drafter.safetensors'));
  for (const [label, value] of [['Tokens an answer', '12'], ['Repetitions', '1'], ['Prompts', '1']] as const) await page.getByLabel(label).fill(value);
  await page.evaluate(() => {
    const phase = document.getElementById('phase');
    globalThis.said = [];
    if (phase) new MutationObserver(() => said.push(phase.textContent ?? '')).observe(phase, { childList: true });
  });
  await page.getByRole('button', { name: 'Measure' }).press('Enter');
  await expect(page.getByRole('button', { name: 'Stop' })).toBeFocused();
  await expect(page.locator('#status')).toHaveText(/^Done: 1 repetitions of 1 prompts, 12 tokens each/);
  await expect(page.getByRole('button', { name: 'Measure' })).toBeFocused();
  // Each phase is said when it begins, once, whatever its percentages.
  const said = await page.evaluate(() => globalThis.said);
  expect(said.filter((words) => words === 'measuring')).toHaveLength(1);
  expect(said.filter((words, at) => words === said[at - 1] || words.includes('%'))).toEqual([]);
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
  expect(await faults(page)).toEqual([]);
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
    expect(await faults(page)).toEqual([]);
    await loadTiny(page, server, true);
    await settings(page, { 'Longest answer, in tokens': '16', Seed: '4' });
    await page.getByLabel('Drafting').selectOption('reconsider');
    await page.getByLabel('Your message').fill('What do you see?');
    await page.getByLabel('Your message').press('Enter');
    await expect(status(page)).toHaveText(/Answer complete/);
    await page.screenshot({ path: join(pictures, `${name}-chat.png`), fullPage: true });
    expect(await faults(page)).toEqual([]);
    // What can be worked, and guesses that were rejected, stand out; axe-core looks at words only.
    for (const selector of ['#question', '#speculation', '#compare', '#open-settings', '#regenerate']) expect(await contrast(page, selector, 'border-top-color'), selector).toBeGreaterThanOrEqual(3);
    for (const selector of ['.tree path:not(.accepted)', '.tree rect']) expect(await contrast(page, selector, 'stroke'), selector).toBeGreaterThanOrEqual(3);
    // Nothing sticks out sideways, and the colours follow the system.
    const sticksOut = (): Promise<boolean> => page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    expect(await sticksOut()).toBe(false);
    const brightness = await page.evaluate(() => {
      const [red = 0, green = 0, blue = 0] = (getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g) ?? []).map(Number);
      return (red + green + blue) / 3;
    });
    if (colorScheme === 'dark') expect(brightness).toBeLessThan(90);
    else expect(brightness).toBeGreaterThan(160);
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.screenshot({ path: join(pictures, `${name}-settings.png`) });
    expect(await faults(page)).toEqual([]);
    await page.goto(`${server.origin}/demo/bench.html`);
    await expect(page.getByRole('button', { name: 'Measure' })).toBeVisible();
    await expect(page.getByLabel('An address')).toBeVisible();
    await page.screenshot({ path: join(pictures, `${name}-bench.png`), fullPage: true });
    expect(await faults(page)).toEqual([]);
    expect(await sticksOut()).toBe(false);
  });
}
