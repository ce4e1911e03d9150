import type { Backend, EngineInfo } from '../src/backend.js';
import { RedraftError, abortedError, throwIfAborted } from '../src/errors.js';
import type { AnswerReport, AnswerRequest, TokenReport } from '../src/wasm.js';

export const INFO: EngineInfo = {
  adapter: 'fake', path: 'plain', architecture: 'llama', layers: 1, hidden: 32, vocab: 320, context: 64, trainedContext: 64,
  chatTemplate: true, drafter: false, memory: { weights: 1, kvCache: 1, activations: 1, sampling: 1, total: 4 },
  tiles: '', tilesAgree: true, warnings: [], costs: null, modelBytes: 10, heapBytes: 20, costsFrom: null,
};

export const SPECULATION = {
  rounds: 2, plain: 1, drafted: 6, accepted: 2, tau: 2, reconsidered: 0, refined: 0, duplicates: 0, rescues: 0, lookupHits: 2,
  acceptanceByDepth: [1], history: [],
};

export const REPORT: AnswerReport = {
  text: 'Hi 🦙!', ids: [5, 6, 7, 2], promptTokens: 9, reusedTokens: 4, stopReason: 'eos',
  timings: { prefillSeconds: 1, measuringSeconds: 0.25, prefillTokens: 5, decodeSeconds: 2, decodeTokens: 3 }, speculation: SPECULATION, warning: null,
};

export const TOKENS: TokenReport[] = [
  { id: 5, text: 'Hi', origin: 'target' },
  { id: 6, text: '', origin: 'lookup' },
  { id: 7, text: ' 🦙!', origin: 'lookup' },
  { id: 2, text: '', origin: 'target' },
];

/** Answers with what it is made with, a token a turn of the event loop. */
export class FakeBackend implements Backend {
  readonly info = INFO;
  readonly requests: AnswerRequest[] = [];
  tokens = TOKENS;
  report = REPORT;
  failure: RedraftError | undefined;
  stopped = 0;
  disposed = 0;

  async answer(request: AnswerRequest, onToken: (token: TokenReport) => void, signal?: AbortSignal): Promise<AnswerReport> {
    this.requests.push(request);
    throwIfAborted(signal);
    for (const token of this.tokens) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (signal?.aborted) {
        this.stopped += 1;
        throw abortedError(signal);
      }
      onToken(token);
    }
    if (this.failure) throw this.failure;
    return this.report;
  }

  encode(text: string): Promise<number[]> {
    return Promise.resolve([...text].map((c) => c.codePointAt(0) ?? 0));
  }

  dispose(): Promise<void> {
    this.disposed += 1;
    return Promise.resolve();
  }
}
