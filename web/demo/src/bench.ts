/** Measures plain and speculative decoding in the same tab. */
import { type Engine, type PlanMode, createWorkerEngine, probe } from '@redraft/web';
import { softwareWords } from './adapter';
import { byId, keepFocus, make, say, show, warn } from './dom';
import { keepOffline } from './offline';
import { openPicker } from './picker';
import { loadText } from './state';

const PROMPTS = [
  'Repeat this list twice: red, green, blue, yellow, orange, violet.',
  'Write a Python function that returns the n-th Fibonacci number.',
  'A farmer has 12 apples and gives 5 to his neighbour. How many are left? Explain step by step.',
  'Describe a sunset over the sea in a few sentences.',
];

type Way = 'off' | 'auto' | PlanMode;

interface Run {
  readonly way: Way;
  readonly prompt: number;
  readonly tokensPerSecond: number;
  readonly tau: number | null;
  readonly same: boolean;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return ((sorted[Math.ceil(middle) - 1] ?? Number.NaN) + (sorted[Math.floor(middle)] ?? Number.NaN)) / 2;
}

/** Every way answers a prompt before the next prompt comes, after one round that counts for nothing. */
async function measure(engine: Engine, count: { tokens: number; repeats: number; prompts: number }, signal: AbortSignal, heard: (runs: readonly Run[], share: number) => void): Promise<Run[]> {
  const ways: readonly Way[] = ['off', 'lookup', ...(engine.info.drafter ? (['chain', 'tree', 'reconsider'] as const) : []), 'auto'];
  const runs: Run[] = [];
  const total = (count.repeats + 1) * count.prompts * ways.length;
  let done = 0;
  for (let repeat = 0; repeat <= count.repeats; repeat += 1) {
    for (const [prompt, content] of PROMPTS.slice(0, count.prompts).entries()) {
      let plain = '';
      for (const way of ways) {
        const messages = [{ role: 'user', content }];
        const answer = await engine.chat.completions.create({ messages, max_tokens: count.tokens, ignore_eos: true, speculation: way, signal });
        const ids = answer.choices[0].tokens.map((token) => token.id).join();
        if (way === 'off') plain = ids;
        const { timings, speculation } = answer.usage;
        done += 1;
        // The first time warms up what compiles on first use, and measures the costs that the automatic choice goes by.
        if (repeat > 0 && timings.decode_tokens_per_second !== null) {
          runs.push({ way, prompt, tokensPerSecond: timings.decode_tokens_per_second, tau: speculation?.tau ?? null, same: ids === plain });
        }
        heard(runs, done / total);
      }
    }
  }
  return runs;
}

function table(runs: readonly Run[]): void {
  const results = byId('results', HTMLTableElement);
  const of = (way: Way): Run[] => runs.filter((run) => run.way === way);
  const speeds = (way: Way): number[] => of(way).map((run) => run.tokensPerSecond);
  const plain = median(speeds('off'));
  const rows = [...new Set(runs.map((run) => run.way))].map((way) => {
    const values = speeds(way);
    const taus = of(way).flatMap((run) => run.tau ?? []);
    const cells = [
      median(values).toFixed(2),
      `${Math.min(...values).toFixed(2)} … ${Math.max(...values).toFixed(2)}`,
      (median(values) / plain).toFixed(2),
      taus.length > 0 ? (taus.reduce((sum, tau) => sum + tau, 0) / taus.length).toFixed(2) : '–',
      of(way).every((run) => run.same) ? 'yes' : 'NO',
    ];
    const name = way === 'off' ? 'plain' : way;
    return make('tr', { 'data-way': way }, make('th', { scope: 'row' }, name), ...cells.map((cell) => make('td', {}, cell)));
  });
  results.tBodies[0]?.replaceChildren(...rows);
  show(results, rows.length > 0);
}

function problem(words: string): void {
  const element = byId('problem', HTMLElement);
  element.textContent = words;
  show(element, true);
}

/** Shows what is going on; that it goes on is not said aloud each time, only that something else begins. */
function status(phase: string, share?: number): void {
  byId('status', HTMLElement).textContent = share === undefined ? phase : `${phase}: ${Math.round(share * 100)} %`;
  say(byId('phase', HTMLElement), phase);
}

/** Lets the user stop what runs, or start it. */
function running(controller: AbortController | undefined): void {
  const [run, cancel] = [byId('run', HTMLButtonElement), byId('cancel', HTMLButtonElement)];
  cancel.onclick = () => controller?.abort();
  if (controller) {
    show(cancel, true);
    keepFocus(() => (run.disabled = true), cancel);
  } else {
    run.disabled = false;
    keepFocus(() => show(cancel, false), run);
  }
}

async function start(): Promise<void> {
  const theme = loadText('theme', 'system');
  if (theme !== 'system') document.documentElement.dataset['theme'] = theme;
  const found = await probe();
  if (!found.ok) problem(`${found.reason} ${found.advice}`);
  else if (found.adapter.software) {
    byId('software', HTMLElement).textContent = softwareWords(found.adapter, navigator.userAgent);
    show(byId('software', HTMLElement), true);
  }
  const choose = await openPicker();
  const number = (id: string): number => byId(id, HTMLInputElement).valueAsNumber;
  byId('bench', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    void (async () => {
      const controller = new AbortController();
      running(controller);
      show(byId('problem', HTMLElement), false);
      warn([]);
      let engine: Engine | undefined;
      try {
        const { title: _, ...options } = choose();
        engine = await createWorkerEngine({ ...options, signal: controller.signal, onProgress: ({ phase, progress }) => status(phase, progress) });
        const { info } = engine;
        warn(info.warnings);
        engine.on('warning', (text) => warn([text]));
        const count = { tokens: number('tokens'), repeats: number('repeats'), prompts: number('prompts') };
        const runs = await measure(engine, count, controller.signal, (soFar, share) => {
          table(soFar);
          status('measuring', share);
        });
        status(`Done: ${count.repeats} repetitions of ${count.prompts} prompts, ${count.tokens} tokens each.`);
        const copy = byId('copy', HTMLButtonElement);
        show(copy, true);
        const { adapter, path, tiles } = info;
        const report = { date: new Date().toISOString(), userAgent: navigator.userAgent, adapter, path, tiles, ...count, runs };
        copy.onclick = () => void navigator.clipboard.writeText(JSON.stringify(report, null, 1));
      } catch (error) {
        status('Stopped.');
        if (!controller.signal.aborted) problem(error instanceof Error ? error.message : String(error));
      } finally {
        await engine?.dispose();
        running(undefined);
      }
    })();
  });
}

keepOffline();
void start();
