import { expect, test } from 'vitest';
import { RedraftError } from '../src/errors.js';
import type { ChatCompletionParams } from '../src/openai.js';
import { toRequest } from '../src/request.js';

const messages = [{ role: 'user', content: 'hi' }] as const;

function refused(params: object): RedraftError {
  try {
    toRequest({ messages, ...params } as ChatCompletionParams, false, false);
  } catch (error) {
    if (error instanceof RedraftError) return error;
  }
  throw new Error(`${JSON.stringify(params)} was taken`);
}

test('names of OpenAI become those of the module', () => {
  const request = toRequest(
    {
      messages, max_tokens: 5, temperature: 0.5, top_p: 0.9, top_k: 40, min_p: 0.05, seed: 3, stop: 'x', presence_penalty: 1,
      frequency_penalty: 2, repetition_penalty: 1.1, penalty_window: 32, logit_bias: { '7': -100 }, logprobs: true, top_logprobs: 2,
      speculation: { mode: 'tree', nodes: 7 },
    },
    false,
    true,
  );
  expect(request).toEqual({
    prompt: { messages: [{ role: 'user', content: 'hi' }] },
    maxTokens: 5,
    sampling: {
      temperature: 0.5, topP: 0.9, topK: 40, minP: 0.05, seed: 3, presencePenalty: 1, frequencyPenalty: 2, repetitionPenalty: 1.1,
      penaltyWindow: 32, logitBias: [[7, -100]],
    },
    stop: ['x'],
    logProbs: 2,
    ignoreEos: false,
    speculation: { plan: { mode: 'tree', nodes: 7 } },
    trace: true,
  });
});

test('what is absent is left to the module, but a seed is drawn', () => {
  const request = toRequest({ messages }, false, false);
  expect(request.maxTokens).toBeUndefined();
  expect(Object.keys(request.sampling ?? {})).toEqual(['seed']);
  expect(Number.isSafeInteger(request.sampling?.seed)).toBe(true);
});

test('speculation is on by itself only with a drafter', () => {
  expect(toRequest({ messages }, false, false).speculation).toBe('off');
  expect(toRequest({ messages }, true, false).speculation).toBe('auto');
  expect(toRequest({ messages, speculation: 'off' }, true, false).speculation).toBe('off');
  expect(toRequest({ messages, speculation: 'lookup' }, true, false).speculation).toEqual({ plan: { mode: 'lookup' } });
});

test('text parts are joined, max_completion_tokens counts before max_tokens', () => {
  const parts = [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }] as const;
  const request = toRequest({ messages: [{ role: 'user', content: parts }], max_tokens: 9, max_completion_tokens: 4 }, false, false);
  expect(request.prompt).toEqual({ messages: [{ role: 'user', content: 'ab' }] });
  expect(request.maxTokens).toBe(4);
});

