import { defineConfig } from 'vite';
import { serveModels } from './models.ts';
import { listShell } from './shell.ts';

export default defineConfig({
  base: './',
  // The one line that users of the package need: its worker and its module are found by their addresses, which
  // bundling it ahead of time would change.
  optimizeDeps: { exclude: ['@redraft/web'] },
  build: { target: 'es2022', rollupOptions: { input: ['index.html', 'bench.html'] } },
  plugins: [serveModels(), listShell()],
});
