/** What is kept in this browser: the conversation, the settings, the theme. */
import type { TokenOrigin } from '@redraft/web';

export interface Piece {
  readonly text: string;
  readonly origin: TokenOrigin;
}

export interface Turn {
  readonly role: 'user' | 'assistant';
  text: string;
  /** Of an answer: its pieces with their origins. */
  pieces?: Piece[];
}

export const DEFAULTS = {
  system: '',
  // Small models are soon lost in unlikely words.
  temperature: 0.2,
  top_p: 0.9,
  top_k: 40,
  min_p: 0.05,
  repetition_penalty: 1.1,
  max_tokens: 256,
  /** Empty: a new one for each answer. */
  seed: '' as number | '',
};

export type Settings = typeof DEFAULTS;

function read(name: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(`redraft.${name}`) ?? 'null');
  } catch {
    return null;
  }
}

/** Private windows may refuse; then it is kept for as long as the page is open. */
export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(`redraft.${name}`, JSON.stringify(value));
  } catch {
    // Nothing to do about it.
  }
}

export function loadTurns(): Turn[] {
  const value = read('turns');
  const isTurn = (turn: unknown): turn is Turn =>
    typeof turn === 'object' && turn !== null && 'role' in turn && (turn.role === 'user' || turn.role === 'assistant') && 'text' in turn && typeof turn.text === 'string';
  return Array.isArray(value) && value.every(isTurn) ? value : [];
}

export function loadSettings(): Settings {
  const value = read('settings');
  return typeof value === 'object' && value !== null ? { ...DEFAULTS, ...value } : { ...DEFAULTS };
}

export function loadText(name: string, fallback: string): string {
  const value = read(name);
  return typeof value === 'string' ? value : fallback;
}
