import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { fixtures, models } from './server.ts';
import { type Reference, agreed, expect, needs, test } from './support.ts';

/** Answers of another program in float32, which the repository does not have. */
const others = fileURLToPath(new URL('../../../shared/data/reference/smollm2_reference.json', import.meta.url));
/** What the plain f32 forward answers to prompts of our own; written by `cargo xtask web test`. */
const own = join(fixtures, 'smollm2.json');
const MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf';
const DRAFTER = 'drafters/smollm2-135m.safetensors';

interface Message {
  readonly role: string;
  readonly content: string;
}

type Case = Omit<Reference, 'prompt'> & { readonly messages: readonly Message[] };

/** Keys and values in 16 bits move the gap between the two best by 0.013 at most on these prompts. */
const TIE = 0.03;
const TOKENS = 12;
const SHAPE = { nodes: 7, depth: 3, width: 2, children: 2 } as const;
/** A software GPU is slow: each prompt is answered plainly and in some other ways, the first of each file with the drafter. */
const WAYS = [[{ mode: 'reconsider', ...SHAPE }, { mode: 'tree', ...SHAPE }], ['lookup']] as const;

function casesOf(): Case[] {
  const ours = (JSON.parse(readFileSync(own, 'utf8')) as readonly Reference[]).map(({ prompt, ...rest }): Case => ({ ...rest, messages: [{ role: 'user', content: prompt }] }));
  const theirs = needs(others) ? (JSON.parse(readFileSync(others, 'utf8')) as { prompts: Case[] }).prompts : [];
  return [...ours.slice(0, 2), ...theirs.slice(0, 2)];
}

test('SmolLM2 answers as forwards in float32 do, with and without its drafter', async ({ blank, server }) => {
  test.setTimeout(1_800_000);
  test.skip(!needs(join(models, MODEL)), `the model is missing: cargo xtask setup fetches ${MODEL}`);
  test.skip(!needs(own), `what is compared with is missing: cargo xtask web test writes ${own}`);
  server.requests.length = 0;
  const cases = casesOf();
  const questions = cases.map(({ messages }, at) => ({ messages: [...messages], ways: [...(WAYS[at % 2] ?? [])] }));
  const found = await blank.evaluate(
    async ({ url, questions, tokens }) => {
      const known = redraft.MODELS.find(({ name }) => name === 'smollm2-135m');
      const engine = await redraft.createWorkerEngine({ model: { url, ...(known && { sha256: known.sha256 }) }, context: 512 });
      const loaded = engine.info.heapBytes;
      const answers = [];
      for (const { messages, ways } of questions) {
        const given = [];
        for (const speculation of ['off' as const, ...ways]) {
          const answer = await engine.chat.completions.create({ messages, max_tokens: tokens, ignore_eos: true, speculation });
          given.push({ ids: answer.choices[0].tokens.map((token) => token.id), usage: answer.usage });
        }
        answers.push(given);
      }
      const { info } = engine;
      await engine.dispose();
      return { answers, info, loaded, drafterBytes: known?.drafter?.size ?? 0 };
    },
    { url: `${server.origin}/models/${MODEL}`, questions, tokens: TOKENS },
  );
  // Nobody named a drafter: the hash of the model did.
  expect(server.requests.filter((request) => request.includes(DRAFTER))).toEqual([`/dist/${DRAFTER}`]);
  expect(found.info.drafter).toBe(true);
  for (const [at, { prompt_ids, greedy_ids, margins }] of cases.entries()) {
    const [plain, ...drafted] = found.answers[at] ?? [];
    const count = Math.min(agreed(margins, TIE), TOKENS);
    expect(count, 'something is compared').toBeGreaterThan(8);
    expect(plain?.usage.prompt_tokens).toBe(prompt_ids.length);
    expect(plain?.ids.slice(0, count)).toEqual(greedy_ids.slice(0, count));
    expect(drafted).toHaveLength(WAYS[at % 2]?.length ?? 0);
    for (const { ids } of drafted) expect(ids).toEqual(plain?.ids);
  }
  const reconsidered = found.answers.flatMap((given, at) => (at % 2 === 0 ? [given[1]?.usage.speculation] : []));
  expect(Math.max(...reconsidered.map((one) => one?.reconsidered ?? 0)), 'guesses are thought over again').toBeGreaterThan(0);
  expect(Math.max(...reconsidered.map((one) => one?.accepted ?? 0)), 'guesses of the drafter come true').toBeGreaterThan(0);
  const [, lookedUp] = found.answers[1] ?? [];
  expect(lookedUp?.usage.speculation?.accepted, 'what stood in the question comes again').toBeGreaterThan(0);
  // The heap held pieces of the model's file, never the file. The drafter passes through it whole: as bytes, as read, as packed.
  expect(found.info.modelBytes).toBe(98_362_432);
  expect(found.info.heapBytes).toBeLessThan((32 << 20) + 3 * found.drafterBytes);
  const times = found.answers.map((given) => given.map(({ usage }) => [usage.timings, usage.speculation?.tau]));
  console.log(`heap: ${found.loaded} bytes after the load, ${found.info.heapBytes} at most; ${cases.length} prompts; ${JSON.stringify(times)}`);
});
