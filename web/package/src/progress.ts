/** What loading is doing. */
export type LoadPhase =
  /** Looking in the cache, and checking what an earlier download left there. */
  | 'cache'
  | 'download'
  /** Comparing kernels with the CPU, once for each browser and adapter. */
  | 'check'
  /** Compiling kernels and running them once. */
  | 'compile'
  /** Reading, packing and uploading weights. */
  | 'upload'
  | 'ready';

export interface LoadProgress {
  readonly phase: LoadPhase;
  /** Of the phase: bytes in `cache`, `download` and `upload`, else steps. */
  readonly loaded: number;
  readonly total: number;
  /** Of the whole load, 0 to 1, never going back. */
  readonly progress: number;
}

/** Share of the whole that each phase takes, when there is something to download. */
const DOWNLOAD = 0.7;

/** Turns the reports of the phases into one that only goes forward. */
export class ProgressMeter {
  readonly #listener: ((progress: LoadProgress) => void) | undefined;
  #most = 0;
  #download = 0;
  #files: { loaded: number; total: number }[] = [];
  #compiled = 0;
  #uploaded = 0;

  constructor(listener: ((progress: LoadProgress) => void) | undefined) {
    this.#listener = listener;
  }

  /** A file that may have to be downloaded; `expected` bytes, as far as known. */
  file(expected: number): (phase: 'cache' | 'download', loaded: number, total: number) => void {
    const file = { loaded: 0, total: expected };
    this.#files.push(file);
    return (phase, loaded, total) => {
      if (phase === 'download') this.#download = DOWNLOAD;
      file.loaded = loaded;
      file.total = Math.max(total, loaded);
      const all = this.#files.reduce((sum, f) => sum + f.total, 0);
      const done = this.#files.reduce((sum, f) => sum + f.loaded, 0);
      this.#tell(phase, loaded, file.total, all > 0 ? (DOWNLOAD * done) / all : 0);
    };
  }

  check(share: number): void {
    this.#tell('check', Math.round(share * 100), 100, this.#download);
  }

  load(phase: 'kernels' | 'weights', done: number, total: number): void {
    const share = total > 0 ? done / total : 0;
    if (phase === 'kernels') this.#compiled = share;
    else this.#uploaded = share;
    const loaded = (this.#compiled + this.#uploaded) / 2;
    const name = phase === 'kernels' ? 'compile' : 'upload';
    this.#tell(name, done, total, this.#download + (1 - this.#download) * loaded * 0.99);
  }

  ready(): void {
    this.#tell('ready', 1, 1, 1);
  }

  #tell(phase: LoadPhase, loaded: number, total: number, progress: number): void {
    this.#most = Math.max(this.#most, Math.min(1, progress));
    this.#listener?.({ phase, loaded, total, progress: this.#most });
  }
}
