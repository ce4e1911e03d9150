import { U32, fieldsOf, flag, invalid, number, oneOf, onlyKnown, shown, signalOf, text, wholeNumber } from './checks.js';
import { RedraftError } from './errors.js';
import type { ChatCompletionParams } from './openai.js';
import type { AnswerRequest } from './wasm.js';

/** Fields of OpenAI's interface that would change the answer, and that redraft does not have. */
const UNSUPPORTED = ['tools', 'tool_choice', 'functions', 'function_call', 'response_format', 'audio', 'modalities', 'prediction'];

const KNOWN = new Set([
  'messages', 'model', 'stream', 'stream_options', 'temperature', 'top_p', 'top_k', 'min_p', 'seed', 'stop', 'max_tokens',
  'max_completion_tokens', 'presence_penalty', 'frequency_penalty', 'repetition_penalty', 'penalty_window', 'logit_bias',
  'logprobs', 'top_logprobs', 'ignore_eos', 'speculation', 'signal',
  // Of no consequence for a model that runs here.
  'n', 'user', 'store', 'metadata', 'service_tier', 'parallel_tool_calls',
]);

const MODES = ['lookup', 'chain', 'tree', 'reconsider'] as const;
const GATES = ['off', 'top1', 'entropy', 'calibrated', 'random'] as const;
const SIZES = ['nodes', 'depth', 'width', 'children', 'reconsider', 'refined'] as const;

/** Fields of a message that would change the answer. */
const UNSUPPORTED_OF_MESSAGE = ['tool_calls', 'tool_call_id', 'function_call', 'audio'];

/** The request of the module, checked as far as the module could not say what was meant. Ranges are the module's affair. */
export function toRequest(params: ChatCompletionParams, drafter: boolean, trace: boolean): AnswerRequest {
  checkFields(params);
  const maxTokens = wholeNumber('max_tokens', params.max_completion_tokens ?? params.max_tokens ?? undefined, 0);
  const logProbs = logprobs(params);
  const seed = wholeNumber('seed', params.seed, 0);
  return {
    prompt: { messages: params.messages.map(toMessage) },
    ...(maxTokens !== undefined && { maxTokens: Math.min(maxTokens, U32) }),
    sampling: defined({
      temperature: number('temperature', params.temperature),
      topP: number('top_p', params.top_p),
      topK: wholeNumber('top_k', params.top_k, 0, U32),
      minP: number('min_p', params.min_p),
      presencePenalty: number('presence_penalty', params.presence_penalty),
      frequencyPenalty: number('frequency_penalty', params.frequency_penalty),
      repetitionPenalty: number('repetition_penalty', params.repetition_penalty),
      penaltyWindow: wholeNumber('penalty_window', params.penalty_window, 0, U32),
      logitBias: biases(params.logit_bias),
      seed: seed ?? Math.floor(Math.random() * 2 ** 48),
    }),
    stop: stops(params.stop),
    ...(logProbs !== undefined && { logProbs }),
    ignoreEos: params.ignore_eos === true,
    speculation: speculation(params.speculation ?? (drafter ? 'auto' : 'off')),
    trace,
  };
}

function checkFields(params: ChatCompletionParams): void {
  const fields = fieldsOf('the argument', params, "an object such as { messages: [{ role: 'user', content: 'Hello' }] }");
  const foreign = UNSUPPORTED.find((name) => fields[name] !== undefined && fields[name] !== null);
  if (foreign) throw new RedraftError('unsupported', `${foreign} is not supported; leave it out`);
  if (fields['n'] !== undefined && fields['n'] !== null && fields['n'] !== 1) {
    throw new RedraftError('unsupported', `n is ${shown(fields['n'])}; one answer at a time is made, ask again for another`);
  }
  const unknown = Object.keys(fields).find((name) => !KNOWN.has(name) && !UNSUPPORTED.includes(name));
  if (unknown) throw invalid(`there is no parameter ${unknown}`);
  if (!Array.isArray(fields['messages']) || fields['messages'].length === 0) {
    throw invalid(`messages must be an array of at least one { role, content }, found ${Array.isArray(fields['messages']) ? 'an empty one' : shown(fields['messages'])}`);
  }
  if (fields['model'] !== undefined && fields['model'] !== null) text('model', fields['model']);
  for (const name of ['stream', 'logprobs', 'ignore_eos']) flag(name, fields[name]);
  if (fields['stream_options'] !== undefined && fields['stream_options'] !== null) {
    flag('stream_options.include_usage', fieldsOf('stream_options', fields['stream_options'], 'an object such as { include_usage: true }')['include_usage']);
  }
  signalOf(fields['signal']);
}

