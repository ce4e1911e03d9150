/** The package's own worker: `createWorkerEngine` starts it, and an app's worker may import it. */
import { serveEngine } from './worker-server.js';

serveEngine(self as unknown as Parameters<typeof serveEngine>[0]);
