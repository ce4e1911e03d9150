/** The conversation: its turns, asking, stopping, asking again. */
import { type ChatMessage, type Engine, RedraftError, type TokenOrigin } from '@redraft/web';
import { byId, make, show } from './dom';
import type { Guesses } from './guesses';
import { type Piece, type Settings, type Turn, keep, loadTurns } from './state';

const NAMES: Record<TokenOrigin, string> = { target: 'plain', drafted: 'drafted', refined: 'refined', lookup: 'lookup' };

export class Chat {
  readonly #list = byId('messages', HTMLOListElement);
  readonly #status = byId('status', HTMLElement);
  readonly #question = byId('question', HTMLTextAreaElement);
  readonly #send = byId('send', HTMLButtonElement);
  readonly #stop = byId('stop', HTMLButtonElement);
  readonly #compare = byId('compare', HTMLButtonElement);
  readonly #guesses: Guesses;
  readonly #settings: () => Settings;
  readonly #problem: (error: unknown) => void;
  #engine: Engine | undefined;
  #turns: Turn[] = loadTurns();
  #running: AbortController | undefined;
  /** The seed of the last answer, so that it can be made again. */
  #seed = 0;
  #speculated = false;

  constructor(guesses: Guesses, settings: () => Settings, problem: (error: unknown) => void) {
    this.#guesses = guesses;
    this.#settings = settings;
    this.#problem = problem;
    byId('ask', HTMLFormElement).addEventListener('submit', (event) => {
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
      if (event.key === 'Escape') this.#running?.abort();
    });
    this.#compare.addEventListener('click', () => void this.#again(true));
    this.#draw();
  }

  attach(engine: Engine): void {
    this.#engine = engine;
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
    const { seed } = this.#settings();
    this.#seed = seed === '' ? Math.floor(Math.random() * 2 ** 31) : seed;
  }

  /** Takes the last answer back and makes it again: another one, or the same one the other way. */
  async #again(other: boolean): Promise<void> {
    if (this.#running || !this.#engine || this.#turns.at(-1)?.role !== 'assistant') return;
    const before = this.#turns.pop()?.text;
    if (!other) this.#newSeed();
    const after = await this.#answer(other);
    if (!other || after === undefined) return;
    byId('same', HTMLElement).textContent =
      after === before ? 'The same answer, word for word.' : 'Another answer: the settings changed in between, or the first one was stopped.';
  }

  async #answer(other: boolean): Promise<string | undefined> {
    const engine = this.#engine;
    if (!engine) return undefined;
    // “The other way” is that of the answer it is compared with.
    const drafting = other && !this.#speculated ? this.#guesses.drafting() : this.#guesses.kind();
    const kind = other && this.#speculated ? 'off' : drafting;
    this.#speculated = kind !== 'off';
    const { system, seed: _, ...sampling } = this.#settings();
    const messages: ChatMessage[] = [
      ...(system.trim() === '' ? [] : [{ role: 'system', content: system }]),
      ...this.#turns.map(({ role, text }) => ({ role, content: text })),
    ];
    const turn: Turn & { pieces: Piece[] } = { role: 'assistant', text: '', pieces: [] };
    this.#turns.push(turn);
    this.#draw();
    this.#busy(true);
    byId('same', HTMLElement).textContent = '';
    const body = this.#list.lastElementChild?.querySelector('.text');
    // The first automatic choice on this adapter is preceded by a measurement, the only time that an answer is late for it.
    const measures = kind === 'auto' && engine.info.costs === null;
    const waiting = make('p', { class: 'note waiting' }, measures ? 'Measuring once what steps cost here, so that drafting is used where it pays …' : 'Reading …');
    body?.after(waiting);
    if (measures) this.#status.textContent = 'Measuring once what steps cost here.';
    const origins: TokenOrigin[] = [];
    const controller = new AbortController();
    this.#running = controller;
    let finished = false;
    try {
      const stream = await engine.chat.completions.create({ messages, ...sampling, seed: this.#seed, speculation: kind, stream: true, signal: controller.signal });
      for await (const { choices, usage } of stream) {
        const [choice] = choices;
        const text = choice?.delta.content ?? '';
        if (choice?.token) {
          waiting.remove();
          origins.push(choice.token.origin);
          this.#guesses.counts(origins);
          if (text !== '') {
            const piece = { text, origin: choice.token.origin };
            turn.pieces.push(piece);
            turn.text += text;
            body?.append(span(piece));
            this.#scroll();
          }
        }
        if (usage) this.#guesses.numbers(usage, this.#speculated);
      }
      finished = true;
    } catch (error) {
      if (!(error instanceof RedraftError) || error.code !== 'aborted') this.#problem(error);
    } finally {
      if (this.#running === controller) this.#running = undefined;
      this.#busy(false);
    }
    const kept = this.#turns.includes(turn);
    // A question without an answer goes back to where it can be sent again.
    if (kept && turn.text === '' && !finished) {
      this.#turns.pop();
      const question = this.#turns.pop();
      if (question && this.#question.value === '') this.#question.value = question.text;
    }
    this.#save();
    this.#draw();
    this.#compare.disabled = this.#turns.at(-1)?.role !== 'assistant';
    this.#status.textContent = finished ? `Answer complete, ${origins.length} tokens.` : 'Answer stopped.';
    return finished ? turn.text : undefined;
  }

  #busy(busy: boolean): void {
    show(this.#send, !busy);
    show(this.#stop, busy);
    this.#compare.disabled = busy;
    if (busy) this.#status.textContent = 'Answering.';
    this.#list.setAttribute('aria-busy', String(busy));
  }

  #draw(): void {
    if (this.#turns.length === 0) {
      this.#list.replaceChildren(make('li', { class: 'hint' }, 'The model is small: it is quick to write, and often wrong.'));
      return;
    }
    this.#list.replaceChildren(...this.#turns.map((turn, at) => this.#message(turn, at === this.#turns.length - 1)));
    this.#scroll();
  }

  #message(turn: Turn, last: boolean): HTMLLIElement {
    const text = make('div', { class: 'text' });
    text.append(...(turn.pieces ? turn.pieces.map(span) : [turn.text]));
    const item = make('li', { class: `message ${turn.role}` }, make('h3', {}, turn.role === 'user' ? 'You' : 'Model'), text);
    if (turn.role === 'assistant' && !this.#running && turn.text !== '') {
      const copy = make('button', { type: 'button', class: 'quiet' }, 'Copy');
      copy.addEventListener('click', () => {
        void navigator.clipboard.writeText(turn.text).then(() => (copy.textContent = 'Copied'));
      });
      const tools = make('div', { class: 'tools' }, copy);
      if (last) {
        const again = make('button', { type: 'button', class: 'quiet', id: 'regenerate' }, 'Regenerate');
        again.addEventListener('click', () => void this.#again(false));
        tools.append(again);
      }
      item.append(tools);
    }
    return item;
  }

  #scroll(): void {
    this.#list.scrollTop = this.#list.scrollHeight;
  }
}

function span({ text, origin }: Piece): HTMLSpanElement {
  return make('span', { class: `token ${NAMES[origin]}`, title: NAMES[origin] === 'plain' ? '' : NAMES[origin] }, text);
}
