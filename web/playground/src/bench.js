// Benchmark: the core against what is usually written in JavaScript, in this browser.
import { h, say } from "./ui.js";

const ROWS = [
  ["core-calls", "Snowmint, an ID a call", true, "The core in WebAssembly, called for each ID: clock in, BigInt out. What a call over the boundary costs is most of it. No lease, no clock of its own."],
  ["core-runs", "Snowmint, by runs", true, "The core called once for 4,096 IDs; JavaScript makes each by one BigInt addition. Every ID exists as a BigInt."],
  ["core-rust", "Snowmint, runs alone", true, "The same calls, without making the IDs in JavaScript: what the core itself costs an ID. Not a figure to compare with the rows below."],
  ["bigint", "JavaScript, BigInt", false, "A Snowflake as it is usually written. It checks no clock, has no lease, and repeats IDs when the clock steps back."],
  ["halves", "JavaScript, two 32-bit halves", false, "The same without BigInt: fast, and every use of an ID must handle two numbers. The same faults."],
  ["random-uuid", "crypto.randomUUID", false, "128 random bits as text, by the browser. No order, no time; needs no coordination."],
  ["uuidv7", "UUIDv7, JavaScript", false, "128 bits as text: a time, then random bits, drawn 256 at once. Sorted by the millisecond only."],
];

const state = { worker: null, results: new Map() };
let parts;

export function begin(root) {
  parts = {
    run: h("button", { type: "button", class: "primary", onclick: () => (state.worker ? stop() : start()) }, "Measure"),
    progress: h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress" }),
    status: h("p", { class: "status", role: "status" }),
    chart: h("div", { class: "chart", "aria-hidden": "true" }),
    body: h("tbody"),
  };
  root.append(
    h("h1", {}, "What an ID costs here"),
    h("p", { class: "lead" }, "Nanoseconds an ID in this browser, on this machine: the median of 31 samples, with the range from the 5th to the 95th of a hundred."),
    h("div", { class: "toolbar" }, parts.run, parts.progress),
    parts.status,
    h("section", { class: "card" }, h("h2", {}, "Nanoseconds an ID, shorter is faster (logarithmic)"), parts.chart),
    h("div", { class: "scrolled", role: "region", "aria-label": "Figures", tabIndex: 0 }, h("table", { id: "bench-table" }, h("thead", {}, h("tr", {}, ["What", "Median", "p5 to p95", "IDs a second", "What it is, and is not"].map((name) => h("th", { scope: "col" }, name)))), parts.body)),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "How it is measured"),
      h("p", {}, "In a worker, each row warmed up first, in batches that grow until one takes 20 ms. All generators but ", h("code", {}, "randomUUID"), " read the same made-up clock, which moves on by a millisecond every 4,096 IDs: by a real clock every generator of this layout would wait, since 4,096 IDs a millisecond are 244 ns an ID. So these figures are what an ID costs, not how many can be had."),
      h("p", {}, "What happens under faults is not measured here: ", h("a", { href: "#simulate" }, "Simulate"), " shows it. The component of the host is not among the rows: a browser needs it transpiled first."),
    ),
  );
  draw();
}

export function show() {}

export function leave() {
  if (state.worker) stop();
}

function start() {
  state.results.clear();
  draw();
  state.worker = new Worker(new URL("./bench-worker.js", import.meta.url), { type: "module" });
  state.worker.onmessage = ({ data }) => {
    if (data.progress !== undefined) parts.progress.value = data.progress;
    if (data.name) {
      state.results.set(data.name, data.figures);
      parts.status.textContent = `${ROWS.find(([name]) => name === data.name)[1]}: ${data.figures ? figure(data.figures.median) : "not to be had here"}`;
      draw();
    }
    if (data.error) {
      parts.status.textContent = `It could not be measured: ${data.error}`;
      stop();
    }
    if (data.done) {
      stop();
      parts.status.textContent = `Measured: ${navigator.hardwareConcurrency ?? "?"} processors, ${new Date().toISOString().slice(0, 10)}.`;
      document.documentElement.dataset.measured = "true";
    }
  };
  state.worker.onerror = (event) => {
    parts.status.textContent = `It could not be measured: ${event.message}`;
    stop();
  };
  parts.run.textContent = "Stop";
  parts.progress.hidden = false;
  parts.progress.value = 0;
  say("Measuring");
  state.worker.postMessage(ROWS.map(([name]) => name));
}

function stop() {
  state.worker?.terminate();
  state.worker = null;
  parts.run.textContent = "Measure";
  parts.progress.hidden = true;
}

function figure(ns) {
  return `${ns >= 100 ? ns.toFixed(0) : ns >= 1 ? ns.toFixed(1) : ns.toFixed(3)} ns`;
}

function perSecond(ns) {
  const count = 1e9 / ns;
  return count >= 1e9 ? `${(count / 1e9).toFixed(1)} billion` : `${(count / 1e6).toFixed(1)} million`;
}

function draw() {
  const figures = [...state.results.values()].filter(Boolean);
  const most = Math.max(1000, ...figures.map((it) => it.high));
  const least = Math.min(0.01, ...figures.map((it) => it.low));
  const share = (ns) => (Math.log10(ns / least) / Math.log10(most / least)) * 100;
  parts.chart.replaceChildren(
    ...ROWS.map(([name, title, isOurs]) => {
      const found = state.results.get(name);
      return h(
        "div",
        { class: `chart-row ${isOurs ? "own" : "other"}` },
        h("span", { class: "chart-name" }, title),
        h(
          "span",
          { class: "chart-track" },
          found ? h("span", { class: "chart-bar", style: { width: `${share(found.median)}%` } }) : null,
          found ? h("span", { class: "chart-spread", style: { left: `${share(found.low)}%`, width: `${share(found.high) - share(found.low)}%` } }) : null,
        ),
        h("span", { class: "chart-figure" }, found ? figure(found.median) : ""),
      );
    }),
  );
  parts.body.replaceChildren(
    ...ROWS.map(([name, title, , note]) => {
      const found = state.results.get(name);
      const missing = state.results.has(name) ? "not here" : "–";
      return h(
        "tr",
        { "data-row": name },
        h("th", { scope: "row" }, title),
        h("td", { class: "number" }, found ? figure(found.median) : missing),
        h("td", { class: "number" }, found ? `${figure(found.low)} to ${figure(found.high)}` : ""),
        h("td", { class: "number" }, found ? perSecond(found.median) : ""),
        h("td", { class: "note" }, note),
      );
    }),
  );
}
