/** The conversation: its turns, asking, stopping, asking again. */
import { type ChatMessage, type Engine, RedraftError, type SpeculationChoice, type TokenOrigin } from '@redraft/web';
import { byId, keepFocus, make, say, show } from './dom';
import type { Guesses } from './guesses';
import { type Piece, type Settings, type Turn, keep, loadTurns } from './state';

const NAMES: Record<TokenOrigin, string> = { target: 'plain', drafted: 'drafted', refined: 'refined', lookup: 'lookup' };

/** Pixels from its end within which the conversation follows what is written. */
const NEAR = 80;

/** What the page around the conversation does for it. */
export interface Host {
  settings(): Settings;
  /** An answer failed. */
  failed(error: unknown): void;
  /** An answer begins: what was wrong before is over. */
  begins(): void;
}

interface Answer extends Turn {
  pieces: Piece[];
}

export class Chat {
  readonly #list = byId('messages', HTMLOListElement);
  readonly #status = byId('status', HTMLElement);
  readonly #form = byId('ask', HTMLFormElement);
  readonly #question = byId('question', HTMLTextAreaElement);
  readonly #send = byId('send', HTMLButtonElement);
  readonly #stop = byId('stop', HTMLButtonElement);
  readonly #compare = byId('compare', HTMLButtonElement);
  readonly #same = byId('same', HTMLElement);
  readonly #guesses: Guesses;
  readonly #host: Host;
  #engine: Engine | undefined;
  #turns: Turn[] = loadTurns();
  /** The turn from which on the model is shown the conversation: what is before it does not fit its context any more. */
  #from = 0;
  #running: AbortController | undefined;
  /** The seed of the last answer, so that it can be made again. */
  #seed = 0;
  #speculated = false;

