import type { Backend } from './backend.js';
import { RedraftError, asRedraftError, throwIfAborted } from './errors.js';
import type {
  ChatCompletion, ChatCompletionChunk, ChatCompletionParams, ContentLogprob, FinishReason, TokenLogprob, Usage,
} from './openai.js';
import { AsyncQueue } from './queue.js';
import { toRequest } from './request.js';
import type { AnswerReport, LogProbReport, RoundTree, TokenReport } from './wasm.js';

/** What an answer tells the engine while it is made. */
export interface AnswerEvents {
  /** Called with the draft tree of each round; rounds are slower then. */
  readonly round?: ((tree: RoundTree) => void) | undefined;
  readonly warning?: ((text: string) => void) | undefined;
}

/** An answer as it is made: chunks for `for await`. Leaving the loop stops it. */
export class ChatCompletionStream implements AsyncIterable<ChatCompletionChunk> {
  readonly #queue: AsyncQueue<ChatCompletionChunk>;
  readonly #stop: () => void;

  constructor(queue: AsyncQueue<ChatCompletionChunk>, stop: () => void) {
    this.#queue = queue;
    this.#stop = stop;
  }

  /** Stops the answer; the loop that reads it throws an error with the code `aborted`. */
  abort(): void {
    this.#stop();
  }

  [Symbol.asyncIterator](): AsyncIterator<ChatCompletionChunk> {
    return this.#queue;
  }
}

/** The interface of OpenAI's client. */
export class Completions {
  readonly #backend: Backend;
  readonly #model: string;
  readonly #events: () => AnswerEvents;

  constructor(backend: Backend, model: string, events: () => AnswerEvents) {
    this.#backend = backend;
    this.#model = model;
    this.#events = events;
  }

  /** Answers a conversation: the whole answer, or with `stream: true` its chunks. */
  create(params: ChatCompletionParams & { readonly stream: true }): Promise<ChatCompletionStream>;
  create(params: ChatCompletionParams & { readonly stream?: false }): Promise<ChatCompletion>;
  create(params: ChatCompletionParams): Promise<ChatCompletion | ChatCompletionStream>;
  async create(params: ChatCompletionParams): Promise<ChatCompletion | ChatCompletionStream> {
    const events = this.#events();
    const request = toRequest(params, this.#backend.info.drafter, events.round !== undefined);
    throwIfAborted(params.signal ?? undefined);
    const head = { id: `chatcmpl-${crypto.randomUUID()}`, created: Math.floor(Date.now() / 1000), model: params.model ?? this.#model };
    const hear = (token: TokenReport): void => {
      if (token.round) events.round?.(token.round);
    };
    const finish = (report: AnswerReport): FinishReason => {
      if (report.warning !== null) events.warning?.(report.warning);
      if (report.stopReason === 'cancelled') throw new RedraftError('aborted', 'the answer was stopped');
      return report.stopReason === 'length' || report.stopReason === 'context' ? 'length' : 'stop';
    };
    if (params.stream === true) {
      const controller = new AbortController();
      const stop = (): void => controller.abort();
      const signal = params.signal ? AbortSignal.any([params.signal, controller.signal]) : controller.signal;
      const queue = new AsyncQueue<ChatCompletionChunk>(stop);
      const chunk = (choice: ChatCompletionChunk['choices'][number] | undefined, usage?: Usage | null): void =>
        queue.push({ ...head, object: 'chat.completion.chunk', choices: choice ? [choice] : [], ...(usage !== undefined && { usage }) });
      const blank = { index: 0, finish_reason: null, logprobs: null } as const;
      chunk({ ...blank, delta: { role: 'assistant', content: '' } });
      const onToken = (token: TokenReport): void => {
        hear(token);
        const { id, origin, text } = token;
        chunk({ ...blank, delta: { content: text }, logprobs: logprobsOf([token]), token: { id, origin } });
      };
      this.#backend
        .answer(request, onToken, signal)
        .then((report) => {
          const apart = params.stream_options?.include_usage === true;
          chunk({ ...blank, delta: {}, finish_reason: finish(report) }, apart ? null : usageOf(report));
          if (apart) chunk(undefined, usageOf(report));
          queue.end();
        })
        .catch((error: unknown) => queue.fail(asRedraftError(error)));
      return new ChatCompletionStream(queue, stop);
    }
    const tokens: TokenReport[] = [];
    const onToken = (token: TokenReport): void => {
      hear(token);
      tokens.push(token);
    };
    const report = await this.#backend.answer(request, onToken, params.signal);
    return {
      ...head,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: report.text },
          finish_reason: finish(report),
          logprobs: logprobsOf(tokens),
          tokens: tokens.map(({ id, origin }) => ({ id, origin })),
        },
      ],
      usage: usageOf(report),
    };
  }
}

function logprobsOf(tokens: readonly TokenReport[]): { content: ContentLogprob[] } | null {
  const content = tokens.flatMap(({ logProbs }) => (logProbs ? [{ ...logprob(logProbs.chosen), top_logprobs: logProbs.top.map(logprob) }] : []));
  return content.length > 0 ? { content } : null;
}

function logprob({ text, bytes, logProb }: LogProbReport): TokenLogprob {
  return { token: text, bytes, logprob: logProb ?? -Infinity };
}

function usageOf(report: AnswerReport): Usage {
  const { timings, promptTokens, ids, reusedTokens, speculation } = report;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: ids.length,
    total_tokens: promptTokens + ids.length,
    prompt_tokens_details: { cached_tokens: reusedTokens },
    ...(speculation && { speculation }),
    timings: {
      prefill_seconds: timings.prefillSeconds,
      measuring_seconds: timings.measuringSeconds,
      prefill_tokens: timings.prefillTokens,
      decode_seconds: timings.decodeSeconds,
      decode_tokens: timings.decodeTokens,
      decode_tokens_per_second: timings.decodeTokens > 0 && timings.decodeSeconds > 0 ? timings.decodeTokens / timings.decodeSeconds : null,
    },
  };
}
