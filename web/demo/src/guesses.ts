/** The view of how an answer was guessed: where its words came from, how fast, and the tree of the last round. */
import type { Engine, RoundTree, SpeculationChoice, TokenOrigin, Usage } from '@redraft/web';
import { byId } from './dom';
import { keep, loadText } from './state';
import { describe, draw } from './tree';

const ORIGINS: readonly TokenOrigin[] = ['target', 'drafted', 'refined', 'lookup'];

const KINDS: readonly { value: string; words: string; drafter: boolean }[] = [
  { value: 'auto', words: 'automatic: the fastest here', drafter: false },
  { value: 'off', words: 'off: one word at a time', drafter: false },
  { value: 'lookup', words: 'lookup: from the text so far', drafter: false },
  { value: 'chain', words: 'drafter: a chain of guesses', drafter: true },
  { value: 'tree', words: 'drafter: a tree of guesses', drafter: true },
  { value: 'reconsider', words: 'drafter: a tree, reconsidered', drafter: true },
];

export class Guesses {
  readonly #kind = byId('speculation', HTMLSelectElement);
  readonly #trees = byId('trees', HTMLInputElement);
  readonly #colours = byId('colours', HTMLInputElement);
  readonly #messages = byId('messages', HTMLOListElement);
  #stop: (() => void) | undefined;
  #engine: Engine | undefined;
  #frame = 0;

  constructor() {
    this.#trees.checked = loadText('trees', 'on') === 'on';
    this.#colours.checked = loadText('colours', 'on') === 'on';
    this.#colours.addEventListener('change', () => this.#colour());
    this.#trees.addEventListener('change', () => {
      keep('trees', this.#trees.checked ? 'on' : 'off');
      this.#listen();
    });
    this.#kind.addEventListener('change', () => keep('speculation', this.#kind.value));
    this.#colour();
  }

  attach(engine: Engine): void {
    const { drafter } = engine.info;
    const wanted = loadText('speculation', 'auto');
    this.#kind.replaceChildren(
      ...KINDS.map(({ value, words, drafter: needs }) => {
        const option = new Option(words, value);
        option.disabled = needs && !drafter;
        return option;
      }),
    );
    const usable = KINDS.some(({ value, drafter: needs }) => value === wanted && (drafter || !needs));
    this.#kind.value = usable ? wanted : 'auto';
    this.#engine = engine;
    this.#listen();
  }

  detach(): void {
    this.#stop?.();
    this.#stop = undefined;
    this.#engine = undefined;
  }

  /** What was chosen. */
  kind(): SpeculationChoice {
    return this.#kind.value as Extract<SpeculationChoice, string>;
  }

  /** What was chosen, or where that is off what there is. */
  drafting(): SpeculationChoice {
    const chosen = this.kind();
    return chosen === 'off' ? 'auto' : chosen;
  }

  counts(origins: readonly TokenOrigin[]): void {
    for (const origin of ORIGINS) byId(`count-${origin}`, HTMLElement).textContent = String(origins.filter((found) => found === origin).length);
  }

  /** The numbers of a finished answer, in the column of the way it was made. */
  numbers(usage: Usage, drafted: boolean): void {
    const text = (id: string, value: string): void => void (byId(id, HTMLElement).textContent = value);
    const speed = usage.timings.decode_tokens_per_second;
    text(drafted ? 'speed-on' : 'speed-off', speed === null ? '–' : speed.toFixed(speed < 10 ? 2 : 1));
    if (!drafted) return;
    const speculation = usage.speculation;
    text('tau', speculation?.tau == null ? '–' : speculation.tau.toFixed(2));
    text('accepted', speculation ? `${speculation.accepted} of ${speculation.drafted}` : '–');
    if (speculation?.rounds !== 0) return;
    cancelAnimationFrame(this.#frame);
    byId('tree', HTMLElement).replaceChildren();
    text('tree-caption', 'Nothing was drafted: one word at a time was the fastest here, or nothing repeated. Choose another way of drafting to see trees.');
  }

  clear(): void {
    for (const id of ['speed-on', 'speed-off', 'tau', 'accepted']) byId(id, HTMLElement).textContent = '–';
    byId('same', HTMLElement).textContent = '';
    this.counts([]);
  }

  #colour(): void {
    keep('colours', this.#colours.checked ? 'on' : 'off');
    this.#messages.classList.toggle('coloured', this.#colours.checked);
  }

  #listen(): void {
    this.#stop?.();
    this.#stop = this.#trees.checked ? this.#engine?.on('round', (tree) => this.#round(tree)) : undefined;
  }

  #round(tree: RoundTree): void {
    // At most one picture for each frame of the screen.
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      byId('tree', HTMLElement).replaceChildren(draw(tree));
      byId('tree-caption', HTMLElement).textContent = describe(tree);
    });
  }
}
