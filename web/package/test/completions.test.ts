import { expect, test } from 'vitest';
import { Completions } from '../src/completions.js';
import { RedraftError } from '../src/errors.js';
import type { ChatCompletionChunk } from '../src/openai.js';
import type { RoundTree } from '../src/wasm.js';
import { FakeBackend, REPORT, SPECULATION, TOKENS } from './fake.js';

const messages = [{ role: 'user', content: 'hi' }] as const;

function completions(backend: FakeBackend, events = {}): Completions {
  return new Completions(backend, 'tiny', () => events);
}

async function all(stream: AsyncIterable<ChatCompletionChunk>): Promise<ChatCompletionChunk[]> {
  const chunks: ChatCompletionChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

test('a whole answer', async () => {
  const answer = await completions(new FakeBackend()).create({ messages });
  expect(answer).toMatchObject({
    object: 'chat.completion',
    model: 'tiny',
    choices: [{ index: 0, message: { role: 'assistant', content: REPORT.text }, finish_reason: 'stop', logprobs: null }],
    usage: {
      prompt_tokens: 9, completion_tokens: 4, total_tokens: 13, prompt_tokens_details: { cached_tokens: 4 }, speculation: SPECULATION,
      timings: { prefill_seconds: 1, measuring_seconds: 0.25, decode_tokens_per_second: 1.5 },
    },
  });
  expect(answer.choices[0].tokens.map((token) => token.origin)).toEqual(['target', 'lookup', 'lookup', 'target']);
});

test('chunks in order, the last with the usage', async () => {
  const chunks = await all(await completions(new FakeBackend()).create({ messages, stream: true }));
  expect(chunks[0]?.choices[0]?.delta).toEqual({ role: 'assistant', content: '' });
  expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe(REPORT.text);
  expect(chunks.slice(1, -1).map((chunk) => chunk.choices[0]?.token?.id)).toEqual(TOKENS.map((token) => token.id));
  expect(chunks.at(-1)).toMatchObject({ choices: [{ finish_reason: 'stop' }], usage: { completion_tokens: 4 } });
  expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
});

test('include_usage gives the usage in a chunk of its own, as OpenAI does', async () => {
  const params = { messages, stream: true, stream_options: { include_usage: true } } as const;
  const chunks = await all(await completions(new FakeBackend()).create(params));
  expect(chunks.at(-2)).toMatchObject({ choices: [{ finish_reason: 'stop' }], usage: null });
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 13 } });
});

test('reasons to finish', async () => {
  for (const [stopReason, expected] of [['eos', 'stop'], ['stop', 'stop'], ['length', 'length'], ['context', 'length']] as const) {
    const backend = new FakeBackend();
    backend.report = { ...REPORT, stopReason };
    expect((await completions(backend).create({ messages })).choices[0].finish_reason).toBe(expected);
  }
});

test('log-probabilities keep their bytes', async () => {
  const backend = new FakeBackend();
  const chosen = { id: 5, text: 'Hi', bytes: [72, 105], logProb: -0.5 };
  const never = { id: 6, text: 'no', bytes: [110, 111], logProb: null };
  backend.tokens = [{ id: 5, text: 'Hi', origin: 'target', logProbs: { chosen, top: [chosen, never] } }];
  const answer = await completions(backend).create({ messages, logprobs: true, top_logprobs: 2 });
  expect(answer.choices[0].logprobs?.content).toEqual([
    {
      token: 'Hi', bytes: [72, 105], logprob: -0.5,
      top_logprobs: [{ token: 'Hi', bytes: [72, 105], logprob: -0.5 }, { token: 'no', bytes: [110, 111], logprob: -Infinity }],
    },
  ]);
});

test('leaving the loop stops the answer', async () => {
  const backend = new FakeBackend();
  const stream = await completions(backend).create({ messages, stream: true });
  for await (const chunk of stream) if (chunk.choices[0]?.token) break;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(backend.stopped).toBe(1);
});

test('aborting throws once in the loop, by signal or by hand', async () => {
  for (const byHand of [true, false]) {
    const backend = new FakeBackend();
    const controller = new AbortController();
    const stream = await completions(backend).create({ messages, stream: true, signal: controller.signal });
    const seen: string[] = [];
    const error: unknown = await (async () => {
      for await (const chunk of stream) {
        seen.push(chunk.choices[0]?.delta.content ?? '');
        if (seen.length === 2) byHand ? stream.abort() : controller.abort();
      }
    })().then(() => undefined, (thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'aborted', name: 'AbortError' });
    expect(seen.join('')).toBe('Hi');
    expect(await all(stream)).toEqual([]);
  }
});

test('an error in the middle comes behind the tokens before it', async () => {
  const backend = new FakeBackend();
  backend.failure = new RedraftError('device_lost', 'gone');
  const stream = await completions(backend).create({ messages, stream: true });
  const seen: string[] = [];
  const error: unknown = await (async () => {
    for await (const chunk of stream) seen.push(chunk.choices[0]?.delta.content ?? '');
  })().then(() => undefined, (thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: 'device_lost' });
  expect(seen.join('')).toBe(REPORT.text);
});

test('trees are asked for only while somebody listens', async () => {
  const tree: RoundTree = {
    plan: { mode: 'lookup', nodes: 3, depth: 3, width: 1, children: 1, reconsider: 0, refined: 0, gate: 'off', lookup: true },
    start: 4, nodes: [], accepted: [0],
  };
  const backend = new FakeBackend();
  backend.tokens = [{ id: 5, text: 'Hi', origin: 'target', round: tree }];
  const heard: RoundTree[] = [];
  await completions(backend, { round: (found: RoundTree) => heard.push(found) }).create({ messages });
  await completions(backend).create({ messages });
  expect(heard).toEqual([tree]);
  expect(backend.requests.map((request) => request.trace)).toEqual([true, false]);
});

test('speculation that was given up is a warning', async () => {
  const backend = new FakeBackend();
  backend.report = { ...REPORT, warning: 'the drafter is damaged' };
  const heard: string[] = [];
  await completions(backend, { warning: (text: string) => heard.push(text) }).create({ messages });
  expect(heard).toEqual(['the drafter is damaged']);
});
