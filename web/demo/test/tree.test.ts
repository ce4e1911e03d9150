import type { RoundTree, TreeNode } from '@redraft/web';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { describe as words, draw, shown } from '../src/tree';

/** As much of an element as pictures are made of. */
class Element {
  readonly attributes = new Map<string, string>();
  readonly children: (Element | string)[] = [];
  constructor(readonly tag: string) {}
  setAttribute(name: string, value: string): void {
    this.attributes.set(name, value);
  }
  append(...children: (Element | string)[]): void {
    this.children.push(...children);
  }
  /** All elements of this kind in it, with this word among their classes if one is given. */
  all(tag: string, name?: string): Element[] {
    const inner = this.children.flatMap((child) => (typeof child === 'string' ? [] : [child, ...child.all('*')]));
    return inner.filter((one) => (tag === '*' || one.tag === tag) && (name === undefined || (one.attributes.get('class') ?? '').split(' ').includes(name)));
  }
  get text(): string {
    return this.children.map((child) => (typeof child === 'string' ? child : child.text)).join('');
  }
}

beforeEach(() => {
  vi.stubGlobal('document', { createElementNS: (_: string, tag: string) => new Element(tag), createTextNode: (text: string) => text });
});
afterEach(() => vi.unstubAllGlobals());

const drawn = (tree: RoundTree): Element => draw(tree) as unknown as Element;

const plan = { mode: 'reconsider', nodes: 4, depth: 2, width: 2, children: 2, reconsider: 2, refined: 2, gate: 'entropy', lookup: false } as const;

function node(text: string, parent: number | null, row: number | null, more: Partial<TreeNode> = {}): TreeNode {
  return { token: 1, text, parent, depth: parent === null ? 0 : 1, score: -1, origin: parent === null ? 'target' : 'drafted', unsure: null, reconsidered: false, row, ...more };
}

/** Three were thought over again, of which one was pruned and one is only a little unsure. */
const TREE: RoundTree = {
  plan,
  start: 5,
  nodes: [
    node(' the', null, 0, { unsure: 0.7, reconsidered: true }),
    node(' cat', 0, 1, { unsure: 0.5, reconsidered: true }),
    node(' dog', 0, null, { unsure: 0.9, reconsidered: true }),
    node(' sat', 1, 2, { origin: 'refined', unsure: 0.2 }),
    node('\n', 1, 3),
    node(' ran', 2, null),
  ],
  accepted: [0, 1, 3],
};

test('the caption counts the marks that the picture has', () => {
  const picture = drawn(TREE);
  const caption = words(TREE);
  expect(caption).toBe('reconsider: 3 of 5 guesses verified, 3 thought over again, 2 of them in the picture; 2 accepted: “ cat sat”.');
  expect(picture.attributes.get('aria-label')).toBe(caption);
  expect(picture.all('g')).toHaveLength(4);
  expect(picture.all('rect', 'ring')).toHaveLength(2);
  expect(picture.all('g', 'again')).toHaveLength(2);
  expect(picture.all('g', 'unsure').map((box) => box.all('text')[0]?.text)).toEqual(['␣the', '␣cat']);
});

test('what was accepted stands first and is marked, and boxes say what they are', () => {
  const picture = drawn({ ...TREE, accepted: [0, 1, 4] });
  expect(picture.all('text').map(({ text }) => text)).toEqual(['␣the', '␣cat', '⏎', '␣sat']);
  expect(picture.all('g', 'accepted').map((box) => box.all('text')[0]?.text)).toEqual(['␣the', '␣cat', '⏎']);
  expect(picture.all('title').map(({ text }) => text)).toEqual([
    '“ the”, the last word so far, unsure 70 %, thought over again',
    '“ cat”, drafted, unsure 50 %, thought over again, accepted',
    '“\n”, drafted, accepted',
    '“ sat”, a second guess, unsure 20 %, rejected',
  ]);
  // A line for each leaf: its second guess stands below the first.
  expect(picture.all('path')).toHaveLength(3);
  expect(picture.all('path', 'accepted')).toHaveLength(2);
});

test('nothing thought over, nothing accepted, nothing drafted', () => {
  const plain = TREE.nodes.map((one) => ({ ...one, reconsidered: false }));
  expect(words({ ...TREE, nodes: plain, accepted: [0] })).toBe('reconsider: 3 of 5 guesses verified; none accepted.');
  const root = { ...TREE, nodes: plain.slice(0, 1), accepted: [0] };
  expect(words(root)).toBe('reconsider: 0 of 0 guesses verified; none accepted.');
  expect(drawn(root).all('g')).toHaveLength(1);
});

test('tokens fit their boxes', () => {
  expect([' a', 'a b', '\t\n', 'abcdefgh', 'abcdefghi', '🦙🦙🦙🦙🦙🦙🦙🦙'].map(shown)).toEqual(['␣a', 'a b', '⇥⏎', 'abcdefgh', 'abcdefg…', '🦙🦙🦙🦙🦙🦙🦙🦙']);
});
