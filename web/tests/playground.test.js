// The playground in Debian's Chromium: what a visitor can do, see and break.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { launch, open } from "./browser.js";
import { serve } from "./server.js";

const require = createRequire(import.meta.url);
const AXE = require.resolve("axe-core/axe.min.js");
const VECTORS = JSON.parse(await readFile(new URL("../../crates/core/tests/data/ids.json", import.meta.url), "utf8"));
const VIEWS = ["", "#decode=175928847299117063", "#decode=18446744073709551615", "#decode=1205161015177961473%0A1593572310593806338", "#decode=hello", "#layout", "#layout=reserved:1,timestamp:41,region:2,worker:8,sequence:11&epoch=1735689600000&tick=1000000", "#layout=reserved:1,timestamp:39,region:2,worker:8,sequence:14&epoch=1735689600000&tick=1000000", "#simulate=7&events=3000000:back-2000:0&at=4000000", "#bench"];
const FAULTS = ["freeze", "back-1", "back-5", "back-2000", "ahead-8h", "exhaust", "expire", "pause", "kill", "cut", "lose"];

let browser, server;
before(async () => {
  server = await serve();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Runs with a page of its own, which must not err. */
async function withPage(work, options) {
  const it = await open(browser, server, options);
  try {
    await work(it);
    it.clean();
  } finally {
    await it.context.close();
  }
}

const text = (page, selector) => page.locator(selector).first().innerText();
const digits = (string) => BigInt(string.replace(/\D/g, ""));

async function paste(page, string) {
  await page.evaluate((it) => navigator.clipboard.writeText(it), string);
  await page.locator("#ids").focus();
  await page.keyboard.press("Control+A");
  await page.keyboard.press("Control+V");
}

describe("decode", () => {
  test("every vector, pasted, is read by its scheme to its time and fields", () =>
    withPage(async ({ page, go }) => {
      await go();
      assert.ok(VECTORS.length > 15);
      for (const vector of VECTORS) {
        await paste(page, vector.text ?? vector.id);
        await page.locator("#reader").selectOption(vector.scheme);
        const told = await page.locator(".when time").getAttribute("datetime");
        const off = Math.abs(Date.parse(told) - Date.parse(vector.expect_utc));
        // As core's own tests: to the millisecond, within what the evidence allows.
        assert.ok(off <= Math.max(vector.tolerance_ms, 0), `${vector.scheme} ${vector.id}: ${told}, not ${vector.expect_utc}`);
        for (const [name, value] of Object.entries(vector.fields ?? {})) {
          const row = page.locator("table.fields tbody tr", { has: page.locator("th", { hasText: new RegExp(`^${name}`) }) });
          assert.equal((await row.locator("td.value").first().innerText()).trim(), value, `${vector.scheme}: ${name}`);
        }
        assert.equal(await page.locator(".bit").count(), 64);
      }
    }));

  test("a page without an address explains itself, with an example", () =>
    withPage(async ({ page, go }) => {
      await go();
      assert.equal(await page.locator("h1:visible").count(), 1);
      assert.match(await text(page, ".when"), /2019-12-12 16:22:31.484/);
      assert.match(await text(page, ".result"), /here 2019-12-12 17:22:31.484 \+01:00/);
      assert.match(await text(page, ".result h2"), /Twitter.*2019-12-12; Discord would be 2024/);
      assert.equal(await page.evaluate(() => document.activeElement.id), "ids");
      assert.equal(new URL(page.url()).hash, "");
    }));

  test("a link is the state: ID, scheme, and nothing of it in the request", () =>
    withPage(async ({ page, go, context }) => {
      await go();
      await paste(page, "175928847299117063");
      await page.locator("#reader").selectOption("twitter");
      assert.match(page.url(), /#decode=175928847299117063&layout=twitter$/);
      const link = page.url();
      const other = await context.newPage();
      const asked = [];
      other.on("request", (request) => asked.push(request.url()));
      await other.goto(link);
      await other.waitForSelector("html[data-ready]");
      assert.match(await text(other, ".when"), /2012-03-03/);
      assert.ok(asked.length > 3 && asked.every((url) => !url.includes("1759288")));
    }));

  test("bits flip by click and by key, and light their field both ways", () =>
    withPage(async ({ page, go }) => {
      await go("#decode=1205161015177961473&layout=twitter");
      await page.locator('.bit[data-bit="0"]').click();
      assert.equal(await page.locator("#ids").inputValue(), "1205161015177961472");
      assert.equal(await page.evaluate(() => document.activeElement.dataset.bit), "0");
      await page.keyboard.press("ArrowLeft");
      await page.keyboard.press("ArrowUp");
      assert.equal(await page.evaluate(() => document.activeElement.dataset.bit), "33");
      await page.keyboard.press("Space");
      assert.equal(await page.locator("#ids").inputValue(), (1205161015177961472n ^ (1n << 33n)).toString());
      assert.match(page.url(), /layout=twitter/);
      await page.keyboard.press("Home");
      await page.keyboard.press("Enter");
      assert.match(await page.locator("#decoded").innerText(), /keeps at 0/);
      await page.locator("table.fields tbody tr").last().hover();
      assert.equal(await page.locator(".bit.lit").count(), 12);
      await page.locator('.bit[data-bit="20"]').hover();
      assert.equal(await page.locator("tr.lit th").innerText().then((it) => it.trim().startsWith("datacenter")), true);
      assert.equal(await page.locator(".bit.lit").count(), 5);
    }));

  test("IDs are found in addresses, logs, CSV and JSON; what is none is said", () =>
    withPage(async ({ page, go }) => {
      await go();
      await paste(page, "https://twitter.com/x/status/1205161015177961473?s=20");
      assert.match(await text(page, ".when"), /2019-12-12/);
      await paste(page, "https://www.instagram.com/p/C3xkq1-Mx8F/");
      assert.match(await text(page, "#decoded"), /Instagram/);
      await paste(page, 'id,x\n1205161015177961473,"a"\n{"b": "175928847299117063"}\nnothing here\n017f22e2-79b0-7cc3-98c4-dc0c0c07398f');
      assert.equal(await page.locator("table.rows tbody tr").count(), 3);
      assert.match(await text(page, "#decode-status"), /3 IDs, 2 lines without one/);
      await paste(page, "hello");
      assert.match(await text(page, "#decoded .warning"), /Not an ID/);
      await paste(page, "1205161015177961473\n1593572310593806338");
      assert.match(await text(page, "#decoded"), /1071 d 19 h 27 min 49.160 s/);
      await paste(page, "1205161015177961500");
      assert.match(await text(page, "#decoded .warning"), /may have been rounded/);
    }));

  test("copies what it shows, and answers the inverse", () =>
    withPage(async ({ page, go }) => {
      await go("#decode=1205161015177961473&layout=twitter");
      await page.getByRole("button", { name: "Copy sequence" }).click();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "1");
      await page.getByText("JSON", { exact: true }).click();
      await page.getByRole("button", { name: "Copy JSON" }).click();
      const json = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
      assert.deepEqual([json.id, json.time], ["1205161015177961473", "2019-12-12T16:22:31.484Z"]);
      await page.locator("#inverse").fill("2019-12-12T16:22:31.484Z");
      assert.match(await text(page, ".answer"), /1205161015176593408/);
      await page.locator("#inverse").fill("yesterday");
      assert.match(await text(page, ".answer"), /2019-12-12T/);
    }));

  test("10,000 IDs are read in 300 ms, and nothing blocks for 50", () =>
    withPage(async ({ page, go }) => {
      const ids = Array.from({ length: 10_000 }, (_, nth) => (1205161015177961473n + BigInt(nth) * 4_194_304_007n).toString()).join("\n");
      const runs = [];
      // The best of a few: this machine may be busy with other things.
      for (let run = 0; run < 5; run++) {
        await go();
        await page.evaluate((it) => navigator.clipboard.writeText(it), ids);
        await page.locator("#ids").focus();
        await page.keyboard.press("Control+A");
        await page.evaluate(() => {
          window.longest = 0;
          new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.longest = Math.max(window.longest, entry.duration)))).observe({ type: "longtask" });
        });
        await page.keyboard.press("Control+V");
        await page.waitForSelector("table.rows");
        await page.waitForTimeout(100);
        runs.push(await page.evaluate(() => ({ longest: Math.round(window.longest), took: Math.round(performance.getEntriesByName("decoded").at(-1).duration) })));
        assert.match(await text(page, "#decode-status"), /10.000 IDs/);
        if (runs.at(-1).took <= 300 && runs.at(-1).longest <= 50) break;
      }
      console.log(`10,000 IDs: ${JSON.stringify(runs)}`);
      assert.ok(runs.some(({ took, longest }) => took <= 300 && longest <= 50), JSON.stringify(runs));
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save as CSV" }).click()]);
      const csv = await readFile(await download.path(), "utf8");
      assert.equal(csv.trim().split("\r\n").length, 10_001);
      // So long a text is kept, not shown; another can be pasted over it, and it can be had as text.
      assert.match(await text(page, ".pasted"), /10.000 lines/);
      await page.getByRole("button", { name: "Next" }).click();
      assert.match(await text(page, ".pager"), /101–200 of/);
      await page.getByRole("button", { name: "Show as text" }).click();
      assert.equal((await page.locator("#ids").inputValue()).split("\n").length, 10_000);
      await page.evaluate((it) => navigator.clipboard.writeText(it), "175928847299117063");
      await page.keyboard.press("Control+A");
      await page.keyboard.press("Control+V");
      assert.match(await text(page, ".when"), /2016-04-30/);
      await page.locator("h1").first().click();
      await page.evaluate((it) => navigator.clipboard.writeText(it), "1205161015177961473");
      await page.evaluate(() => document.activeElement.blur());
      await page.keyboard.press("Control+V");
      assert.match(await text(page, ".when"), /2019-12-12/);
    }));
});

