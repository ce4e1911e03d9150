/** Times what a page does on its WebGPU device: the host between submissions, and every dispatch by its kernel. */

export interface Meter {
  /** Time every dispatch, in a pass of its own. */
  each: boolean;
  /** Milliseconds from the first encoder of a submission to its submit. */
  recording: number;
  /** Milliseconds from a submit to the end of the next wait for a buffer. */
  waiting: number;
  submissions: number;
  dispatches: number;
  /** Nanoseconds and dispatches by label. */
  kernels: Map<string, { ns: number; count: number }>;
  /** When the timestamps that are under way have been read. */
  read(): Promise<void>;
}

declare global {
  var meter: Meter;
  // The types of the DOM know them as numbers only.
  var GPUBufferUsage: { readonly MAP_READ: number; readonly COPY_SRC: number; readonly COPY_DST: number; readonly QUERY_RESOLVE: number };
  var GPUMapMode: { readonly READ: number };
}

/** Runs in the page before anything else: stands between it and WebGPU. */
export function installMeter(): void {
  const PAIRS = 1024;
  const pending: Promise<void>[] = [];
  const meter: Meter = {
    each: false, recording: 0, waiting: 0, submissions: 0, dispatches: 0, kernels: new Map(),
    read: async () => void (await Promise.all(pending.splice(0))),
  };
  globalThis.meter = meter;

  let began: number | undefined;
  let submitted: number | undefined;
  let device: GPUDevice | undefined;

  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (this: GPUAdapter, descriptor: GPUDeviceDescriptor = {}) {
    const more: GPUFeatureName[] = this.features.has('timestamp-query') ? ['timestamp-query'] : [];
    device = await request.call(this, { ...descriptor, requiredFeatures: [...(descriptor.requiredFeatures ?? []), ...more] });
    return device;
  };

  const create = GPUDevice.prototype.createCommandEncoder;
  GPUDevice.prototype.createCommandEncoder = function (this: GPUDevice, descriptor?: GPUCommandEncoderDescriptor) {
    began ??= performance.now();
    return create.call(this, descriptor);
  };
  const submit = GPUQueue.prototype.submit;
  GPUQueue.prototype.submit = function (this: GPUQueue, buffers: Iterable<GPUCommandBuffer>) {
    submit.call(this, buffers);
    submitted = performance.now();
    if (began !== undefined) meter.recording += submitted - began;
    began = undefined;
    meter.submissions += 1;
    for (const read of unread.splice(0)) pending.push(read());
    return undefined;
  };
  const map = GPUBuffer.prototype.mapAsync;
  GPUBuffer.prototype.mapAsync = async function (this: GPUBuffer, ...how: Parameters<GPUBuffer['mapAsync']>) {
    await map.apply(this, how);
    if (submitted !== undefined && this.label !== 'meter') {
      meter.waiting += performance.now() - submitted;
      submitted = undefined;
    }
    return undefined;
  };

  /** Timestamps of an encoder, until it is finished. */
  const timed = new WeakMap<GPUCommandEncoder, { readonly set: GPUQuerySet; readonly labels: string[] }>();
  const unread: (() => Promise<void>)[] = [];

  const count = GPUComputePassEncoder.prototype.dispatchWorkgroups;
  GPUComputePassEncoder.prototype.dispatchWorkgroups = function (this: GPUComputePassEncoder, x: number, y?: number, z?: number) {
    meter.dispatches += 1;
    return count.call(this, x, y, z);
  };

  const begin = GPUCommandEncoder.prototype.beginComputePass;
  GPUCommandEncoder.prototype.beginComputePass = function (this: GPUCommandEncoder, descriptor?: GPUComputePassDescriptor) {
    if (!meter.each || !device) return begin.call(this, descriptor);
    const encoder = this;
    const times = timed.get(encoder) ?? { set: device.createQuerySet({ type: 'timestamp', count: 2 * PAIRS }), labels: [] };
    timed.set(encoder, times);
    let pipeline: GPUComputePipeline | undefined;
    const groups = new Map<number, unknown[]>();
    // Stands for a pass; each dispatch becomes one.
    const facade = {
      setPipeline: (set: GPUComputePipeline) => void (pipeline = set),
      setBindGroup: (...set: unknown[]) => void groups.set(Number(set[0]), set),
      dispatchWorkgroups(x: number, y?: number, z?: number) {
        const at = times.labels.length;
        if (!pipeline || at >= PAIRS) throw new Error(`more than ${PAIRS} dispatches in a submission, or none set up`);
        times.labels.push(pipeline.label);
        const timestampWrites = { querySet: times.set, beginningOfPassWriteIndex: 2 * at, endOfPassWriteIndex: 2 * at + 1 };
        const pass = begin.call(encoder, { timestampWrites });
        pass.setPipeline(pipeline);
        for (const set of groups.values()) Reflect.apply(pass.setBindGroup, pass, set);
        pass.dispatchWorkgroups(x, y, z);
        pass.end();
      },
      end: () => undefined,
    };
    return facade as unknown as GPUComputePassEncoder;
  };

  const finish = GPUCommandEncoder.prototype.finish;
  GPUCommandEncoder.prototype.finish = function (this: GPUCommandEncoder, descriptor?: GPUCommandBufferDescriptor) {
    const times = timed.get(this);
    if (times && device && times.labels.length > 0) {
      const size = 16 * times.labels.length;
      const resolved = device.createBuffer({ size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
      const host = device.createBuffer({ label: 'meter', size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
      this.resolveQuerySet(times.set, 0, 2 * times.labels.length, resolved, 0);
      this.copyBufferToBuffer(resolved, 0, host, 0, size);
      unread.push(async () => {
        await host.mapAsync(GPUMapMode.READ);
        const stamps = new BigUint64Array(host.getMappedRange());
        for (const [at, label] of times.labels.entries()) {
          const entry = meter.kernels.get(label) ?? { ns: 0, count: 0 };
          entry.ns += Number((stamps[2 * at + 1] ?? 0n) - (stamps[2 * at] ?? 0n));
          entry.count += 1;
          meter.kernels.set(label, entry);
        }
        for (const gone of [host, resolved, times.set]) gone.destroy();
      });
    }
    return finish.call(this, descriptor);
  };
}
