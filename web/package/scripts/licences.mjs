// npm packs only what lies in the package's folder.
import { cpSync } from 'node:fs';

for (const file of ['LICENSE-MIT', 'LICENSE-APACHE']) cpSync(new URL(`../../../${file}`, import.meta.url), new URL(`../${file}`, import.meta.url));
