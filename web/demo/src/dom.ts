/** The element with this id; the page and the code are one, so it is there. */
export function byId<T extends HTMLElement>(id: string, kind: new () => T): T {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return element;
}

export function show(element: HTMLElement, visible: boolean): void {
  element.hidden = !visible;
}

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Record<string, string> = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function megabytes(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

/** Does what may hide or take away the element that has the focus; then `next` gets it, in place of nothing. */
export function keepFocus(work: () => void, next: HTMLElement): void {
  const before = document.activeElement;
  const had = before !== null && before !== document.body;
  work();
  const lost = had && !(before.checkVisibility() && !before.matches(':disabled'));
  if (lost) next.focus({ preventScroll: true });
}

/** Sets the text of a live region where it changed, so that nothing is said twice. */
export function say(element: HTMLElement, words: string): void {
  if (element.textContent !== words) element.textContent = words;
}

/** Shows what was done otherwise than asked, each once; an empty list takes away what is there. */
export function warn(texts: readonly string[]): void {
  const place = byId('warnings', HTMLElement);
  if (texts.length === 0) place.replaceChildren();
  const shown = new Set([...place.children].map((child) => child.textContent));
  // Only what is new is put in, and so read out.
  for (const text of new Set(texts.map(sentence))) if (!shown.has(text)) place.append(make('p', {}, text));
}

function sentence(text: string): string {
  const end = /[.!?]$/.test(text) ? '' : '.';
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${end}`;
}
