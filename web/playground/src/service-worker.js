// Keeps the page's own files, so that it opens without a network. A version is its files: a new one replaces the old.
const VERSION = /* version */;
const FILES = [/* files */];
const CACHE = `snowmint-${VERSION}`;

self.addEventListener("install", (event) => {
  const keep = async () => {
    const cache = await caches.open(CACHE);
    await cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })));
    await self.skipWaiting();
  };
  event.waitUntil(keep());
});

self.addEventListener("activate", (event) => {
  const clean = async () => {
    const names = await caches.keys();
    const old = names.filter((name) => name.startsWith("snowmint-") && name !== CACHE);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(clean());
});

// The network first, so that nobody is held at an old version; what is kept when there is none.
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  const name = request.mode === "navigate" ? "index.html" : request;
  const answer = async () => {
    const cache = await caches.open(CACHE);
    try {
      const response = await fetch(request);
      if (response.ok) return response;
    } catch {
      // No network.
    }
    return (await cache.match(name, { ignoreSearch: true })) ?? Response.error();
  };
  event.respondWith(answer());
});