  constructor(guesses: Guesses, host: Host) {
    this.#guesses = guesses;
    this.#host = host;
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#ask();
    });
    this.#question.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      void this.#ask();
    });
    this.#stop.addEventListener('click', () => this.#running?.abort());
    document.addEventListener('keydown', (event) => {
      // In a dialog the key closes that, and nothing else.
      if (event.key === 'Escape' && !document.querySelector('dialog[open]')) this.#running?.abort();
    });
    this.#compare.addEventListener('click', () => void this.#again(true));
    this.#draw();
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    // Another model may have room for more.
    this.#from = 0;
    this.#draw();
    this.#question.focus();
  }

  async detach(): Promise<void> {
    this.#running?.abort();
    const engine = this.#engine;
    this.#engine = undefined;
    await engine?.dispose();
  }

  clear(): void {
    this.#running?.abort();
    this.#turns = [];
    this.#from = 0;
    this.#save();
    this.#guesses.clear();
    this.#compare.disabled = true;
    this.#draw();
    this.#question.focus();
  }

  #save(): void {
    keep('turns', this.#turns);
  }

  async #ask(): Promise<void> {
    const text = this.#question.value.trim();
    if (text === '' || this.#running || !this.#engine) return;
    this.#question.value = '';
    this.#turns.push({ role: 'user', text });
    this.#newSeed();
    await this.#answer(false);
  }

  #newSeed(): void {
    const { seed } = this.#host.settings();
    this.#seed = seed === '' ? Math.floor(Math.random() * 2 ** 31) : seed;
  }

  /** Takes the last answer back and makes it again: another one, or the same one the other way. */
  async #again(other: boolean): Promise<void> {
    if (this.#running || !this.#engine || this.#turns.at(-1)?.role !== 'assistant') return;
    const before = this.#turns.pop()?.text;
    if (!other) this.#newSeed();
    const after = await this.#answer(other);
    if (!other || after === undefined) return;
    this.#same.textContent =
      after === before ? 'The same answer, word for word.' : 'Another answer: the settings changed in between, or the first one was stopped.';
  }

  async #answer(other: boolean): Promise<string | undefined> {
    const engine = this.#engine;
    if (!engine) return undefined;
    // “The other way” is that of the answer it is compared with.
    const drafting = other && !this.#speculated ? this.#guesses.drafting() : this.#guesses.kind();
    const kind = other && this.#speculated ? 'off' : drafting;
    this.#speculated = kind !== 'off';
    const turn: Answer = { role: 'assistant', text: '', pieces: [] };
    this.#turns.push(turn);
    const controller = new AbortController();
    this.#running = controller;
    this.#host.begins();
    this.#same.textContent = '';
    this.#busy(true);
    this.#draw();
    this.#follow();
    let tokens: number | undefined;
    try {
      tokens = await this.#fitting(engine, turn, kind, controller.signal);
    } catch (error) {
      if (!(error instanceof RedraftError) || error.code !== 'aborted') this.#host.failed(error);
    }
    if (this.#running === controller) this.#running = undefined;
    this.#finish(turn, tokens);
    return tokens === undefined ? undefined : turn.text;
  }

  /** Answers, leaving out older turns where all of them do not fit the context; gives the number of tokens. */
  async #fitting(engine: Engine, turn: Answer, kind: SpeculationChoice, signal: AbortSignal): Promise<number> {
    for (;;) {
      try {
        return await this.#stream(engine, turn, kind, signal);
      } catch (error) {
        const full = error instanceof RedraftError && error.code === 'context_length_exceeded' && turn.text === '';
        if (!full || !this.#shorten()) throw error;
      }
    }
  }

  /** Leaves out the older half of what the model is shown; false where that is the question alone. */
  #shorten(): boolean {
    // Behind the question stands the answer that is being made.
    const last = this.#turns.length - 2;
    if (this.#from >= last) return false;
    this.#from = Math.ceil((this.#from + last) / 2);
    while (this.#turns[this.#from]?.role === 'assistant') this.#from += 1;
    this.#draw();
    this.#follow();
    return true;
  }

  async #stream(engine: Engine, turn: Answer, kind: SpeculationChoice, signal: AbortSignal): Promise<number> {
    const { system, seed: _, ...sampling } = this.#host.settings();
    const messages: ChatMessage[] = [
      ...(system.trim() === '' ? [] : [{ role: 'system', content: system }]),
      ...this.#turns.slice(this.#from, -1).map(({ role, text }) => ({ role, content: text })),
    ];
    const body = this.#list.lastElementChild?.querySelector('.text');
    // The first automatic choice on this adapter is preceded by a measurement, the only time that an answer is late for it.
    const measures = kind === 'auto' && engine.info.costs === null;
    const waiting = make('p', { class: 'note waiting' }, measures ? 'Measuring once what steps cost here, so that drafting is used where it pays …' : 'Reading …');
    body?.after(waiting);
    if (measures) say(this.#status, 'Measuring once what steps cost here.');
    const origins: TokenOrigin[] = [];
    const stream = await engine.chat.completions.create({ messages, ...sampling, seed: this.#seed, speculation: kind, stream: true, signal });
    for await (const { choices, usage } of stream) {
      const [choice] = choices;
      if (choice?.token) {
        waiting.remove();
        origins.push(choice.token.origin);
        this.#guesses.counts(origins);
        const text = choice.delta.content ?? '';
        if (text !== '') {
          const piece = { text, origin: choice.token.origin };
          turn.pieces.push(piece);
          turn.text += text;
          const follows = this.#behind() < NEAR;
          body?.append(span(piece));
          if (follows) this.#follow();
        }
      }
      if (usage) this.#guesses.numbers(usage, this.#speculated);
    }
    return origins.length;
  }

  /** What there is of an answer is kept; `tokens` is undefined where it did not come to its end. */
  #finish(turn: Answer, tokens: number | undefined): void {
    const follows = this.#behind() < NEAR;
    this.#busy(false);
    // A question without an answer goes back to where it can be sent again.
    if (this.#turns.includes(turn) && turn.text === '' && tokens === undefined) {
      this.#turns.pop();
      const question = this.#turns.pop();
      if (question && this.#question.value === '') this.#question.value = question.text;
    }
    this.#save();
    this.#draw();
    if (follows) this.#follow();
    this.#compare.disabled = this.#turns.at(-1)?.role !== 'assistant';
    // Said as a whole, since word for word nobody could listen to it.
    say(this.#status, tokens === undefined ? 'Answer stopped.' : `Answer complete, ${tokens} tokens. ${turn.text}`);
  }

  #busy(busy: boolean): void {
    keepFocus(() => {
      show(this.#send, !busy);
      show(this.#stop, busy);
    }, this.#question);
    // Not disabled meanwhile: whoever has just pressed it stays on it.
    this.#compare.setAttribute('aria-disabled', String(busy));
    if (busy) say(this.#status, 'Answering.');
    this.#list.setAttribute('aria-busy', String(busy));
  }

  #draw(): void {
    const items = this.#turns.map((turn, at) => this.#message(turn, at === this.#turns.length - 1));
    if (items.length === 0) items.push(make('li', { class: 'hint' }, 'The model is small: it is quick to write, and often wrong.'));
    if (this.#from > 0) items.splice(this.#from, 0, make('li', { class: 'left-out' }, 'The model is no longer shown what is above: it does not fit its context.'));
    keepFocus(() => this.#list.replaceChildren(...items), this.#question);
  }

  #message(turn: Turn, last: boolean): HTMLLIElement {
    const text = make('div', { class: 'text' });
    text.append(...(turn.pieces ? turn.pieces.map(span) : [turn.text]));
    const item = make('li', { class: `message ${turn.role}` }, make('h3', {}, turn.role === 'user' ? 'You' : 'Model'), text);
    if (turn.role === 'assistant' && turn.text !== '') {
      const copy = make('button', { type: 'button', class: 'quiet' }, 'Copy');
      copy.addEventListener('click', () => {
        // Browsers may refuse, and outside of https and localhost there is no clipboard.
        const write = async (): Promise<void> => navigator.clipboard.writeText(turn.text);
        void write().then(() => 'Copied', () => 'Copying failed').then((word) => {
          copy.textContent = word;
          say(this.#status, `${word}.`);
        });
      });
      const tools = make('div', { class: 'tools' }, copy);
      if (last && !this.#running) {
        const again = make('button', { type: 'button', class: 'quiet', id: 'regenerate' }, 'Regenerate');
        again.addEventListener('click', () => void this.#again(false));
        tools.append(again);
      }
      item.append(tools);
    }
    return item;
  }

  /** Whether the conversation scrolls in itself; where the window is narrow the page does. */
  #scrolls(): boolean {
    return this.#list.scrollHeight > this.#list.clientHeight + 1;
  }

  /** Pixels of the conversation that are below what is in sight. */
  #behind(): number {
    const list = this.#list;
    if (this.#scrolls()) return list.scrollHeight - list.scrollTop - list.clientHeight;
    return list.getBoundingClientRect().bottom - (innerHeight - this.#form.offsetHeight);
  }

  /** Brings the end of the conversation into sight. */
  #follow(): void {
    const behind = this.#behind();
    if (behind <= 0) return;
    if (this.#scrolls()) this.#list.scrollTop += behind;
    else scrollBy(0, behind);
  }
}

function span({ text, origin }: Piece): HTMLSpanElement {
  return make('span', { class: `token ${NAMES[origin]}`, title: NAMES[origin] === 'plain' ? '' : NAMES[origin] }, text);
}