function toMessage(message: unknown, index: number): { role: string; content: string } {
  const where = `messages[${index}]`;
  const fields = fieldsOf(where, message, 'an object such as { role, content }');
  const foreign = UNSUPPORTED_OF_MESSAGE.find((name) => fields[name] !== undefined && fields[name] !== null);
  if (foreign) throw new RedraftError('unsupported', `${where}.${foreign} is not supported; leave it out`);
  const { content } = fields;
  const role = text(`${where}.role`, fields['role']);
  if (role === '') throw invalid(`${where}.role is empty; it is system, user or assistant`);
  if (typeof content === 'string') return { role, content };
  if (!Array.isArray(content)) throw invalid(`${where}.content must be a text or an array of text parts, found ${shown(content)}`);
  const texts = content.map((part, at) => {
    const { type, text: words } = fieldsOf(`${where}.content[${at}]`, part, "a part such as { type: 'text', text }");
    if (type !== 'text') throw new RedraftError('unsupported', `${where}.content has a part of type ${shown(type)}; only text is supported`);
    return text(`${where}.content[${at}].text`, words);
  });
  return { role, content: texts.join('') };
}

function stops(stop: unknown): readonly string[] {
  const list = stop === undefined || stop === null ? [] : typeof stop === 'string' ? [stop] : stop;
  if (!Array.isArray(list) || list.some((one) => typeof one !== 'string' || one === '')) throw invalid('stop must be a text or an array of texts, none of them empty');
  return list;
}

function biases(bias: unknown): readonly (readonly [number, number])[] | undefined {
  if (bias === undefined || bias === null) return undefined;
  const fields = fieldsOf('logit_bias', bias, 'an object of token ids and biases');
  if (bias instanceof Map) throw invalid('logit_bias is a Map; pass Object.fromEntries of it');
  return Object.entries(fields).map(([token, value]) => {
    if (!/^\d+$/.test(token) || Number(token) > U32) throw invalid(`logit_bias names "${token}"; its keys are token ids`);
    const found = number(`logit_bias[${token}]`, value);
    if (found === undefined) throw invalid(`logit_bias[${token}] must be a number, found ${shown(value)}`);
    return [Number(token), found];
  });
}

function logprobs(params: ChatCompletionParams): number | undefined {
  const top = wholeNumber('top_logprobs', params.top_logprobs, 0);
  if (params.logprobs !== true) {
    if (top !== undefined && top > 0) throw invalid('top_logprobs needs logprobs: true');
    return undefined;
  }
  if (top !== undefined && top > 20) throw invalid(`top_logprobs must be 0 to 20, found ${top}`);
  return top ?? 0;
}

function speculation(choice: unknown): NonNullable<AnswerRequest['speculation']> {
  if (choice === 'off' || choice === 'auto') return choice;
  const { mode, gate, lookup, ...sizes } = typeof choice === 'string' ? { mode: choice } : fieldsOf('speculation', choice, 'off, auto, a mode or a plan');
  const found = MODES.find((one) => one === mode);
  if (!found) throw invalid(`speculation must be off, auto, ${MODES.join(', ')}, or a plan with one of these modes, found ${shown(mode)}`);
  onlyKnown('speculation', sizes, new Set(SIZES));
  return {
    plan: {
      mode: found,
      ...defined(Object.fromEntries(SIZES.map((name) => [name, wholeNumber(`speculation.${name}`, sizes[name], 0, U32)]))),
      ...defined({ gate: oneOf('speculation.gate', gate, GATES), lookup: lookup === undefined ? undefined : flag('speculation.lookup', lookup) }),
    },
  };
}

/** Without the fields that are undefined. */
function defined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
