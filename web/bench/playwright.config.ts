import { defineConfig } from '@playwright/test';
import { browserFlags, chromium } from '../tests/chromium.ts';

export default defineConfig({
  testDir: '.',
  testMatch: '*.spec.ts',
  outputDir: '../.build/bench-results',
  workers: 1,
  retries: 0,
  // On a software adapter a step of the peer takes many seconds.
  timeout: 0,
  reporter: [['line']],
  use: { launchOptions: { executablePath: chromium(), args: browserFlags }, screenshot: 'off', trace: 'off' },
});
