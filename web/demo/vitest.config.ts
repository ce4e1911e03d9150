import { defineConfig } from 'vitest/config';

export default defineConfig({
  // A guard against hanging, not a measure: machines that run these tests may be busy with other things.
  test: { testTimeout: 120_000 },
});
