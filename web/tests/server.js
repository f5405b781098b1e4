// Serves the built page under a sub-path, as static hosts do, with the policy that the page itself names. No dependency.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const DIST = fileURLToPath(new URL("../playground/dist/", import.meta.url));
const KINDS = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".wasm": "application/wasm",
  ".svg": "image/svg+xml",
  ".webmanifest": "application/manifest+json",
};
const BASE = "/some/where/";

/** Begins to serve on a free port; the address ends in a slash. */
export async function serve() {
  const page = await readFile(join(DIST, "index.html"), "utf8");
  const policy = page.match(/http-equiv="Content-Security-Policy" content="([^"]*)"/)[1].replace(/\s+/g, " ");
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, "http://localhost").pathname;
    const name = path.startsWith(BASE) ? path.slice(BASE.length) || "index.html" : "..";
    try {
      if (name.includes("..") || name.includes("/")) throw new Error("outside");
      const body = await readFile(join(DIST, name));
      response.writeHead(200, { "Content-Type": KINDS[extname(name)], "Content-Security-Policy": `${policy}; frame-ancestors 'none'` });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  return { url: origin + BASE, origin, close: () => new Promise((resolve) => server.close(resolve)) };
}
