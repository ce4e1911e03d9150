/** The browser that the tests run in: a Chromium of the system, computing on its software GPU. */
import { existsSync } from 'node:fs';

export const browserFlags = [
  '--headless=new',
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  // The software GPU may take seconds for what a GPU does in milliseconds.
  '--disable-gpu-watchdog',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
];

/** Its path: `REDRAFT_CHROMIUM`, or where distributions put it. */
export function chromium(): string {
  const named = process.env['REDRAFT_CHROMIUM'];
  const found = [named, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => path && existsSync(path));
  if (!found) throw new Error('no Chromium found: install it (Debian: apt-get install chromium), or name its path in REDRAFT_CHROMIUM');
  return found;
}
