/** Choosing a model: those with a name, a file of the user's own, or an address. */
import { type CachedModel, MODELS, type ModelFile, type ModelSpec, deleteModel, hasModel, listModels } from '@redraft/web';
import { byId, make, megabytes, show } from './dom';

export interface Choice {
  readonly title: string;
  readonly model: ModelSpec;
  readonly drafter?: ModelSpec;
}

interface Entry {
  readonly id: string;
  readonly title: string;
  readonly detail: string;
  readonly extra?: HTMLElement;
  choose(): ModelSpec;
  /** What was chosen, where the title does not say. */
  name?(): string;
}

/** Files that the server of this page has itself: the local one has what the command line fetched. */
async function served(): Promise<{ file: string; size: number }[]> {
  try {
    const response = await fetch('./models/index.json');
    const value: unknown = response.ok ? await response.json() : [];
    const isFile = (one: unknown): one is { file: string; size: number } =>
      typeof one === 'object' && one !== null && 'file' in one && typeof one.file === 'string' && 'size' in one && typeof one.size === 'number';
    return Array.isArray(value) ? value.filter(isFile) : [];
  } catch {
    // No such list on a static host.
    return [];
  }
}

const address = (file: string): string => new URL(`./models/${encodeURIComponent(file)}`, location.href).href;

/** Without the codes of addresses, where it is made of such. */
function readable(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const nameIn = (url: string): string => url.split(/[?#]/)[0]?.split('/').at(-1) ?? '';

/** Whole models that are kept here. Where storage fails there are none, and loading says why. */
async function keptModels(): Promise<CachedModel[]> {
  const all = await listModels().catch(() => []);
  return all.filter(({ complete, name, url }) => complete && !name?.endsWith('/drafter') && !nameIn(url).endsWith('.safetensors'));
}

/** Deletes all that was downloaded, whole or not. */
async function forgetAll(): Promise<void> {
  for (const model of await listModels()) await deleteModel(model);
}

const HERE = 'already in this browser';

// Made once, so that what was entered is still there after a load that failed.
const file = make('input', { type: 'file', accept: '.gguf', id: 'model-file', 'aria-label': 'GGUF file' });
const url = make('input', { type: 'text', id: 'model-url', inputmode: 'url', 'aria-label': 'Address of a GGUF file', placeholder: 'https://… or hf:owner/repository/file.gguf' });

async function entries(): Promise<Entry[]> {
  const here = await served();
  const kept = await keptModels();
  const named = await Promise.all(
    MODELS.map(async (known): Promise<Entry> => {
      const { name, title, size, sha256, url } = known;
      const local = here.find(({ file }) => url.endsWith(file));
      const model = local ? { url: address(local.file), sha256, size } : { url, sha256, size };
      const cached = await hasModel(model).catch(() => false);
      const from = cached ? HERE : local ? 'from this server' : 'to download once';
      return { id: name, title, detail: `${megabytes(size)}, ${from}`, choose: () => model };
    }),
  );
  const known = new Set(MODELS.map(({ url }) => nameIn(url)));
  const others = here
    .filter(({ file, size }) => file.endsWith('.gguf') && !known.has(file) && !kept.some((one) => one.url === address(file) && one.size === size))
    .map(({ file, size }): Entry => ({ id: address(file), title: file, detail: `${megabytes(size)}, from this server`, choose: () => ({ url: address(file), size }) }));
  // Of earlier visits: these load without a network.
  const listed = new Set(others.map(({ id }) => id));
  const unnamed = kept.filter(({ url, name, sha256 }) => name === undefined && !listed.has(url) && !MODELS.some((model) => model.sha256 === sha256));
  const earlier = [...new Map(unnamed.map((one) => [one.url, one])).values()].map(({ url, sha256, size }): Entry => {
    const model: ModelFile = { url, ...(sha256 !== undefined && { sha256 }) };
    return { id: url, title: readable(nameIn(url)), detail: `${megabytes(size)}, ${HERE}`, choose: () => model };
  });
  return [
    ...named,
    ...others,
    ...earlier,
    {
      id: 'own-file', title: 'A file of mine', detail: 'a GGUF file of a Llama or Qwen2 model', extra: file,
      choose: () => {
        const [chosen] = file.files ?? [];
        if (!chosen) throw new Error('Choose a GGUF file first.');
        return chosen;
      },
      name: () => file.files?.[0]?.name ?? '',
    },
    {
      id: 'own-address', title: 'An address', detail: 'of a GGUF file on a server that allows it (CORS)', extra: url,
      choose: () => {
        if (url.value.trim() === '') throw new Error('Enter the address of a GGUF file first.');
        return url.value.trim();
      },
      name: () => nameIn(url.value.trim()),
    },
  ];
}

/** Fills the list; `choose` gives what is chosen, or throws what is missing. */
export async function openPicker(): Promise<() => Choice> {
  const all = await entries();
  const list = byId('models', HTMLFieldSetElement);
  const before = list.querySelector<HTMLInputElement>('input[name=model]:checked')?.value;
  const checked = all.some(({ id }) => id === before) ? before : all[0]?.id;
  list.querySelectorAll('.model').forEach((old) => old.remove());
  for (const entry of all) {
    const radio = make('input', { type: 'radio', name: 'model', value: entry.id });
    radio.checked = entry.id === checked;
    const row = make('label', { class: 'model' }, radio, make('span', {}, entry.title, make('small', {}, entry.detail)));
    if (entry.extra) {
      const { extra } = entry;
      row.append(make('span', { class: 'extra' }, extra));
      // In place of those of an earlier list. Not when it gets the focus: it stands on the way from the list to the button.
      extra.oninput = extra.onchange = extra.onclick = () => (radio.checked = true);
    }
    list.append(row);
  }
  const forget = byId('forget', HTMLButtonElement);
  // Where storage fails there is nothing to delete, and loading says why.
  const kept = await listModels().catch(() => []);
  show(forget, kept.length > 0);
  forget.onclick = async () => {
    await forgetAll();
    // The button goes, and the focus not with it.
    forget.form?.querySelector<HTMLElement>('.primary')?.focus();
    await openPicker();
  };
  return () => {
    const wanted = list.querySelector<HTMLInputElement>('input[name=model]:checked')?.value;
    const entry = all.find(({ id }) => id === wanted);
    if (!entry) throw new Error('Choose a model first.');
    const [drafter] = byId('drafter-file', HTMLInputElement).files ?? [];
    const model = entry.choose();
    return { title: entry.name?.() || entry.title, model, ...(drafter && { drafter }) };
  };
}
