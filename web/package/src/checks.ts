/** Arguments that callers without types get wrong, refused with what to pass instead. */
import { RedraftError } from './errors.js';

/** Integers that the module takes. */
export const U32 = 2 ** 32 - 1;

export function invalid(message: string): RedraftError {
  return new RedraftError('invalid_request', message);
}

/** A value as it stands in a message. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value !== 'object' || value === null) return typeof value === 'function' ? 'a function' : String(value);
  if (Array.isArray(value)) return 'an array';
  const name: unknown = Object.getPrototypeOf(value)?.constructor?.name;
  return typeof name === 'string' && name !== 'Object' ? `a ${name}` : 'an object';
}

/** The fields of an object; `what` says what to pass in its place. */
export function fieldsOf(name: string, value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid(`${name} must be ${what}, found ${shown(value)}`);
  return value as Readonly<Record<string, unknown>>;
}

/** Refuses fields that nobody reads. */
export function onlyKnown(name: string, fields: object, known: ReadonlySet<string>): void {
  const unknown = Object.keys(fields).find((field) => !known.has(field));
  if (unknown !== undefined) throw invalid(`${name} has no ${unknown}; it has ${[...known].join(', ')}`);
}

/** A number that the module can hold in 32 bits. */
export function number(name: string, value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw invalid(`${name} must be a number, found ${shown(value)}`);
  if (!Number.isFinite(Math.fround(value))) throw invalid(`${name} must be a number of 32 bits, found ${value}`);
  return value;
}

export function wholeNumber(name: string, value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < least || value > most) {
    throw invalid(`${name} must be a whole number from ${least} to ${most === Number.MAX_SAFE_INTEGER ? '2^53 - 1' : most}, found ${shown(value)}`);
  }
  return value;
}

export function flag(name: string, value: unknown): boolean {
  if (value === undefined || value === null) return false;
  if (typeof value !== 'boolean') throw invalid(`${name} must be true or false, found ${shown(value)}`);
  return value;
}

export function oneOf<T extends string>(name: string, value: unknown, choices: readonly T[]): T | undefined {
  if (value === undefined) return undefined;
  const found = choices.find((choice) => choice === value);
  if (found === undefined) throw invalid(`${name} must be ${choices.map((choice) => `'${choice}'`).join(', ')}, found ${shown(value)}`);
  return found;
}

export function text(name: string, value: unknown): string {
  if (typeof value !== 'string') throw invalid(`${name} must be a text, found ${shown(value)}`);
  return value;
}

/** A signal, also of another realm. */
export function signalOf(value: unknown): AbortSignal | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof AbortController !== 'undefined' && value instanceof AbortController) throw invalid('signal is an AbortController; pass its signal');
  const fits = typeof value === 'object' && 'aborted' in value && 'addEventListener' in value && typeof value.addEventListener === 'function';
  if (!fits) throw invalid(`signal must be an AbortSignal, found ${shown(value)}`);
  return value as AbortSignal;
}
