import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { models } from './server.ts';
import { agreed, expect, needs, test } from './support.ts';

const data = fileURLToPath(new URL('../../../shared/data/reference/smollm2_reference.json', import.meta.url));
const MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf';
const DRAFTER = 'drafters/smollm2-135m.safetensors';

interface Prompt {
  readonly messages: { readonly role: string; readonly content: string }[];
  readonly prompt_ids: number[];
  readonly greedy_ids: number[];
  readonly margins: number[];
}

/** Keys and values in 16 bits move the gap between the two best by 0.013 at most on these prompts. */
const TIE = 0.03;
const TOKENS = 12;

test('SmolLM2 answers as the float32 reference, with and without its drafter', async ({ blank, server }) => {
  test.setTimeout(1_800_000);
  test.skip(!needs(data), `the reference data is missing: ${data}`);
  test.skip(!needs(join(models, MODEL)), `the model is missing: cargo xtask setup fetches ${MODEL}`);
  server.requests.length = 0;
  const { sha256, prompts } = JSON.parse(readFileSync(data, 'utf8')) as { sha256: string; prompts: Prompt[] };
  const chosen = prompts.slice(0, 2);
  const found = await blank.evaluate(
    async ({ model, questions, tokens }) => {
      const engine = await redraft.createWorkerEngine({ model, context: 512 });
      const answers = [];
      // A software GPU is slow: the first question is answered with the drafter, the other by looking things up.
      for (const [at, messages] of questions.entries()) {
        const ask = { messages, max_tokens: tokens, ignore_eos: true };
        const plain = await engine.chat.completions.create({ ...ask, speculation: 'off' });
        const drafted = await engine.chat.completions.create({ ...ask, speculation: at === 0 ? { mode: 'tree', nodes: 7, depth: 3, width: 2, children: 2 } : 'lookup' });
        answers.push([plain, drafted].map((answer) => ({ ids: answer.choices[0].tokens.map((token) => token.id), usage: answer.usage })));
      }
      const { info } = engine;
      await engine.dispose();
      const drafter = redraft.MODELS.find(({ name }) => name === 'smollm2-135m')?.drafter;
      return { answers, info, drafterBytes: drafter?.size ?? 0 };
    },
    { model: { url: `${server.origin}/models/${MODEL}`, sha256 }, questions: chosen.map((prompt) => prompt.messages), tokens: TOKENS },
  );
  // Nobody named a drafter: the hash of the model did.
  expect(server.requests.filter((request) => request.includes(DRAFTER))).toEqual([`/dist/${DRAFTER}`]);
  expect(found.info.drafter).toBe(true);
  let accepted = 0;
  for (const [at, { prompt_ids, greedy_ids, margins }] of chosen.entries()) {
    const [plain, drafted] = found.answers[at] ?? [];
    const count = Math.min(agreed(margins, TIE), TOKENS);
    expect(count, 'something is compared').toBeGreaterThan(8);
    expect(plain?.usage.prompt_tokens).toBe(prompt_ids.length);
    expect(plain?.ids.slice(0, count)).toEqual(greedy_ids.slice(0, count));
    expect(drafted?.ids).toEqual(plain?.ids);
    if (at === 0) accepted = drafted?.usage.speculation?.accepted ?? 0;
  }
  expect(accepted, 'guesses of the drafter come true').toBeGreaterThan(0);
  // The heap held pieces of the model's file, never the file. The drafter passes through it whole: as bytes, as read, as packed.
  expect(found.info.modelBytes).toBe(98_362_432);
  expect(found.info.heapBytes).toBeLessThan((32 << 20) + 3 * found.drafterBytes);
  console.log(`heap ${found.info.heapBytes} bytes; ${JSON.stringify(found.answers.map(([plain, drafted]) => [plain?.usage.timings, drafted?.usage.timings, drafted?.usage.speculation?.tau]))}`);
});
