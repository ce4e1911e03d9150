import { RedraftError } from './errors.js';
import type { ChatCompletionParams, ChatMessage, SpeculationChoice } from './openai.js';
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

const MODES = new Set(['lookup', 'chain', 'tree', 'reconsider']);

function invalid(message: string): RedraftError {
  return new RedraftError('invalid_request', message);
}

/** The request of the module, checked as far as the module could not say what was meant. Ranges are the module's affair. */
export function toRequest(params: ChatCompletionParams, drafter: boolean, trace: boolean): AnswerRequest {
  checkFields(params);
  const maxTokens = wholeNumber('max_tokens', params.max_completion_tokens ?? params.max_tokens ?? undefined, 0);
  const logProbs = logprobs(params);
  const seed = wholeNumber('seed', params.seed, 0);
  return {
    prompt: { messages: params.messages.map(toMessage) },
    ...(maxTokens !== undefined && { maxTokens: Math.min(maxTokens, 2 ** 32 - 1) }),
    sampling: defined({
      temperature: number('temperature', params.temperature),
      topP: number('top_p', params.top_p),
      topK: wholeNumber('top_k', params.top_k, 0),
      minP: number('min_p', params.min_p),
      presencePenalty: number('presence_penalty', params.presence_penalty),
      frequencyPenalty: number('frequency_penalty', params.frequency_penalty),
      repetitionPenalty: number('repetition_penalty', params.repetition_penalty),
      penaltyWindow: wholeNumber('penalty_window', params.penalty_window, 0),
      logitBias: biases(params.logit_bias ?? undefined),
      seed: seed ?? Math.floor(Math.random() * 2 ** 48),
    }),
    stop: stops(params.stop ?? undefined),
    ...(logProbs !== undefined && { logProbs }),
    ignoreEos: params.ignore_eos === true,
    speculation: speculation(params.speculation ?? (drafter ? 'auto' : 'off')),
    trace,
  };
}

function checkFields(params: ChatCompletionParams): void {
  const fields: Record<string, unknown> = { ...params };
  const foreign = UNSUPPORTED.find((name) => fields[name] !== undefined && fields[name] !== null);
  if (foreign) throw new RedraftError('unsupported', `${foreign} is not supported; leave it out`);
  if (fields['n'] !== undefined && fields['n'] !== null && fields['n'] !== 1) {
    throw new RedraftError('unsupported', `n is ${String(fields['n'])}; one answer at a time is made, ask again for another`);
  }
  const unknown = Object.keys(fields).find((name) => !KNOWN.has(name) && !UNSUPPORTED.includes(name));
  if (unknown) throw invalid(`there is no parameter ${unknown}`);
  if (!Array.isArray(params.messages) || params.messages.length === 0) {
    throw invalid('messages must be an array of at least one { role, content }');
  }
}

function toMessage(message: ChatMessage, index: number): { role: string; content: string } {
  const { role, content } = message;
  if (typeof role !== 'string') throw invalid(`messages[${index}].role must be a text`);
  if (typeof content === 'string') return { role, content };
  if (!Array.isArray(content)) throw invalid(`messages[${index}].content must be a text or an array of text parts`);
  const texts = content.map((part) => {
    if (part?.type !== 'text') throw new RedraftError('unsupported', `messages[${index}].content has a part of type ${String(part?.type)}; only text is supported`);
    return part.text;
  });
  return { role, content: texts.join('') };
}

function number(name: string, value: number | undefined | null): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw invalid(`${name} must be a number, found ${String(value)}`);
  return value;
}

function wholeNumber(name: string, value: number | undefined | null, least: number): number | undefined {
  const found = number(name, value);
  if (found !== undefined && (!Number.isSafeInteger(found) || found < least)) {
    throw invalid(`${name} must be a whole number from ${least} to 2^53 - 1, found ${found}`);
  }
  return found;
}

function stops(stop: string | readonly string[] | undefined): readonly string[] {
  const list = stop === undefined ? [] : typeof stop === 'string' ? [stop] : stop;
  if (!Array.isArray(list) || list.some((text) => typeof text !== 'string')) throw invalid('stop must be a text or an array of texts');
  return list;
}

function biases(bias: Readonly<Record<string, number>> | undefined): readonly (readonly [number, number])[] | undefined {
  if (bias === undefined) return undefined;
  return Object.entries(bias).map(([token, value]) => {
    if (!/^\d+$/.test(token)) throw invalid(`logit_bias names "${token}"; its keys are token ids`);
    return [Number(token), number(`logit_bias[${token}]`, value) ?? 0];
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

function speculation(choice: SpeculationChoice): NonNullable<AnswerRequest['speculation']> {
  if (choice === 'off' || choice === 'auto') return choice;
  const plan = typeof choice === 'string' ? { mode: choice } : choice;
  if (typeof plan !== 'object' || plan === null || !MODES.has(plan.mode)) {
    throw invalid(`speculation must be off, auto, ${[...MODES].join(', ')}, or a plan with one of these modes`);
  }
  return { plan };
}

/** Without the fields that are undefined. */
function defined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
