/** What this browser computes on, in words. */
import type { ProbeAdapter } from '@redraft/web';

/** Rasterisers as they call themselves; browsers write them in other ways. */
const SOFTWARE = ['SwiftShader', 'llvmpipe', 'lavapipe', 'Microsoft Basic Render Driver'];

export function nameOf({ vendor, architecture, description }: ProbeAdapter): string {
  const said = description || [vendor, architecture].filter(Boolean).join(' ');
  return SOFTWARE.find((name) => said.toLowerCase().includes(name.toLowerCase())) ?? (said || 'a GPU');
}

/** For an adapter that is no GPU: what that means, and where to look for the reason. */
export function softwareWords(adapter: ProbeAdapter, agent: string): string {
  const where = /Chrom(e|ium)\//.test(agent) ? 'chrome://gpu tells why' : 'The browser’s settings may have hardware acceleration switched off';
  return `No GPU is in use: this browser computes on the processor (${nameOf(adapter)}). Answers are the same, but they come at a few words a second. ${where}.`;
}