test('what is no object is named', () => {
  for (const params of [undefined, null, 'hi', 5, []]) {
    expect(() => toRequest(params as unknown as ChatCompletionParams, false, false), String(params)).toThrow(/^the argument must be an object such as \{ messages/);
  }
});

test('null stands for absent where OpenAI has it so', () => {
  const absent = { max_tokens: null, stop: null, logit_bias: null, logprobs: null, tools: null } as object;
  expect(toRequest({ messages, seed: 1, ...absent }, false, false)).toEqual(toRequest({ messages, seed: 1 }, false, false));
});

test('what cannot be is named', () => {
  const cases: [object, string, string][] = [
    [{ messages: [] }, 'invalid_request', 'messages'],
    [{ messages: [{ content: 'x' }] }, 'invalid_request', 'role'],
    [{ messages: [{ role: 'user', content: 5 }] }, 'invalid_request', 'content'],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, 'unsupported', 'image_url'],
    [{ tools: [] }, 'unsupported', 'tools'],
    [{ response_format: { type: 'json_object' } }, 'unsupported', 'response_format'],
    [{ n: 2 }, 'unsupported', 'n is 2'],
    [{ temprature: 1 }, 'invalid_request', 'temprature'],
    [{ temperature: 'hot' }, 'invalid_request', 'temperature'],
    [{ temperature: Number.NaN }, 'invalid_request', 'temperature'],
    [{ top_k: 1.5 }, 'invalid_request', 'top_k'],
    [{ max_tokens: -1 }, 'invalid_request', 'max_tokens'],
    [{ seed: 2 ** 60 }, 'invalid_request', 'seed'],
    [{ stop: [1] }, 'invalid_request', 'stop'],
    [{ logit_bias: { hello: 1 } }, 'invalid_request', 'hello'],
    [{ top_logprobs: 3 }, 'invalid_request', 'logprobs'],
    [{ logprobs: true, top_logprobs: 21 }, 'invalid_request', '21'],
    [{ speculation: 'wild' }, 'invalid_request', 'speculation'],
    [{ speculation: 5 }, 'invalid_request', 'speculation'],
    [{ speculation: { nodes: 7 } }, 'invalid_request', 'modes'],
    [{ speculation: { mode: 'tree', nodes: Number.NaN } }, 'invalid_request', 'speculation.nodes'],
    [{ speculation: { mode: 'tree', nodes: '7' } }, 'invalid_request', 'speculation.nodes'],
    [{ speculation: { mode: 'tree', gate: 'wide' } }, 'invalid_request', 'speculation.gate'],
    [{ speculation: { mode: 'tree', lookup: 1 } }, 'invalid_request', 'speculation.lookup'],
    [{ speculation: { mode: 'tree', node: 7 } }, 'invalid_request', 'node;'],
    [{ messages: 'hi' }, 'invalid_request', 'messages must be an array of at least one { role, content }, found "hi"'],
    [{ messages: [null] }, 'invalid_request', 'messages[0]'],
    [{ messages: ['hi'] }, 'invalid_request', 'messages[0]'],
    [{ messages: [{ role: 'user', content: null }] }, 'invalid_request', 'messages[0].content'],
    [{ messages: [{ role: '', content: 'x' }] }, 'invalid_request', 'role is empty'],
    [{ messages: [{ role: 'user', content: [null] }] }, 'invalid_request', 'content[0]'],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'invalid_request', 'content[0].text'],
    [{ messages: [{ role: 'assistant', content: 'x', tool_calls: [] }] }, 'unsupported', 'messages[0].tool_calls'],
    [{ stream: 'true' }, 'invalid_request', 'stream must be true or false, found "true"'],
    [{ stream_options: true }, 'invalid_request', 'stream_options'],
    [{ ignore_eos: 1 }, 'invalid_request', 'ignore_eos'],
    [{ logprobs: 3 }, 'invalid_request', 'logprobs'],
    [{ model: {} }, 'invalid_request', 'model'],
    [{ temperature: Infinity }, 'invalid_request', 'temperature'],
    [{ temperature: 1e300 }, 'invalid_request', '32 bits'],
    [{ top_k: 2 ** 40 }, 'invalid_request', 'top_k'],
    [{ top_k: -1 }, 'invalid_request', 'top_k'],
    [{ max_tokens: Infinity }, 'invalid_request', 'max_tokens'],
    [{ stop: '' }, 'invalid_request', 'stop'],
    [{ stop: {} }, 'invalid_request', 'stop'],
    [{ logit_bias: [1] }, 'invalid_request', 'logit_bias'],
    [{ logit_bias: new Map([[1, 2]]) }, 'invalid_request', 'Object.fromEntries'],
    [{ logit_bias: { 7: null } }, 'invalid_request', 'logit_bias[7]'],
    [{ logit_bias: { 99999999999: 1 } }, 'invalid_request', '99999999999'],
    [{ signal: new AbortController() }, 'invalid_request', 'pass its signal'],
    [{ signal: { aborted: false } }, 'invalid_request', 'signal must be an AbortSignal'],
  ];
  for (const [params, code, word] of cases) {
    const error = refused(params);
    expect(error.code, JSON.stringify(params)).toBe(code);
    expect(error.message, JSON.stringify(params)).toContain(word);
  }
});
