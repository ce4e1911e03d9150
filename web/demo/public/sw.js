// Keeps the page itself for offline use; models are kept by the package. What is built has its hash in its name, so it
// never changes; the page is asked for first and taken from here when there is no network. Drafters go the way of models.
const SHELL = 'redraft-shell-1';

self.addEventListener('install', (event) => event.waitUntil(self.skipWaiting()));
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

async function keep(request, response) {
  if (response.ok && response.status === 200) await (await caches.open(SHELL)).put(request, response.clone());
  return response;
}

self.addEventListener('fetch', (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== 'GET' || url.origin !== location.origin || url.pathname.includes('/models/') || url.pathname.endsWith('.safetensors')) return;
  const hashed = url.pathname.includes('/assets/');
  event.respondWith(
    (async () => {
      const kept = await caches.match(request, { ignoreSearch: request.mode === 'navigate' });
      if (hashed && kept) return kept;
      try {
        return await keep(request, await fetch(request));
      } catch (error) {
        if (kept) return kept;
        throw error;
      }
    })(),
  );
});
