import type { LoadOptions } from './backend.js';
import { type FetchOptions, openModel } from './cache.js';
import { asRedraftError } from './errors.js';
import { knownModel } from './models.js';

/**
 * The bytes of the drafter that was asked for, or of the one that the package has for a known model. Nobody asked for the
 * latter by name, and answers are the same without it: if it cannot be had, there is a warning.
 */
export async function openDrafter({ model, drafter }: Pick<LoadOptions, 'model' | 'drafter'>, fetching: FetchOptions, open = openModel): Promise<Blob | undefined> {
  if (drafter === false) return undefined;
  if (drafter !== undefined) return open(drafter, fetching);
  const known = knownModel(model);
  if (!known?.drafter) return undefined;
  try {
    return await open(known.drafter, fetching);
  } catch (thrown) {
    const error = asRedraftError(thrown);
    if (error.code === 'aborted' || fetching.signal?.aborted) throw error;
    fetching.warn(`the drafter of ${known.name} cannot be loaded and answers are not drafted ahead: ${error.message}; is the package's folder drafters served, or does drafter name it?`);
    return undefined;
  }
}
