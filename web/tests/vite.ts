/** Vite as a program, for tests of what users run. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';

export interface Vite {
  readonly address: string;
  readonly child: ChildProcess;
}

/** Starts a server of the Vite of `packages` (a folder with `node_modules`) in `folder`, and gives its address. */
export async function startVite(packages: string, folder: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Vite> {
  const program = join(packages, 'node_modules/vite/bin/vite.js');
  const child = spawn(process.execPath, [program, ...args, '--port', '0'], { cwd: folder, env: { ...process.env, NO_COLOR: '1', ...env } });
  const address = await new Promise<string>((resolve, reject) => {
    let said = '';
    const hear = (data: Buffer): void => {
      said += data.toString();
      const found = /http:\/\/localhost:\d+\//.exec(said)?.[0];
      if (found) resolve(found);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('exit', () => reject(new Error(`vite ended: ${said}`)));
  });
  return { address, child };
}
