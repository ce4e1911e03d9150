/** What this browser's WebGPU can do, before anything is downloaded. */

export interface ProbeLimits {
  readonly maxBufferSize: number;
  readonly maxStorageBufferBindingSize: number;
  readonly maxUniformBufferBindingSize: number;
  readonly maxStorageBuffersPerShaderStage: number;
  readonly maxComputeInvocationsPerWorkgroup: number;
  readonly maxComputeWorkgroupStorageSize: number;
}

export interface ProbeAdapter {
  readonly vendor: string;
  readonly architecture: string;
  readonly description: string;
  /** It computes on the CPU. */
  readonly software: boolean;
  /** It has `shader-f16`, which `precision: 'f16'` needs. */
  readonly f16: boolean;
  readonly subgroups: boolean;
  /** Least and greatest lanes of a subgroup; 0 where unknown. */
  readonly subgroupSizes: readonly [number, number];
  readonly limits: ProbeLimits;
}

export type Probe =
  | {
      readonly ok: true;
      readonly adapter: ProbeAdapter;
      /** Bytes of the largest model file that is likely to fit: an estimate, since browsers do not tell GPU memory. */
      readonly largestModel: number;
    }
  | {
      readonly ok: false;
      /** Why not, in words. */
      readonly reason: string;
      /** What the user can do about it. */
      readonly advice: string;
      readonly adapter?: ProbeAdapter;
    };

/** WebGPU's own minimum suffices; some drivers are below it. The same list as in the module. */
const REQUIRED: readonly [keyof ProbeLimits, number, string][] = [
  ['maxStorageBuffersPerShaderStage', 8, 'storage buffers a kernel'],
  ['maxComputeInvocationsPerWorkgroup', 64, 'invocations a workgroup'],
  ['maxStorageBufferBindingSize', 128 * 2 ** 20, 'bytes a storage binding'],
  ['maxUniformBufferBindingSize', 16 * 2 ** 10, 'bytes a uniform binding'],
  ['maxComputeWorkgroupStorageSize', 16 * 2 ** 10, 'bytes of workgroup memory'],
];

/** What to do where WebGPU is missing, for the browser that says it is `agent`. */
export function adviceFor(agent: string, what: 'api' | 'adapter'): string {
  const linux = /Linux/.test(agent) && !/Android/.test(agent);
  if (/Firefox\//.test(agent)) {
    return 'Firefox: update to the latest version, or set dom.webgpu.enabled to true in about:config (on Linux this needs a recent version).';
  }
  if (/Safari\//.test(agent) && !/Chrom(e|ium)\//.test(agent)) {
    return 'Safari: WebGPU needs Safari 26 or later (macOS 26, iOS 26); in Safari 18 it can be switched on under Settings, Feature Flags, WebGPU.';
  }
  if (/Android/.test(agent)) {
    return 'Chrome on Android: WebGPU needs Android 12 and a Qualcomm, ARM or recent Imagination GPU; update Chrome and the system.';
  }
  if (linux) {
    return `Chrome or Chromium on Linux: start it with --enable-unsafe-webgpu --enable-features=Vulkan, or switch on chrome://flags/#enable-unsafe-webgpu and chrome://flags/#enable-vulkan; install the Vulkan driver of your GPU${what === 'adapter' ? ' (mesa-vulkan-drivers, or NVIDIA\'s own)' : ''}. chrome://gpu tells what it found.`;
  }
  return what === 'api'
    ? 'Update the browser: redraft needs Chrome or Edge 128 or later.'
    : 'Switch on hardware acceleration in the browser\'s settings, update the GPU driver, and see chrome://gpu; chrome://flags/#ignore-gpu-blocklist lets blocked drivers try.';
}

function describe(adapter: GPUAdapter): ProbeAdapter {
  const { info, limits, features } = adapter;
  const text = `${info.vendor} ${info.architecture} ${info.description}`.toLowerCase();
  const software = info.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|basic render/.test(text);
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    description: info.description,
    software,
    f16: features.has('shader-f16'),
    subgroups: features.has('subgroups'),
    subgroupSizes: [info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0],
    limits: {
      maxBufferSize: limits.maxBufferSize,
      maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize,
      maxUniformBufferBindingSize: limits.maxUniformBufferBindingSize,
      maxStorageBuffersPerShaderStage: limits.maxStorageBuffersPerShaderStage,
      maxComputeInvocationsPerWorkgroup: limits.maxComputeInvocationsPerWorkgroup,
      maxComputeWorkgroupStorageSize: limits.maxComputeWorkgroupStorageSize,
    },
  };
}

/** A guess from what browsers tell: their `deviceMemory` stops at 8 GiB, and phones end tabs early. */
export function largestModel(deviceMemory: number | undefined, mobile: boolean, maxBufferSize: number): number {
  const gib = 2 ** 30;
  const memory = (deviceMemory ?? (mobile ? 4 : 8)) * gib;
  // A model is many buffers, but one that takes more than some of the largest size does not fit small adapters.
  return Math.floor(Math.min(memory * (mobile ? 0.2 : 0.5), maxBufferSize * 8));
}

/** Whether redraft can run here, and if not, why and what to do. Downloads nothing and keeps no device. */
export async function probe(): Promise<Probe> {
  const agent = typeof navigator === 'undefined' ? '' : navigator.userAgent;
  const gpu = typeof navigator === 'undefined' ? undefined : (navigator.gpu as GPU | undefined);
  if (!gpu) {
    if (typeof isSecureContext !== 'undefined' && !isSecureContext) {
      return { ok: false, reason: 'This page was loaded over plain http, where browsers hide WebGPU.', advice: 'Open it over https, or from localhost.' };
    }
    return { ok: false, reason: 'This browser does not offer WebGPU.', advice: adviceFor(agent, 'api') };
  }
  let adapter: GPUAdapter | null;
  try {
    adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
  } catch (error) {
    return { ok: false, reason: `Asking for a GPU failed: ${String(error)}`, advice: adviceFor(agent, 'adapter') };
  }
  if (!adapter) {
    return { ok: false, reason: 'The browser has WebGPU but found no GPU that it lets pages use.', advice: adviceFor(agent, 'adapter') };
  }
  // The first browsers with WebGPU lack what the module and the package call.
  if ((adapter.info as GPUAdapterInfo | undefined) === undefined || typeof AbortSignal.any !== 'function') {
    const advice = /Firefox\/|Safari\//.test(agent) && !/Chrom(e|ium)\//.test(agent) ? 'Update the browser.' : 'Update the browser: redraft needs Chrome or Edge 128 or later.';
    return { ok: false, reason: 'The WebGPU of this browser is of an early version.', advice };
  }
  const report = describe(adapter);
  for (const [limit, needed, words] of REQUIRED) {
    if (report.limits[limit] < needed) {
      const reason = `The GPU offers ${report.limits[limit]} ${words}, ${needed} are needed.`;
      return { ok: false, reason, advice: adviceFor(agent, 'adapter'), adapter: report };
    }
  }
  const { deviceMemory } = navigator as Navigator & { readonly deviceMemory?: number };
  const mobile = /Android|iPhone|iPad|Mobile/.test(agent);
  return { ok: true, adapter: report, largestModel: largestModel(deviceMemory, mobile, report.limits.maxBufferSize) };
}
