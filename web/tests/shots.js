// Pictures of every view, in both themes and narrow: to look at. `node shots.js [view …]`; `node shots.js docs` makes
// those of the README.
import { mkdir } from "node:fs/promises";
import { launch, open } from "./browser.js";
import { serve } from "./server.js";

const VIEWS = {
  decode: "",
  ambiguous: "#decode=175928847299117063",
  warning: "#decode=1205161015177961500",
  wide: "#decode=017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
  implausible: "#decode=18446744073709551615",
  two: "#decode=1205161015177961473%0A1593572310593806338",
  layout: "#layout",
  simulate: "#simulate=7&events=3000000:back-2000:0,9000000:pause:0&at=17000000",
  bench: "#bench",
};
const asked = process.argv.slice(2);
const server = await serve();
const browser = await launch();
if (asked.includes("docs")) {
  for (const [name, fragment, colorScheme, height] of [
    ["decode", "", "light", 720],
    ["layout", "#layout", "light", 610],
    ["simulate", "#simulate=7&events=4000000:back-2000:0,9000000:cut:1&at=15500000", "dark", 900],
  ]) {
    const { page, clean, go, context } = await open(browser, server, { colorScheme, viewport: { width: 1000, height } });
    await go(fragment);
    await page.waitForTimeout(name === "simulate" ? 2500 : 300);
    await page.evaluate((top) => {
      document.activeElement.blur();
      scrollTo(0, top);
    }, name === "simulate" ? 205 : 0);
    await page.screenshot({ path: `../../docs/playground-${name}.png` });
    clean();
    await context.close();
  }
  await browser.close();
  await server.close();
  process.exit();
}
await mkdir("shots", { recursive: true });
for (const [name, fragment] of Object.entries(VIEWS).filter(([name]) => asked.length === 0 || asked.includes(name))) {
  for (const [kind, options] of [
    ["light", { colorScheme: "light" }],
    ["dark", { colorScheme: "dark" }],
    ["narrow", { colorScheme: "light", viewport: { width: 320, height: 640 } }],
  ]) {
    const { page, faults, go, context } = await open(browser, server, options);
    await go(fragment);
    await page.waitForTimeout(name === "simulate" ? 2500 : 300);
    await page.screenshot({ path: `shots/${name}-${kind}.png`, fullPage: true });
    if (faults.length) console.log(name, kind, faults);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    if (width > (options.viewport?.width ?? 1280)) console.log(name, kind, "is", width, "wide");
    await context.close();
  }
}
await browser.close();
await server.close();
