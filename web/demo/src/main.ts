import { type Engine, type LoadProgress, RedraftError, createWorkerEngine, probe } from '@redraft/web';
import { nameOf, softwareWords } from './adapter';
import { Chat } from './chat';
import { byId, keepFocus, megabytes, say, show, warn } from './dom';
import { Guesses } from './guesses';
import { keepOffline } from './offline';
import { type Choice, openPicker } from './picker';
import { DEFAULTS, type Settings, keep, loadSettings, loadText } from './state';

let settings: Settings = loadSettings();
const guesses = new Guesses();
const chat = new Chat(guesses, { settings: () => settings, failed, begins: quiet });
/** What is loaded, to load it again. */
let opened: Choice | undefined;

function tell(error: unknown): void {
  const problem = byId('problem', HTMLElement);
  if (error instanceof RedraftError && error.code === 'device_lost') {
    problem.textContent = 'The GPU was reset. Send the message again: the model is loaded anew from this browser.';
  } else {
    problem.textContent = error instanceof Error ? error.message : String(error);
  }
  show(problem, true);
  problem.scrollIntoView({ block: 'nearest' });
}

function quiet(): void {
  show(byId('problem', HTMLElement), false);
}

/** An answer failed. An engine whose worker or module died answers nothing more, so another one takes its place. */
function failed(error: unknown): void {
  const died = error instanceof RedraftError && (error.code === 'worker' || error.code === 'internal');
  if (died && opened) void reopen(opened, error);
  else tell(error);
}

async function reopen(choice: Choice, why: RedraftError): Promise<void> {
  await leave();
  show(byId('start', HTMLElement), true);
  const loading = load(choice);
  tell(`The answer broke off: ${why.message.split(';')[0]}. The model is being loaded again; then send the message again.`);
  await loading;
}

// ---- Theme ----

function theme(name: string): void {
  if (name === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = name;
  byId('theme', HTMLButtonElement).textContent = `Theme: ${name}`;
  keep('theme', name);
}

theme(loadText('theme', 'system'));
byId('theme', HTMLButtonElement).addEventListener('click', () => {
  const order = ['system', 'light', 'dark'];
  theme(order[(order.indexOf(loadText('theme', 'system')) + 1) % order.length] ?? 'system');
});

// ---- Settings ----

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'] as const;

function fillSettings(): void {
  byId('set-system', HTMLTextAreaElement).value = settings.system;
  for (const name of NUMBERS) byId(`set-${name}`, HTMLInputElement).value = String(settings[name]);
}

function readSettings(): void {
  const next: Settings = { ...settings, system: byId('set-system', HTMLTextAreaElement).value };
  for (const name of NUMBERS) {
    const input = byId(`set-${name}`, HTMLInputElement);
    if (name === 'seed' && input.value === '') next.seed = '';
    else if (input.value !== '' && input.checkValidity()) next[name] = input.valueAsNumber;
  }
  settings = next;
  keep('settings', settings);
}

const dialog = byId('settings', HTMLDialogElement);
byId('open-settings', HTMLButtonElement).addEventListener('click', () => {
  fillSettings();
  dialog.showModal();
});
dialog.addEventListener('close', readSettings);
byId('defaults', HTMLButtonElement).addEventListener('click', () => {
  settings = { ...DEFAULTS };
  fillSettings();
});

// ---- Loading ----

const WORDS: Record<LoadProgress['phase'], string> = {
  cache: 'Looking in this browser',
  download: 'Downloading',
  check: 'Checking that this GPU computes right',
  compile: 'Preparing the GPU',
  upload: 'Moving the model to the GPU',
  ready: 'Ready',
};

function progress({ phase, loaded, total, progress: share }: LoadProgress): void {
  byId('loading-bar', HTMLProgressElement).value = share;
  const bytes = phase === 'download' || phase === 'upload' || phase === 'cache';
  const amount = bytes && total > 0 ? `: ${megabytes(loaded)} of ${megabytes(total)}` : '';
  byId('loading-words', HTMLElement).textContent = `${WORDS[phase]}${amount}`;
  say(byId('loading-phase', HTMLElement), WORDS[phase]);
}

async function load(choice: Choice): Promise<void> {
  const { title, model, drafter } = choice;
  quiet();
  warn([]);
  const controller = new AbortController();
  byId('cancel', HTMLButtonElement).onclick = () => controller.abort();
  heading(`Loading ${title}`);
  show(byId('start-form', HTMLElement), false);
  show(byId('loading', HTMLElement), true);
  byId('cancel', HTMLButtonElement).focus();
  try {
    const engine = await createWorkerEngine({ model, ...(drafter && { drafter }), signal: controller.signal, onProgress: progress });
    opened = choice;
    open(engine, title);
  } catch (error) {
    if (!(error instanceof RedraftError) || error.code !== 'aborted') tell(error);
    await start();
  } finally {
    heading('Choose a model');
    show(byId('start-form', HTMLElement), true);
    keepFocus(() => show(byId('loading', HTMLElement), false), byId('load', HTMLElement));
  }
}

function heading(words: string): void {
  byId('start-title', HTMLElement).textContent = words;
}

const TOOLS = ['model-name', 'new-chat', 'change-model', 'open-settings'];

function open(engine: Engine, title: string): void {
  const name = byId('model-name', HTMLElement);
  name.textContent = title;
  name.title = `${title}: ${megabytes(engine.info.memory.total)} of GPU memory, kernels ${engine.info.path}`;
  warn(engine.info.warnings);
  engine.on('warning', (text) => warn([text]));
  show(byId('start', HTMLElement), false);
  show(byId('workbench', HTMLElement), true);
  for (const id of TOOLS) show(byId(id, HTMLElement), true);
  guesses.attach(engine);
  chat.attach(engine);
}

byId('new-chat', HTMLButtonElement).addEventListener('click', () => chat.clear());
byId('change-model', HTMLButtonElement).addEventListener('click', async () => {
  await leave();
  await start();
  byId('load', HTMLElement).focus();
});

/** Closes the conversation and frees what the model took. */
async function leave(): Promise<void> {
  opened = undefined;
  guesses.detach();
  await chat.detach();
  dialog.close();
  warn([]);
  show(byId('workbench', HTMLElement), false);
  for (const id of TOOLS) show(byId(id, HTMLElement), false);
}

async function start(): Promise<void> {
  const found = await probe();
  show(byId('unsupported', HTMLElement), !found.ok);
  if (!found.ok) {
    show(byId('start', HTMLElement), false);
    byId('unsupported-reason', HTMLElement).textContent = found.reason;
    byId('unsupported-advice', HTMLElement).textContent = found.advice;
    return;
  }
  const { adapter } = found;
  const software = byId('software', HTMLElement);
  software.textContent = adapter.software ? softwareWords(adapter, navigator.userAgent) : '';
  show(software, adapter.software);
  const gpu = adapter.software ? '' : `GPU: ${nameOf(adapter)}. `;
  byId('adapter', HTMLElement).textContent = `${gpu}Models up to about ${megabytes(found.largestModel)} should fit.`;
  const choose = await openPicker();
  // Not before the list is there, or the page would jump.
  show(byId('start', HTMLElement), true);
  byId('start-form', HTMLFormElement).onsubmit = (event) => {
    event.preventDefault();
    try {
      void load(choose());
    } catch (error) {
      tell(error);
    }
  };
}

byId('probe-again', HTMLButtonElement).addEventListener('click', async () => {
  await start();
  const again = byId('probe-again', HTMLElement);
  if (!again.checkVisibility()) byId('load', HTMLElement).focus();
});
keepOffline();
void start();
