/** A greedy loop over an exported model with onnxruntime-web, as transformers.js runs one. */

/** What is used of the package; its own types are there only where it was installed. */
interface Tensor {
  readonly dims: readonly number[];
  readonly data: Float32Array;
  dispose(): void;
}

interface Session {
  readonly outputNames: readonly string[];
  run(feeds: Record<string, Tensor>): Promise<Record<string, Tensor>>;
}

interface Runtime {
  readonly env: { readonly versions: Readonly<Record<string, string>>; readonly wasm: { numThreads: number } };
  readonly Tensor: new (type: 'int64' | 'float32', data: BigInt64Array | Float32Array, dims: readonly number[]) => Tensor;
  readonly InferenceSession: { create(model: string, options: object): Promise<Session> };
}

/** What the model builder writes beside the model. */
interface Config {
  readonly model: { readonly decoder: { readonly filename: string; readonly head_size: number; readonly num_key_value_heads: number; readonly num_hidden_layers: number } };
}

export interface Peer {
  readonly version: string;
  /** Starts over with a prompt; gives the first token and how long it took. */
  prefill(prompt: readonly number[]): Promise<{ readonly id: number; readonly seconds: number }>;
  /** Goes on, a token a step. */
  decode(steps: number): Promise<{ readonly ids: readonly number[]; readonly seconds: number }>;
}

declare global {
  var peer: Peer;
}

/** Runs in the page: loads runtime and model and leaves them in `globalThis.peer`. */
export async function loadPeer({ runtime, folder }: { readonly runtime: string; readonly folder: string }): Promise<string> {
  const ort = (await import(runtime)) as Runtime;
  // Threads need cross-origin isolation, which redraft does without; all products run on the GPU.
  ort.env.wasm.numThreads = 1;
  const config = (await (await fetch(`${folder}/genai_config.json`)).json()) as Config;
  const { filename, head_size: size, num_key_value_heads: heads, num_hidden_layers: layers } = config.model.decoder;
  const names = Array.from({ length: layers }, (_, layer) => ['key', 'value'].map((kind) => `${layer}.${kind}`)).flat();
  const session = await ort.InferenceSession.create(`${folder}/${filename}`, {
    executionProviders: ['webgpu'],
    externalData: [{ path: `${filename}.data`, data: `${folder}/${filename}.data` }],
    // Keys and values never leave the GPU; only logits are read.
    preferredOutputLocation: Object.fromEntries(names.map((name) => [`present.${name}`, 'gpu-buffer'])),
  });
  let past: Tensor[] = [];
  let length = 0;
  let last = 0;

  async function step(ids: readonly number[]): Promise<number> {
    length += ids.length;
    const feeds: Record<string, Tensor> = {
      input_ids: new ort.Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]),
      attention_mask: new ort.Tensor('int64', new BigInt64Array(length).fill(1n), [1, length]),
    };
    for (const [at, name] of names.entries()) {
      const tensor = past[at] ?? new ort.Tensor('float32', new Float32Array(0), [1, heads, 0, size]);
      feeds[`past_key_values.${name}`] = tensor;
    }
    const outputs = await session.run(feeds);
    for (const tensor of past) tensor.dispose();
    past = names.map((name) => present(outputs, `present.${name}`));
    const logits = present(outputs, 'logits');
    const row = logits.data.subarray(-(logits.dims.at(-1) ?? 0));
    let best = 0;
    for (let id = 1; id < row.length; id += 1) if ((row[id] ?? 0) > (row[best] ?? 0)) best = id;
    logits.dispose();
    last = best;
    return best;
  }

  function present(outputs: Record<string, Tensor>, name: string): Tensor {
    const tensor = outputs[name];
    if (!tensor) throw new Error(`the exported model has no output ${name}; its outputs are ${session.outputNames.join(', ')}`);
    return tensor;
  }

  globalThis.peer = {
    version: ort.env.versions['web'] ?? ort.env.versions['common'] ?? 'unknown',
    async prefill(prompt) {
      for (const tensor of past) tensor.dispose();
      [past, length] = [[], 0];
      const start = performance.now();
      const id = await step(prompt);
      return { id, seconds: (performance.now() - start) / 1000 };
    },
    async decode(steps) {
      const ids: number[] = [];
      const start = performance.now();
      while (ids.length < steps) ids.push(await step([last]));
      return { ids, seconds: (performance.now() - start) / 1000 };
    },
  };
  return globalThis.peer.version;
}
