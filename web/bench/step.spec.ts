/** Where the time of a step of plain decoding goes. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@playwright/test';
import { installMeter } from './meter.ts';
import { RESULTS, gpuSeconds, loadRedraft, serveAll, setting } from './setting.ts';

test('where the time of a step goes', async ({ page, browser }) => {
  const tokens = setting('REDRAFT_BENCH_TOKENS', 16) + 1;
  const server = await serveAll({});
  const cpu = await gpuSeconds(browser);
  await page.addInitScript(installMeter);
  const info = await loadRedraft(page, server);
  const answer = (each: boolean) =>
    page.evaluate(async ({ most, timed }) => {
      const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Name three colours.' }];
      const ask = { messages, ignore_eos: true, speculation: 'off' as const };
      await engine.chat.completions.create({ ...ask, max_tokens: 1 });
      Object.assign(meter, { each: timed, recording: 0, waiting: 0, submissions: 0, dispatches: 0 });
      meter.kernels.clear();
      const start = performance.now();
      const { choices } = await engine.chat.completions.create({ ...ask, max_tokens: most });
      const wall = performance.now() - start;
      meter.each = false;
      await meter.read();
      const { recording, waiting, submissions, dispatches, kernels } = meter;
      return { ids: choices[0].tokens.map((token) => token.id), wall, recording, waiting, submissions, dispatches, kernels: [...kernels].map(([label, of]) => ({ label, ...of })) };
    }, { most: tokens, timed: each });
  await answer(false);
  const before = await cpu();
  const whole = await answer(false);
  const seconds = (await cpu()) - before;
  const parts = await answer(true);
  server.close();

  // The last token of the prompt is computed again, so there are as many steps as tokens.
  const each = (value: number, digits = 2): string => (value / tokens).toFixed(digits);
  console.log(`Chromium ${browser.version()}, ${info.adapter}, kernels ${info.path}`);
  console.log(`a step: ${each(whole.wall)} ms in all, of which recording ${each(whole.recording)}, from submit to result ${each(whole.waiting)}`);
  console.log(`a step: ${each(whole.submissions)} submissions, ${each(whole.dispatches, 0)} dispatches, ${each(1000 * seconds)} ms of processor time in the GPU process (prompt token included)`);
  const total = parts.kernels.reduce((sum, kernel) => sum + kernel.ns, 0) / 1e6;
  console.log(`with a pass for each dispatch: ${each(parts.wall)} ms, of which between timestamps ${each(total)}`);
  for (const { label, ns, count } of parts.kernels.sort((a, b) => b.ns - a.ns)) {
    console.log(`${label.padEnd(44)} ${each(count, 0).padStart(4)} dispatches ${each(ns / 1e6).padStart(8)} ms ${((100 * ns) / 1e6 / total).toFixed(1).padStart(5)} %`);
  }
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(join(RESULTS, 'step.json'), `${JSON.stringify({ date: new Date().toISOString(), chromium: browser.version(), adapter: info.adapter, path: info.path, tokens, gpuSeconds: seconds, whole, parts }, null, 1)}\n`);
  expect(parts.ids, 'timing changes no answer').toEqual(whole.ids);
});
