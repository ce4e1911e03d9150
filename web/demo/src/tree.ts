/** A draft tree as a picture: the verified nodes, depth from left to right, the accepted path bold. */
import type { RoundTree, TreeNode } from '@redraft/web';

/** Six columns, a root and five guesses, fit the view without scrolling. */
const COLUMN = 68;
const LINE = 25;
const BOX = { width: 60, height: 19 };
const MARGIN = 6;
/** From here on a node counts as uncertain. */
const UNSURE = 0.5;

const NS = 'http://www.w3.org/2000/svg';

function svg(tag: string, attributes: Record<string, string | number>, ...children: Node[]): SVGElement {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** A token as one line: white space made visible, cut to what fits. */
export function shown(text: string): string {
  const line = text.replaceAll('\n', '⏎').replaceAll('\t', '⇥').replace(/^ /, '␣');
  return [...line].length > 8 ? `${[...line].slice(0, 7).join('')}…` : line;
}

/** In words, for people who do not see the picture. */
export function describe(tree: RoundTree): string {
  const words = tree.accepted.slice(1).map((index) => tree.nodes[index]?.text ?? '').join('');
  const verified = tree.nodes.filter((node) => node.row !== null).length - 1;
  const again = tree.nodes.filter((node) => node.reconsidered);
  // What is thought over may still be pruned, and then is not in the picture.
  const ringed = again.filter((node) => node.row !== null).length;
  const thought = again.length > 0 ? `, ${again.length} thought over again, ${ringed} of them in the picture` : '';
  const got = tree.accepted.length > 1 ? `${tree.accepted.length - 1} accepted: “${words}”` : 'none accepted';
  return `${tree.plan.mode}: ${verified} of ${tree.nodes.length - 1} guesses verified${thought}; ${got}.`;
}

function label(node: TreeNode, accepted: boolean): string {
  const parts = [`“${node.text}”`];
  if (node.parent === null) parts.push('the last word so far');
  else parts.push({ target: 'root', drafted: 'drafted', refined: 'a second guess', lookup: 'found in the text' }[node.origin]);
  if (node.unsure !== null) parts.push(`unsure ${(node.unsure * 100).toFixed(0)} %`);
  if (node.reconsidered) parts.push('thought over again');
  if (node.parent !== null) parts.push(accepted ? 'accepted' : 'rejected');
  return parts.join(', ');
}

export function draw(tree: RoundTree): SVGElement {
  const accepted = new Set(tree.accepted);
  const children = new Map<number, number[]>();
  tree.nodes.forEach(({ parent, row }, index) => {
    if (parent !== null && row !== null) children.set(parent, [...(children.get(parent) ?? []), index]);
  });
  const place = new Map<number, { x: number; y: number }>();
  let line = 0;
  // A node stands in the line of its first child: each leaf begins a line. The accepted child comes first.
  const put = (index: number, depth: number): void => {
    place.set(index, { x: MARGIN + depth * COLUMN, y: MARGIN + line * LINE });
    const own = (children.get(index) ?? []).sort((a, b) => Number(accepted.has(b)) - Number(accepted.has(a)));
    own.forEach((child, at) => {
      if (at > 0) line += 1;
      put(child, depth + 1);
    });
  };
  if (tree.nodes.length > 0) put(0, 0);
  const edges: SVGElement[] = [];
  const boxes: SVGElement[] = [];
  for (const [index, { x, y }] of place) {
    const node = tree.nodes[index];
    if (!node) continue;
    const isAccepted = accepted.has(index);
    const from = node.parent === null ? undefined : place.get(node.parent);
    if (from) {
      const [x0, y0, y1] = [from.x + BOX.width, from.y + BOX.height / 2, y + BOX.height / 2];
      const middle = (x0 + x) / 2;
      edges.push(svg('path', { d: `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x} ${y1}`, class: isAccepted ? 'accepted' : '' }));
    }
    const classes = [
      node.origin,
      isAccepted && 'accepted',
      node.unsure !== null && node.unsure >= UNSURE && 'unsure',
      node.reconsidered && 'again',
    ];
    const text = svg('text', { x: x + 4, y: y + 13.5 }, document.createTextNode(shown(node.text)));
    const title = svg('title', {}, document.createTextNode(label(node, isAccepted)));
    const box = svg('rect', { x, y, width: BOX.width, height: BOX.height, rx: 5 });
    const ring = node.reconsidered ? [svg('rect', { x: x - 2.5, y: y - 2.5, width: BOX.width + 5, height: BOX.height + 5, rx: 7, class: 'ring' })] : [];
    boxes.push(svg('g', { class: classes.filter(Boolean).join(' ') }, title, ...ring, box, text));
  }
  const width = Math.max(0, ...[...place.values()].map(({ x }) => x)) + BOX.width + MARGIN;
  const height = (line + 1) * LINE + MARGIN;
  return svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': describe(tree) }, ...edges, ...boxes);
}