describe("layout", () => {
  test("boundaries move by drag, by key and by number", () =>
    withPage(async ({ page, go }) => {
      await go("#layout");
      const boundary = page.getByRole("slider", { name: "Boundary of worker and sequence" });
      await boundary.focus();
      await page.keyboard.press("ArrowLeft");
      assert.match(page.url(), /worker:7,sequence:13/);
      assert.equal(await boundary.getAttribute("aria-valuenow"), "7");
      await page.keyboard.press("ArrowRight");
      assert.match(page.url(), /#layout$/);
      const box = await boundary.boundingBox();
      const bar = await page.locator(".layout-bar").boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width / 2 + (bar.width / 64) * 3, box.y + 20, { steps: 6 });
      await page.mouse.up();
      assert.match(page.url(), /worker:11,sequence:9/);
      await page.locator("#bits-3").fill("10");
      await page.keyboard.press("Tab");
      assert.match(await text(page, "#view-layout .warning"), /add up to 63 bits/);
      await page.locator("#bits-4").fill("10");
      await page.keyboard.press("Tab");
      assert.equal(await page.locator("#view-layout > .warning").isVisible(), false);
    }));

  test("requirements pass or fail with a fix that can be applied", () =>
    withPage(async ({ page, go }) => {
      await go("#layout");
      assert.equal(await page.locator(".margins .pass").count(), 4);
      await page.locator("#need-workers").fill("300");
      await page.keyboard.press("Tab");
      assert.equal(await page.locator(".margins .fail").count(), 1);
      assert.match(await text(page, ".margins .fail"), /Cheapest fix: .*make do with/);
      await page.locator("#need-years").fill("30");
      await page.keyboard.press("Tab");
      assert.match(await text(page, ".margins .fail"), /give worker 1 bit of timestamp/);
      await page.getByRole("button", { name: "Apply" }).click();
      assert.equal(await page.locator(".margins .pass").count(), 4);
      assert.match(page.url(), /timestamp:40,region:2,worker:9/);
      await page.reload();
      await page.waitForSelector("html[data-ready]");
      assert.equal(await page.locator("#need-workers").inputValue(), "300");
      assert.match(await text(page, ".layout-bar"), /timestamp\s*40/);
    }));

  test("a change is planned or refused, and exports follow", () =>
    withPage(async ({ page, go }) => {
      await go("#layout=reserved:1,timestamp:41,region:3,worker:9,sequence:10&epoch=1735689600000&tick=1000000");
      await page.locator("#cutover").fill("2030-01-01");
      await page.keyboard.press("Tab");
      assert.match(await text(page, ".plan"), /largest old ID is/);
      assert.match(await text(page, '[data-export="TOML"]'), /role = "worker", bits = 9/);
      assert.match(await text(page, '[data-export="Rust"]'), /Field::new\(Role::Worker, 9\)/);
      assert.match(await text(page, '[data-export="Mermaid"]'), /^packet-beta\n0: "reserved"\n1-41: "timestamp"/);
      await page.locator("#preset").selectOption("sharded");
      assert.match(await text(page, "#view-layout"), /No cut-over can be promised/);
      await page.locator("#epoch").fill("2020-01-01");
      await page.keyboard.press("Tab");
      assert.match(page.url(), /epoch=1577836800000/);
    }));
});

