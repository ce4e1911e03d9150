/** Has the built page kept in this browser, so that it opens without a network. */
export function keepOffline(): void {
  if (!('serviceWorker' in navigator) || !import.meta.env.PROD) return;
  // Where it is refused the page works all the same, with a network. The list of files must be looked for as the script is.
  navigator.serviceWorker.register('./sw.js', { updateViaCache: 'none' }).catch(() => undefined);
}
