// Keeps the page for use without a network; models, and drafters with them, are kept by the package. `shell.js` comes from
// the build: a version, and the files that the page is made of.
importScripts('./shell.js');

const { version, files } = self.SHELL;
const { scope } = self.registration;
const PREFIX = `redraft-shell ${scope} `;
const NAME = PREFIX + version;
const ADDRESSES = new Set(files.map((file) => new URL(file, scope).href));

// What is built has its hash in its name, so it never changes.
const hashed = (address) => address.startsWith(new URL('assets/', scope).href);

async function install() {
  const cache = await caches.open(NAME);
  const put = async (address) => {
    // The browser may have kept an older index.html for a while.
    const response = await fetch(address, { cache: hashed(address) ? 'default' : 'reload' });
    if (!response.ok) throw new Error(`${address}: the server answered ${response.status}`);
    // A copy: pages may not be answered with what came by a redirection.
    await cache.put(address, new Response(response.body, { headers: response.headers }));
  };
  await Promise.all([...ADDRESSES].map(put));
}

async function activate() {
  const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

// A newer one waits, as is the rule, until no page of this one is open: such a page may yet ask for its worker.
self.addEventListener('install', (event) => event.waitUntil(install()));
self.addEventListener('activate', (event) => event.waitUntil(activate()));

async function answer(request, address) {
  const kept = async () => (await caches.open(NAME)).match(address, { ignoreVary: true });
  if (hashed(address)) return (await kept()) ?? fetch(request);
  try {
    return await fetch(request);
  } catch (error) {
    const found = await kept();
    if (found) return found;
    throw error;
  }
}

self.addEventListener('fetch', (event) => {
  const url = new URL(event.request.url);
  url.search = '';
  if (url.pathname.endsWith('/')) url.pathname += 'index.html';
  if (event.request.method === 'GET' && ADDRESSES.has(url.href)) event.respondWith(answer(event.request, url.href));
});
