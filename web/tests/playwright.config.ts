import { defineConfig } from '@playwright/test';
import { browserFlags, chromium } from './chromium.ts';

export default defineConfig({
  testDir: '.',
  testMatch: '*.spec.ts',
  outputDir: '../.build/test-results',
  // A software GPU on a few cores: one page at a time.
  workers: 1,
  retries: 0,
  // Guards against hanging, not measures: machines that run these tests may be busy with other things.
  timeout: 600_000,
  expect: { timeout: 180_000 },
  reporter: [['list'], ['./skips.ts']],
  use: {
    launchOptions: { executablePath: chromium(), args: browserFlags },
    screenshot: 'only-on-failure',
    trace: 'off',
  },
});
