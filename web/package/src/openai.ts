/** OpenAI's shapes, as far as redraft has them, and what it adds. */
import type { Plan, PlanMode, SpeculationReport, TokenOrigin } from './wasm.js';

export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

export interface ChatMessage {
  /** `system`, `user`, `assistant`, or what else the model's template knows. */
  readonly role: string;
  readonly content: string | readonly TextPart[];
}

/** Whether and how to draft ahead; the answer is the same token for token. */
export type SpeculationChoice = 'off' | 'auto' | PlanMode | ({ readonly mode: PlanMode } & Partial<Plan>);

export interface ChatCompletionParams {
  readonly messages: readonly ChatMessage[];
  /** One engine has one model; what stands here is repeated in the answer. */
  readonly model?: string;
  readonly stream?: boolean;
  readonly stream_options?: { readonly include_usage?: boolean };
  /** 0, the default, is greedy. */
  readonly temperature?: number;
  readonly top_p?: number;
  readonly top_k?: number;
  readonly min_p?: number;
  /** The same seed, prompt and parameters give the same answer. Without one, each answer draws its own. */
  readonly seed?: number;
  readonly stop?: string | readonly string[] | null;
  /** As many as the context holds, if absent. */
  readonly max_tokens?: number | null;
  readonly max_completion_tokens?: number | null;
  readonly presence_penalty?: number;
  readonly frequency_penalty?: number;
  readonly repetition_penalty?: number;
  /** Tokens that the penalties look back on; 64 if absent. */
  readonly penalty_window?: number;
  readonly logit_bias?: Readonly<Record<string, number>> | null;
  readonly logprobs?: boolean | null;
  /** 0 to 20. */
  readonly top_logprobs?: number;
  /** Go on after end-of-sequence tokens. */
  readonly ignore_eos?: boolean;
  /** `auto` where a drafter is loaded, else `off`. */
  readonly speculation?: SpeculationChoice;
  readonly signal?: AbortSignal;
}

export interface TokenLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
}

export interface ContentLogprob extends TokenLogprob {
  readonly top_logprobs: readonly TokenLogprob[];
}

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  /** What speculation did; absent if it was off. */
  readonly speculation?: SpeculationReport;
  readonly timings: {
    /** Until the first token. */
    readonly prefill_seconds: number;
    /** Of those, what the first answer with `speculation: 'auto'` took to measure what steps cost; else 0. */
    readonly measuring_seconds: number;
    readonly prefill_tokens: number;
    readonly decode_seconds: number;
    readonly decode_tokens: number;
    /** Tokens a second after the first; null for an answer of one. */
    readonly decode_tokens_per_second: number | null;
  };
}

export type FinishReason = 'stop' | 'length';

export interface ChatCompletion {
  readonly id: string;
  readonly object: 'chat.completion';
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
  readonly choices: readonly [
    {
      readonly index: 0;
      readonly message: { readonly role: 'assistant'; readonly content: string };
      readonly finish_reason: FinishReason;
      readonly logprobs: { readonly content: readonly ContentLogprob[] } | null;
      /** Ids and origins of all tokens, an end-of-sequence token included. */
      readonly tokens: readonly TokenInfo[];
    },
  ];
  readonly usage: Usage;
}

export interface TokenInfo {
  readonly id: number;
  readonly origin: TokenOrigin;
}

export interface ChatCompletionChunk {
  readonly id: string;
  readonly object: 'chat.completion.chunk';
  readonly created: number;
  readonly model: string;
  /** Empty in the last chunk with `include_usage`. */
  readonly choices: readonly {
    readonly index: 0;
    readonly delta: { readonly role?: 'assistant'; readonly content?: string };
    readonly finish_reason: FinishReason | null;
    readonly logprobs: { readonly content: readonly ContentLogprob[] } | null;
    /** The token that this chunk is of. */
    readonly token?: TokenInfo;
  }[];
  /** In the last chunk. */
  readonly usage?: Usage | null;
}
