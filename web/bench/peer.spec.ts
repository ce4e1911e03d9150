/** Plain and speculative decoding beside onnxruntime-web on the same prompts, in one run of the browser. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@playwright/test';
import { loadPeer } from './onnx.ts';
import { RESULTS, RUNTIME, gpuSeconds, loadRedraft, needed, serveAll, setting } from './setting.ts';

interface Message {
  readonly role: 'system' | 'user';
  readonly content: string;
}

const PROMPTS: readonly (readonly Message[])[] = [
  [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Name three colours.' }],
  [{ role: 'system', content: 'You know much.' }, { role: 'user', content: 'Why is the sky blue?' }],
];

/** Shorter and different from the start: answering it makes redraft forget what it has computed of a prompt. */
const OTHER: readonly Message[] = [{ role: 'system', content: '.' }];

/** Ways of redraft, by what is asked of it. */
const WAYS = {
  plain: 'off',
  auto: 'auto',
  'chain of 1': { mode: 'chain', nodes: 1, depth: 1 },
} as const;

type Way = keyof typeof WAYS;

const PEER = 'onnxruntime-web';

interface Run {
  readonly way: string;
  readonly prompt: number;
  /** The prompt, where it was measured: for speculation it is the same and the drafter's short one. */
  readonly prefill: { readonly tokens: number; readonly seconds: number; readonly gpuSeconds: number } | null;
  readonly ids: readonly number[];
  /** Of the tokens after the first. */
  readonly decodeSeconds: number;
  /** Processor seconds of the GPU process for each token that the decoding loop gave. */
  readonly gpuSecondsPerToken: number;
  readonly tau: number | null;
}

const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return ((sorted[Math.ceil(middle) - 1] ?? Number.NaN) + (sorted[Math.floor(middle)] ?? Number.NaN)) / 2;
};

const spread = (values: readonly number[], digits: number): string =>
  `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)} … ${Math.max(...values).toFixed(digits)})`;

/** How many leading ids two answers have in common. */
const common = (a: readonly number[], b: readonly number[]): number => {
  const first = a.findIndex((id, at) => id !== b[at]);
  return first < 0 ? a.length : first;
};

const templated = (messages: readonly Message[]): string =>
  `${messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join('')}<|im_start|>assistant\n`;