describe("simulate", () => {
  test("each fault: no duplicate of Snowmint's, some of the naive one's, and as many mint as before", () =>
    withPage(async ({ page, go }) => {
      for (const fault of FAULTS) {
        await go(`#simulate=7&events=3000000:${fault}:0&at=16000000`);
        const [ours, naive] = [await text(page, ".score.good output"), await text(page, ".score.bad output")];
        assert.equal(ours, "0", fault);
        assert.ok(digits(naive) > 0n, `${fault}: ${naive}`);
        const episode = await text(page, `.episodes [data-fault="${fault}"]`);
        assert.match(episode, /predicted .+\n[\s\S]*seen [\s\S]*as many mint as before\.\n[\s\S]*naive [\d\s]+ duplicates/, fault);
        assert.ok(!episode.includes("not yet"), episode);
      }
    }));

  test("the same address is the same run, to the last digit", () =>
    withPage(async ({ page, go }) => {
      const seen = [];
      for (let run = 0; run < 2; run++) {
        await go("#simulate=18446744073709551615&events=2000000:kill:1,4000000:cut:0,9000500:lose:2&at=14000000");
        seen.push([await text(page, ".scores"), await text(page, ".log"), await text(page, ".episodes"), await text(page, ".lanes")]);
      }
      assert.deepEqual(seen[0], seen[1]);
      assert.match(seen[0][0], /Duplicates\n\s*0/);
    }));

  test("a fault by button is in the address; steps and pause work by keyboard", () =>
    withPage(
      async ({ page, go }) => {
        await go("#simulate");
        assert.equal(await page.getByRole("button", { name: "Play" }).count(), 1, "with reduced motion nothing plays by itself");
        for (let nth = 0; nth < 10; nth++) await page.getByRole("button", { name: "Step 100 ms" }).press("Enter");
        assert.match(await text(page, ".controls output"), /1\.00 s/);
        await page.getByRole("button", { name: "bravo" }).press("Enter");
        await page.locator('[data-fault="back-5"]').focus();
        assert.match(await text(page, ".hint"), /Snowmint: Refuses for 5 ms.*Naive: Lives the same/);
        await page.keyboard.press("Enter");
        await page.getByRole("button", { name: "Step 100 ms" }).press("Enter");
        assert.match(page.url(), /#simulate=7&events=1000000:back-5:1&at=1100000$/);
        assert.ok(digits(await text(page, ".score.bad output")) > 0n);
      },
      { reducedMotion: "reduce" },
    ));

  test("time passes when it plays, and stands when it is paused", () =>
    withPage(async ({ page, go }) => {
      await go("#simulate");
      await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
      await page.waitForTimeout(500);
      await page.getByRole("button", { name: "Pause", exact: true }).click();
      const shown = await text(page, ".controls output");
      assert.ok(Number.parseFloat(shown) > 0.1, shown);
      await page.waitForTimeout(200);
      assert.equal(await text(page, ".controls output"), shown);
      assert.match(page.url(), /at=\d+/);
    }));
});

describe("benchmark", () => {
  test("it ends with numbers in every row", () =>
    withPage(async ({ page, go }) => {
      await go("#bench");
      await page.getByRole("button", { name: "Measure" }).click();
      await page.waitForSelector("html[data-measured]", { timeout: 120_000 });
      const rows = await page.locator("#bench-table tbody tr").allInnerTexts();
      assert.equal(rows.length, 7);
      for (const row of rows) assert.match(row, /\d+(\.\d+)? ns\s+\d+(\.\d+)? ns to \d+(\.\d+)? ns/);
    }));
});

describe("everywhere", () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 320]) {
      test(`no violation of WCAG 2.2 A and AA, nothing that sticks out: ${colorScheme}, ${width} px`, () =>
        withPage(
          async ({ page, go }) => {
            for (const view of VIEWS) {
              await go(view);
              await page.evaluate(await readFile(AXE, "utf8"));
              const found = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
              assert.ok(found.passes.length > 10, "axe has looked");
              assert.deepEqual(found.violations.map((it) => `${view} ${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`), []);
              assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `${view} is wider than the window`);
            }
          },
          { colorScheme, viewport: { width, height: 800 } },
        ));
    }
  }

  test("the theme can be chosen, and is kept", () =>
    withPage(
      async ({ page, go }) => {
        await go();
        const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        const system = await paper();
        await page.locator("#theme").click();
        await page.locator("#theme").click();
        const dark = await paper();
        assert.notEqual(dark, system);
        await page.reload();
        await page.waitForSelector("html[data-ready]");
        assert.equal(await paper(), dark);
      },
      { colorScheme: "light" },
    ));

  test("it opens without a network once it was open", async () => {
    const own = await serve();
    const { page, context } = await open(browser, own);
    await page.goto(own.url);
    await page.waitForSelector("html[data-ready]");
    await page.evaluate(() => navigator.serviceWorker.ready);
    await page.waitForFunction(async () => (await (await caches.open((await caches.keys())[0])).keys()).length > 12);
    await own.close();
    for (const [fragment, seen] of [["#decode=175928847299117063&layout=discord", "2016-04-30"], ["#layout", "Lay out"], ["#simulate=1&at=1000000", "Break the clock"]]) {
      await page.goto("about:blank");
      await page.goto(own.url + fragment);
      await page.waitForSelector("html[data-ready]");
      assert.match(await page.locator("main").innerText(), new RegExp(seen));
    }
    await context.close();
  });

  test("ready within 500 ms, and not a large first visit", () =>
    withPage(async ({ page, go }) => {
      const times = [];
      for (let run = 0; run < 5 && !(Math.min(...times) <= 500); run++) {
        await go();
        times.push(Math.round(await page.evaluate(() => performance.getEntriesByName("ready")[0].startTime)));
      }
      const loaded = await page.evaluate(() => performance.getEntriesByType("resource").map((it) => it.name.split("/").pop()));
      console.log(`ready after ${times.join(", ")} ms; loaded ${loaded.join(" ")}`);
      assert.ok(Math.min(...times) <= 500, times.join(", "));
      assert.ok(!loaded.some((name) => /simul|bench|layout/.test(name)), "what other views need is not loaded with the first");
    }));

  test("nothing that is typed, pasted or put into the address throws", () =>
    withPage(async ({ page, go }) => {
      const seed = Number(process.env.SNOWMINT_FUZZ_SEED ?? Date.now() % 1_000_000);
      console.log(`fuzz seed ${seed}: SNOWMINT_FUZZ_SEED=${seed} replays it`);
      let bits = BigInt(seed) + 0x9e3779b97f4a7c15n;
      const draw = (end) => {
        bits = (bits * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n);
        return Number((bits >> 33n) % BigInt(end));
      };
      const pieces = ["1205161015177961473", "18446744073709551615", "18446744073709551616", "-1", "0", "\u0000", "\u200f", "é", "😀", "\ud800", "%", "%E0%A4%A", "&", "=", "#", "\n", "\r\n", " ", ",", ":", "/", "timestamp:", "reserved:", "layout=", "epoch=", "NaN", "Infinity", "1e309", "9".repeat(400), "a".repeat(3000), "0x", "<b>", "__proto__", "constructor", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "2026-02-30", "+010000-01-01T00:00:00Z", "back-1:0"];
      const hostile = () => Array.from({ length: 1 + draw(6) }, () => pieces[draw(pieces.length)]).join("");
      const type = async (selector, value) => {
        await page.evaluate(
          ([selector, value]) => {
            const input = document.querySelector(selector);
            if (!input) return;
            input.value = value;
            for (const kind of ["input", "change"]) input.dispatchEvent(new Event(kind, { bubbles: true }));
          },
          [selector, value],
        );
      };
      await go();
      for (let nth = 0; nth < 150; nth++) {
        await type("#ids", hostile());
        if (nth % 3 === 0) await type("#inverse", hostile());
      }
      await go("#layout");
      for (let nth = 0; nth < 120; nth++) {
        const fields = ["#epoch", "#tick", "#cutover", "#bits-0", "#bits-1", "#need-years", "#need-regions", "#need-workers", "#need-burst"];
        const field = fields[draw(fields.length)];
        // A browser keeps what is no number out of a field for numbers, and says so when a script tries.
        const numbers = ["", "-1", "0", "1e3", "4294967296", "9".repeat(30), "0.5", String(draw(70)), String(draw(70))];
        const isText = ["#epoch", "#tick", "#cutover"].includes(field);
        await type(field, isText && nth % 2 ? hostile() : numbers[draw(numbers.length)]);
        if (nth % 10 === 0) await page.getByRole("button", { name: "Derive a layout" }).click();
      }
      for (let nth = 0; nth < 120; nth++) {
        const view = ["decode", "layout", "simulate", "bench", "nothing"][draw(5)];
        const keys = ["layout", "epoch", "tick", "events", "at", "years", "used", "cutover"];
        const rest = Array.from({ length: draw(4) }, () => `&${keys[draw(keys.length)]}=${nth % 2 ? hostile() : encodeURIComponent(hostile().replace(/\ud800/g, ""))}`).join("");
        await page.evaluate((it) => (location.hash = it), `#${view}=${hostile()}${rest}`);
        if (nth % 20 === 0) await page.waitForTimeout(50);
      }
      await page.waitForTimeout(300);
    }));
});
