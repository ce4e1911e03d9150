/** Lists what was skipped and why; a skip that the machine could have helped fails the run. */
import type { FullResult, Reporter, TestCase, TestResult } from '@playwright/test/reporter';

/** Set to 1 where even what `cargo xtask setup` fetches cannot be had. */
const allowAll = process.env['REDRAFT_ALLOW_SKIPS'] === '1';

export default class Skips implements Reporter {
  readonly #skipped: { readonly name: string; readonly why: string }[] = [];

  onTestEnd(test: TestCase, { status, annotations }: TestResult): void {
    if (status !== 'skipped') return;
    const why = annotations.find(({ type }) => type === 'skip')?.description ?? 'no reason was given';
    this.#skipped.push({ name: test.title, why });
  }

  async onEnd({ status }: FullResult): Promise<{ status: FullResult['status'] }> {
    for (const { name, why } of this.#skipped) console.log(`skipped: ${name}: ${why}`);
    // After a failure Playwright skips what is left of a group; that run has failed already.
    const { length } = this.#skipped;
    if (status !== 'passed' || length === 0 || allowAll) return { status };
    console.error(`${length} skipped: see to what is missing, or set REDRAFT_ALLOW_SKIPS=1`);
    return { status: 'failed' };
  }

  printsToStdio(): boolean {
    return false;
  }
}