function table(runs: readonly Run[]): string {
  const speed = (run: Run): number => (run.ids.length - 1) / run.decodeSeconds;
  const of = (way: string): Run[] => runs.filter((run) => run.way === way);
  const plain = median(of('plain').map(speed));
  const rows = [...new Set(runs.map((run) => run.way))].map((way) => {
    const own = of(way);
    const same = own.map((run) => common(run.ids, of('plain').find((other) => other.prompt === run.prompt)?.ids ?? []));
    const lengths = own.map((run) => Math.min(run.ids.length, of('plain').find((other) => other.prompt === run.prompt)?.ids.length ?? 0));
    const prefills = own.flatMap((run) => run.prefill ?? []);
    const taus = own.flatMap((run) => run.tau ?? []);
    return [
      way,
      prefills.length > 0 ? spread(prefills.map((of) => of.tokens / of.seconds), 2) : '–',
      prefills.length > 0 ? median(prefills.map((of) => of.gpuSeconds / of.tokens)).toFixed(2) : '–',
      spread(own.map(speed), 3),
      (median(own.map(speed)) / plain).toFixed(3),
      median(own.map((run) => run.gpuSecondsPerToken)).toFixed(2),
      taus.length > 0 ? (taus.reduce((sum, tau) => sum + tau, 0) / taus.length).toFixed(2) : '–',
      same.map((count, at) => `${count} of ${lengths[at]}`).join(', '),
    ];
  });
  const head = ['way', 'prefill tokens/s', 'CPU s', 'decode tokens/s', 'relative', 'CPU s', 'tau', 'ids as plain'];
  const widths = head.map((name, at) => Math.max(name.length, ...rows.map((row) => row[at]?.length ?? 0)));
  return [head, ...rows].map((row) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  ')).join('\n');
}

test('redraft and onnxruntime-web answer the same prompts', async ({ page, browser }) => {
  needed(join(RUNTIME, 'ort.webgpu.bundle.min.mjs'), 'onnxruntime-web', 'npm --prefix web/bench ci installs it');
  const exported = process.env['REDRAFT_ONNX'];
  if (!exported) throw new Error('REDRAFT_ONNX must name the folder of the exported model; web/bench/export_onnx.py makes it and says how');
  needed(join(exported, 'genai_config.json'), 'the exported model', 'web/bench/export_onnx.py makes it and says how');
  const tokens = setting('REDRAFT_BENCH_TOKENS', 24);
  const peerTokens = setting('REDRAFT_BENCH_PEER_TOKENS', 8);
  const repeats = setting('REDRAFT_BENCH_REPEATS', 1);
  const prompts = Math.min(setting('REDRAFT_BENCH_PROMPTS', PROMPTS.length), PROMPTS.length);
  if (tokens < 2 || peerTokens < 2) throw new Error('answers of one token have no decoding to measure: ask for 2 at least');

  const server = await serveAll({ runtime: RUNTIME, onnx: exported });
  const cpu = await gpuSeconds(browser);
  const info = await loadRedraft(page, server);
  const ids = await page.evaluate(async (texts) => {
    const all = [];
    for (const text of texts) all.push(await engine.tokenize(text));
    return all;
  }, PROMPTS.map(templated));
  const version = await page.evaluate(loadPeer, { runtime: '/runtime/ort.webgpu.bundle.min.mjs', folder: '/onnx' });
  console.log(`Chromium ${browser.version()}, ${info.adapter}, kernels ${info.path}, ${info.tiles}; onnxruntime-web ${version}`);

  const ask = (messages: readonly Message[], way: Way, most: number) =>
    page.evaluate(async (request) => {
      const answer = await engine.chat.completions.create(request);
      return { ids: answer.choices[0].tokens.map((token) => token.id), usage: answer.usage };
    }, { messages, max_tokens: most, ignore_eos: true, speculation: WAYS[way] });
  /** What `work` gives, and what it took of the processor. */
  const costing = async <T>(work: () => Promise<T>): Promise<[T, number]> => {
    const before = await cpu();
    const result = await work();
    return [result, (await cpu()) - before];
  };
  const ofRedraft = async (way: Way, prompt: number, count: number): Promise<Run> => {
    const messages = PROMPTS[prompt] ?? OTHER;
    let prefill: Run['prefill'] = null;
    if (way === 'plain') {
      await ask(OTHER, way, 1);
      const [{ usage }, gpu] = await costing(() => ask(messages, way, 1));
      expect(usage.prompt_tokens, 'the prompt that the peer gets').toBe(ids[prompt]?.length);
      prefill = { tokens: usage.timings.prefill_tokens, seconds: usage.timings.prefill_seconds, gpuSeconds: gpu };
    }
    // The prompt but for its last token is computed: as many steps as tokens.
    const [whole, gpu] = await costing(() => ask(messages, way, count));
    const { timings, speculation } = whole.usage;
    return { way, prompt, ids: whole.ids, prefill, decodeSeconds: timings.decode_seconds, gpuSecondsPerToken: gpu / whole.ids.length, tau: speculation?.tau ?? null };
  };
  const ofPeer = async (prompt: number, count: number): Promise<Run> => {
    const own = ids[prompt] ?? [];
    const [first, before] = await costing(() => page.evaluate((of) => peer.prefill(of), own));
    const [rest, gpu] = await costing(() => page.evaluate((steps) => peer.decode(steps), count - 1));
    const prefill = { tokens: own.length, seconds: first.seconds, gpuSeconds: before };
    return { way: PEER, prompt, ids: [first.id, ...rest.ids], prefill, decodeSeconds: rest.seconds, gpuSecondsPerToken: gpu / (count - 1), tau: null };
  };

  const runs: Run[] = [];
  const { adapter, path, tiles } = info;
  const file = join(RESULTS, 'peer.json');
  mkdirSync(RESULTS, { recursive: true });
  const heard = (run: Run, counts: boolean): void => {
    console.log(`${counts ? '' : 'not counted: '}${JSON.stringify(run)}`);
    if (!counts) return;
    runs.push(run);
    const report = { date: new Date().toISOString(), chromium: browser.version(), adapter, path, tiles, onnxruntimeWeb: version, prompts: PROMPTS.slice(0, prompts), tokens, peerTokens, repeats, runs };
    writeFileSync(file, `${JSON.stringify(report, null, 1)}\n`);
  };
  const answered = new Set<string>();
  const take = async (way: Way | typeof PEER, prompt: number): Promise<void> => {
    const answer = (count: number): Promise<Run> => (way === PEER ? ofPeer(prompt, count) : ofRedraft(way, prompt, count));
    // What compiles on first use, and what steps cost, which `auto` measures once, is no part of the figures.
    if (!answered.has(way)) heard(await answer(2), false);
    answered.add(way);
    heard(await answer(way === PEER ? peerTokens : tokens), true);
  };
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    for (let prompt = 0; prompt < prompts; prompt += 1) {
      for (const way of ['plain', PEER, 'chain of 1', 'auto'] as const) await take(way, prompt);
    }
  }
  server.close();

  console.log(table(runs));
  for (let prompt = 0; prompt < prompts; prompt += 1) {
    for (const way of ['plain', PEER]) {
      const found = runs.find((run) => run.way === way && run.prompt === prompt);
      console.log(`prompt ${prompt}, ${way}: ${found?.ids.slice(0, 16).join(' ')}`);
    }
  }
  console.log(`all of it in ${file}`);
  // The peer's weights are rounded once more than the file's, so its answer may part; speculation may not.
  for (const run of runs.filter((other) => other.way in WAYS)) {
    const plain = runs.find((other) => other.way === 'plain' && other.prompt === run.prompt);
    expect(run.ids, `${run.way}, prompt ${run.prompt}`).toEqual(plain?.ids);
  }
});
