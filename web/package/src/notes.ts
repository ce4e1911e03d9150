/** Small things that are worth keeping between visits, beside the models. */
import { Sha256 } from './sha256.js';
import { type Store, openStores } from './store.js';

/** Texts under keys. */
export interface Notes {
  get(key: string): Promise<string | undefined>;
  set(key: string, text: string): Promise<void>;
}

/**
 * Notes of one kind, in the best store of this browser. Names in a store are short, so they are hashes of the keys; the
 * key stands in the note, and what is damaged or of another key is no note.
 */
export function storedNotes(kind: string, open: () => Promise<readonly [Store, ...Store[]]> = openStores): Notes {
  const name = (key: string): string => new Sha256().update(new TextEncoder().encode(key)).hex().slice(0, 32);
  return {
    async get(key) {
      const [store] = await open();
      const blob = await store.read(kind, name(key));
      return blob && textOf(await blob.text(), key);
    },
    async set(key, text) {
      const [store] = await open();
      await store.write(kind, name(key), new TextEncoder().encode(JSON.stringify({ key, text })));
    },
  };
}

function textOf(json: string, key: string): string | undefined {
  try {
    const note: unknown = JSON.parse(json);
    const ours = typeof note === 'object' && note !== null && 'key' in note && note.key === key && 'text' in note;
    return ours && typeof note.text === 'string' ? note.text : undefined;
  } catch {
    // Written only half.
    return undefined;
  }
}
