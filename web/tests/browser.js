// Debian's Chromium, and pages that may not err, ask elsewhere, or throw.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

export const CHROMIUM = process.env.SNOWMINT_CHROMIUM ?? "/usr/bin/chromium";

export function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** A page whose faults are kept; `clean` says that there was none. */
export async function open(browser, server, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    timezoneId: "Europe/Zurich",
    locale: "en-GB",
    permissions: ["clipboard-read", "clipboard-write"],
    ...options,
  });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`thrown: ${error.stack ?? error}`));
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== server.origin && !["blob:", "data:"].includes(protocol)) faults.push(`asked elsewhere: ${request.url()}`);
  });
  page.on("requestfailed", (request) => {
    // What a visitor who goes on cuts off is no fault.
    const { errorText } = request.failure() ?? {};
    if (errorText !== "net::ERR_ABORTED") faults.push(`failed: ${request.url()} ${errorText}`);
  });
  const clean = () => assert.deepEqual(faults, []);
  const go = async (fragment = "") => {
    await page.goto("about:blank");
    await page.goto(server.url + fragment);
    await page.waitForSelector("html[data-ready]", { timeout: 10_000 }).catch((error) => {
      throw new Error(`the page is not ready: ${faults.join("; ") || error}`);
    });
  };
  return { page, context, clean, faults, go };
}
