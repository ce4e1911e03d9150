/**
 * The end of the module. A trap, or an exception that a WebGPU call throws through it, leaves the module of this page or
 * worker in no state to go on, and promises that it owes never settle. So every call of it waits for its end as well.
 */
import { RedraftError, codeOf } from './errors.js';

let death: RedraftError | undefined;
/** Where the module came from. */
let address = '';
/** Calls that wait for the module. */
const waiting = new Set<(error: RedraftError) => void>();
/** What listeners of the app threw while the module ran. */
const ofListeners = new WeakSet<object>();

/** Why the module of this realm is of no use any more, if so. */
export function moduleDeath(): RedraftError | undefined {
  return death;
}

/** Ends the module, if it has not ended: every call that waits for it fails, and so does every later one. */
export function die(why: string): void {
  if (death) return;
  const advice = typeof document === 'undefined' ? 'dispose of the engine and create it again, in another worker if this one is yours' : 'reload the page';
  death = new RedraftError('internal', `the WebAssembly module failed and cannot go on: ${why}; ${advice}, and report it if memory was not short`);
  for (const reject of [...waiting]) reject(death);
  waiting.clear();
}

/** Gives what the promise of a call of the module gives, or why the module ended before it settled. */
export function whileAlive<T>(call: () => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const promise = atOnce(call);
    waiting.add(reject);
    promise.then(resolve, reject).finally(() => waiting.delete(reject));
  });
}

/** What a call of the module gives that answers at once; one that traps ends it. */
export function atOnce<T>(call: () => T): T {
  if (death) throw death;
  try {
    return call();
  } catch (error) {
    if (isEnd(error, true)) die(String(error));
    throw death ?? error;
  }
}

/** Whether an error came out of a module without its leave, and out of ours, which may be `known`. */
function isEnd(error: unknown, known: boolean): boolean {
  if (!(error instanceof Error) || ofListeners.has(error) || codeOf(error) !== undefined) return false;
  const { stack = '' } = error;
  if (!(error instanceof WebAssembly.RuntimeError) && !stack.includes('wasm-function')) return false;
  if (known) return true;
  // Where browsers name files, the app's other modules are told apart; elsewhere it is ours that had a call to answer.
  const files = [...stack.matchAll(/((?:https?|blob|file):\S+?):wasm-function/g)].map(([, file]) => file);
  return files.length === 0 ? waiting.size > 0 : files.includes(address);
}

/** Has the end of the module noticed, which was loaded from `from`. */
export function watch(from: string): void {
  address = from;
  const hear = (event: Event, error: unknown): void => {
    if (!isEnd(error, false)) return;
    // Told by the calls that wait and by those that come; in a worker, the page would hear of it a second time.
    event.preventDefault();
    console.error('redraft:', error);
    die(String(error));
  };
  globalThis.addEventListener('error', (event) => hear(event, event.error));
  globalThis.addEventListener('unhandledrejection', (event) => hear(event, event.reason));
}

/** Tells what a listener of the app threw, as if nobody had caught it. */
export function tellUncaught(error: unknown): void {
  // The module may have called the listener, but it goes on.
  if (typeof error === 'object' && error !== null) ofListeners.add(error);
  if (typeof reportError === 'function') reportError(error);
  else console.error(error);
}
