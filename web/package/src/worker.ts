/** The package's own worker: `createWorkerEngine` starts it, and an app's worker may import it. */
import { serveEngine } from './worker-server.js';

serveEngine(self);
