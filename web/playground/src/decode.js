// Decode: one ID at length, two with what lies between them, many as a table.
import { Batch, at, decode, difference, flip, schemes } from "./snowmint.js";
import { ask, breathe, copyButton, dateOf, download, grouped, h, localText, nowMs, relativeText, roleClass, addressOf, writeAddress } from "./ui.js";

const EXAMPLES = [
  ["Twitter", "1205161015177961473"],
  ["Discord", "175928847299117063"],
  ["Snowmint", "253260419186630656"],
  ["Instagram, in an address", "https://www.instagram.com/p/C3xkq1-Mx8F/"],
  ["rounded by JavaScript", "1205161015177961500"],
  ["UUIDv7", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"],
  ["two IDs", "1205161015177961473\n1593572310593806338"],
  ["a log", '2019-12-12T16:22:31Z INFO tweet stored id=1205161015177961473 shard=3 took=0.184s\n{"level":"warn","guild":"81384788765712384","message":"175928847299117063"}\nGET /api/v10/channels/41771983423143937/messages 200'],
];

/** Rows of a page of the table, and how long Rust may work before the browser is let see to the visitor, in ms. */
const PAGE_ROWS = 100;
const SLICE_MS = 22;
const TOLD_EVERY_MS = 250;

const state = { text: "", reader: "auto", bit: null, run: 0, rows: [], page: 0 };
let input, large, status, place, catalogue;

export function begin() {
  input = document.getElementById("ids");
  status = document.getElementById("decode-status");
  place = document.getElementById("decoded");
  large = h("div", { class: "pasted", hidden: true }, h("span"), h("button", { type: "button", class: "small", onclick: clear }, "Clear"), h("button", { type: "button", class: "small", onclick: edit }, "Show as text"));
  input.after(large);
  document.addEventListener("paste", pastedBeside);
  catalogue = ask(schemes());
  document.getElementById("examples").append(
    ...EXAMPLES.map(([name, text]) => h("button", { type: "button", class: "chip", onclick: () => enter(text) }, name)),
  );
  input.addEventListener("input", () => {
    state.reader = "auto";
    state.bit = null;
    const text = input.value;
    fill(text, { isShown: text.length < 100_000 });
    read(text);
  });
  // A long text is taken in before the browser lays it out.
  input.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text") ?? "";
    if (text.split("\n", SHOWN_LINES_MAX + 1).length <= SHOWN_LINES_MAX) return;
    event.preventDefault();
    enter(text);
  });
  place.addEventListener("pointerover", (event) => light(event.target));
  place.addEventListener("pointerleave", () => light(null));
  place.addEventListener("focusin", (event) => light(event.target));
  place.addEventListener("focusout", () => light(null));
  let width = perRow();
  new ResizeObserver(() => {
    if (perRow() !== width && state.report) {
      width = perRow();
      const old = place.querySelector(".bits");
      old?.replaceWith(bitsOf(state.report));
    }
  }).observe(place);
}

export function show(address, isNew) {
  const isDecode = address.view === "decode";
  const text = isDecode && address.value ? address.value : state.text || input.value;
  state.reader = (isDecode && address.parameters.get("layout")) || "auto";
  fill(text);
  const reading = read(text, { keepsAddress: true });
  if (isNew && matchMedia("(hover: hover)").matches) input.focus({ preventScroll: true });
  return reading;
}

function enter(text) {
  state.reader = "auto";
  state.bit = null;
  fill(text);
  read(text);
  if (!input.hidden) input.focus();
}

/** More lines than these are not shown as text: to lay them out takes a browser longer than to read them. */
const SHOWN_LINES_MAX = 500;

/** Shows a text in the field, or that there is one too long for it. */
function fill(text, { isShown = false } = {}) {
  const lines = text.split("\n", SHOWN_LINES_MAX + 1).length;
  const isLarge = lines > SHOWN_LINES_MAX && !isShown;
  const hadFocus = document.activeElement === input;
  input.hidden = isLarge;
  large.hidden = !isLarge;
  // Hidden before it is filled: a field that is seen would be laid out at once.
  const shown = isLarge ? "" : text;
  if (input.value !== shown) input.value = shown;
  input.rows = Math.min(Math.max(lines, 1), 8);
  if (!isLarge) return;
  large.firstChild.textContent = `A text of ${grouped(text.split("\n").length)} lines`;
  if (hadFocus) large.querySelector("button").focus({ preventScroll: true });
}

function clear() {
  enter("");
}

function edit() {
  fill(state.text, { isShown: true });
  input.focus();
}

/** What is pasted beside a field is meant for the one that reads IDs. */
function pastedBeside(event) {
  const isElsewhere = document.getElementById("view-decode").hidden || event.target.closest?.("input, textarea");
  const text = event.clipboardData?.getData("text");
  if (isElsewhere || !text) return;
  event.preventDefault();
  enter(text);
}

async function read(text, { keepsAddress = false } = {}) {
  const run = ++state.run;
  state.text = text;
  if (!text.trim()) {
    status.textContent = "";
    state.report = null;
    place.replaceChildren();
    if (!keepsAddress) writeAddress("decode", "");
    return;
  }
  if (!keepsAddress) writeAddress("decode", text.length > 4000 ? "" : text.trim(), state.reader === "auto" ? {} : { layout: state.reader });
  const started = performance.now();
  const batch = new Batch(text, state.reader, nowMs());
  const rows = [];
  let skipped = 0;
  let told = started;
  try {
    let lines = 400;
    for (let done = false; !done; ) {
      const begun = performance.now();
      const taken = ask(batch.take(lines));
      rows.push(...taken.rows);
      ({ done, skipped } = taken);
      const took = performance.now() - begun;
      lines = Math.max(16, Math.min(4096, Math.floor((lines * SLICE_MS) / Math.max(took, 0.5))));
      if (done) break;
      // Told rarely: each time, the page is laid out anew.
      if (performance.now() - told > TOLD_EVERY_MS) {
        told = performance.now();
        status.className = "status";
        status.textContent = `${grouped(rows.length)} IDs so far …`;
      }
      await breathe();
      if (run !== state.run) return;
    }
  } finally {
    batch.free();
  }
  performance.measure("decoded", { start: started });
  state.rows = rows;
  state.skipped = skipped;
  state.page = 0;
  state.took = performance.now() - started;
  if (rows.length === 1 && !rows[0].error) one(rows[0].text);
  else if (rows.length === 1) bad(rows[0].error);
  else if (rows.length === 0) bad("there is no ID in this text; an ID in a text is a number of 15 to 20 digits, or a UUID, ULID, ObjectId, KSUID or Xid");
  else many();
}

function bad(error) {
  state.report = null;
  status.textContent = "";
  place.replaceChildren(h("p", { class: "warning", role: "alert" }, h("strong", {}, "Not an ID: "), error));
}

// One ID.

function one(text) {
  const report = ask(decode(text, state.reader, nowMs()));
  if (report.error) return bad(report.error);
  state.report = report;
  status.className = "sr";
  status.textContent = summary(report);
  const isFlat = report.kind === "id";
  place.replaceChildren(
    head(report),
    ...report.warnings.map((warning) => h("p", { class: "warning" }, h("strong", {}, "Warning: "), warning)),
    ...(isFlat ? [bitsOf(report)] : []),
    ...(report.fields.length ? [fieldTable(report)] : []),
    ...(isFlat ? [schemeCard(report)] : []),
    h("div", { class: "columns" }, h("div", { class: "stack" }, timeCard(report), isFlat ? inverseCard(report) : null), isFlat ? h("div", { class: "stack" }, copyCard(report)) : null),
  );
  if (state.bit !== null) place.querySelector(`.bit[data-bit="${state.bit}"]`)?.focus();
}

function summary(report) {
  const when = report.time ? `made ${report.time.utc}` : "without a time that can be told";
  const verdict = report.verdict ? `${report.verdict.name}: ` : "";
  return `${verdict}${report.title}, ${when}.`;
}

function head(report) {
  const verdict = report.verdict?.name ?? "named";
  const words = {
    likely: "Likely",
    ambiguous: "Not certain",
    implausible: "Implausible",
    named: report.kind === "wide" ? "Recognised" : "Read as",
  }[verdict];
  const [day, time] = report.time ? report.time.utc.replace("Z", "").split("T") : [null, null];
  return h(
    "div",
    { class: "result" },
    h(
      "div",
      { class: "result-head" },
      h("span", { class: `verdict ${verdict}` }, words),
      h("h2", {}, verdict === "ambiguous" ? wouldBe(report) : report.title),
      report.kind === "id" ? readerChoice() : null,
    ),
    report.time
      ? h(
          "p",
          { class: "when" },
          h("time", { dateTime: report.time.utc }, h("span", { class: "day" }, day), " ", h("span", { class: "clock" }, time)),
          " ",
          h("span", { class: "zone" }, "UTC"),
          copyButton(report.time.utc, "the time"),
        )
      : h("p", { class: "when none" }, "No time that can be told"),
    report.time ? h("p", { class: "also" }, `${relativeText(report.time.unix_ms)} · here ${localText(report.time.unix_ms)}`) : null,
    verdict === "ambiguous" || verdict === "implausible" ? h("p", { class: "also" }, capital(report.verdict.text), ".") : null,
  );
}

function wouldBe(report) {
  const [first, ...others] = report.candidates.filter((it) => !it.excluded).slice(0, 3);
  const short = (title) => title.replace(/ snowflake$/, "").replace(/ \(.*\)$/, "");
  const rest = others.map((it) => `${short(it.title)} would be ${it.time.utc.slice(0, 4) === first.time.utc.slice(0, 4) ? it.time.utc.slice(0, 10) : it.time.utc.slice(0, 4)}`);
  return [`${short(first.title)}: ${first.time.utc.slice(0, 10)}`, ...rest].join("; ");
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function readerChoice() {
  const choose = (event) => readAs(event.target.value);
  const options = [["auto", "Whatever explains it best"], ...catalogue.map((it) => [it.name, it.title])];
  if (!options.some(([name]) => name === state.reader)) options.push([state.reader, "The layout of the address"]);
  return h(
    "span",
    { class: "read-as" },
    h("label", { for: "reader" }, "Read as"),
    h("select", { id: "reader", onchange: choose }, options.map(([value, title]) => h("option", { value, selected: value === state.reader }, title))),
  );
}

function readAs(reader) {
  state.reader = reader;
  const text = state.report?.text ?? state.text;
  writeAddress("decode", text, reader === "auto" ? {} : { layout: reader });
  one(text);
}

// Bits.

function perRow() {
  const width = place.clientWidth;
  return width >= 880 ? 32 : width >= 460 ? 16 : 8;
}

function bitsOf(report) {
  const columns = perRow();
  const id = BigInt(report.id);
  const fieldOf = (bit) => report.fields.findIndex((field) => bit <= field.high && bit >= field.low);
  const focused = state.bit ?? 63;
  const column = (nth) => nth + Math.floor(nth / 4) + 1;
  const template = Array.from({ length: columns / 4 }, () => "repeat(4, minmax(0, 1fr))").join(" var(--nibble-gap) ");
  const rows = [];
  for (let top = 63; top >= 0; top -= columns) {
    const row = h("div", { class: "bit-row", role: "presentation", style: { "grid-template-columns": template } });
    for (let nth = 0; nth < columns; nth++) {
      const bit = top - nth;
      const at = fieldOf(bit);
      const field = report.fields[at];
      const isFirst = nth === 0 || fieldOf(bit + 1) !== at;
      const isLast = nth === columns - 1 || fieldOf(bit - 1) !== at;
      if (field && isFirst) {
        let end = nth;
        while (end < columns - 1 && fieldOf(top - end - 1) === at) end++;
        const span = { "grid-column": `${column(nth)} / ${column(end) + 1}` };
        row.append(h("span", { class: "bit-label", "data-field": at, "aria-hidden": "true", title: field.name, style: span }, field.name));
      }
      const value = (id >> BigInt(bit)) & 1n;
      const edges = `${isFirst ? " first" : ""}${isLast ? " last" : ""}`;
      row.append(
        h(
          "button",
          {
            type: "button",
            class: `bit ${field ? roleClass(field.role) : "role-none"}${value ? " one" : ""}${edges}`,
            "data-bit": bit,
            "data-field": at,
            tabIndex: bit === focused ? 0 : -1,
            "aria-pressed": value ? "true" : "false",
            "aria-label": `${value}, bit ${bit}${field ? `, ${field.name}` : ""}`,
            style: { "grid-column": String(column(nth)) },
          },
          String(value),
        ),
      );
      if (nth % 4 === 3) {
        const nibble = ((id >> BigInt(bit)) & 15n).toString(16);
        row.append(h("span", { class: "nibble", "aria-hidden": "true", style: { "grid-column": `${column(nth - 3)} / ${column(nth) + 1}` } }, h("span", {}, String(bit + 3)), h("b", {}, nibble)));
      }
    }
    rows.push(row);
  }
  const group = h(
    "div",
    { class: "bits", role: "group", "aria-label": "The ID's 64 bits, the highest first", "aria-describedby": "bits-help" },
    ...rows,
    h("p", { id: "bits-help", class: "help" }, "Click a bit to flip it. By keyboard: arrows move, Enter or Space flips."),
  );
  group.addEventListener("click", (event) => {
    const cell = event.target.closest(".bit");
    if (cell) flipBit(Number(cell.dataset.bit));
  });
  group.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".bit");
    const steps = { ArrowLeft: 1, ArrowRight: -1, ArrowUp: columns, ArrowDown: -columns };
    if (!cell) return;
    const bit = Number(cell.dataset.bit);
    const next = event.key === "Home" ? 63 : event.key === "End" ? 0 : event.key in steps ? bit + steps[event.key] : null;
    if (next === null) return;
    event.preventDefault();
    if (next < 0 || next > 63) return;
    cell.tabIndex = -1;
    const target = group.querySelector(`.bit[data-bit="${next}"]`);
    target.tabIndex = 0;
    target.focus();
  });
  return group;
}

function flipBit(bit) {
  state.bit = bit;
  const text = flip(BigInt(state.report.id), bit).toString();
  fill(text);
  state.text = text;
  writeAddress("decode", text, state.reader === "auto" ? {} : { layout: state.reader });
  one(text);
}

/** Lights the field that something belongs to, wherever it is shown. */
function light(target) {
  const at = target?.closest?.("[data-field]")?.dataset.field;
  for (const element of place.querySelectorAll(".lit")) if (element.dataset.field !== at) element.classList.remove("lit");
  if (at !== undefined && at !== "-1") for (const element of place.querySelectorAll(`[data-field="${at}"]`)) element.classList.add("lit");
}

function fieldTable(report) {
  const rows = report.fields.map((field, at) =>
    h(
      "tr",
      { "data-field": at },
      h("th", { scope: "row" }, h("span", { class: `swatch ${roleClass(field.role)}`, "aria-hidden": "true" }), field.name, field.name === field.role ? null : h("span", { class: "role" }, field.role)),
      h("td", { class: "number" }, field.bits === 1 ? `${field.high}` : `${field.high}–${field.low}`, h("span", { class: "of" }, ` ${field.bits} bit${field.bits === 1 ? "" : "s"}`)),
      h("td", { class: "number value" }, field.value, copyButton(field.value, field.name)),
      h("td", { class: "meaning" }, field.meaning),
      h("td", { class: "expression" }, h("code", {}, field.expression)),
    ),
  );
  return scrolled(
    "The ID's fields",
    h("table", { class: "fields" }, h("thead", {}, h("tr", {}, ["Field", "Bits", "Value", "Means", "Taken out by"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)),
  );
}

function scrolled(name, table) {
  return h("div", { class: "scrolled", role: "region", "aria-label": name, tabIndex: 0 }, table);
}

// Cards.

function card(title, ...children) {
  return h("section", { class: "card" }, h("h3", {}, title), ...children);
}

function pair(name, value, what) {
  return [h("dt", {}, name), h("dd", {}, h("span", { class: "text" }, value), what ? copyButton(value, what) : null)];
}

function timeCard(report) {
  const { time } = report;
  if (!time) return card("Time", h("p", {}, report.kind === "wide" ? "This kind carries no time." : "Name a scheme above, and its reading is shown."));
  const facts = [
    ...pair("UTC", time.utc, "UTC"),
    ...pair("Here", localText(time.unix_ms), "local time"),
    ...pair("Relative", relativeText(time.unix_ms)),
    ...pair("Unix ms", time.unix_ms, "Unix milliseconds"),
    ...(time.tick ? pair("Tick", time.tick, "the tick") : []),
    ...(time.epoch ? pair("Epoch", `${time.epoch.utc}, ticks of ${time.tick_length}`) : []),
  ];
  return card("Time", h("dl", { class: "pairs" }, facts), time.arithmetic.length ? [h("h4", {}, "By hand"), h("pre", { class: "arithmetic" }, time.arithmetic.join("\n"))] : null);
}

function schemeCard(report) {
  const possible = report.candidates.filter((it) => !it.excluded);
  const excluded = report.candidates.filter((it) => it.excluded);
  const best = possible[0]?.saved_bits ?? 0;
  const item = (it, nth) =>
    h(
      "li",
      { class: it.name === report.name ? "chosen" : "" },
      h(
        "details",
        { open: nth === 0 },
        h("summary", {}, h("span", { class: "name" }, it.title), h("span", { class: "number" }, it.time.utc.slice(0, 10)), h("span", { class: "saved" }, it.saved_bits >= 0 ? `${it.saved_bits} bits shorter` : `${-it.saved_bits} bits longer`)),
        h("ul", { class: "reasons" }, it.reasons.map((reason) => h("li", {}, reason.text, reason.bits === "0.0" ? null : h("span", { class: "cost" }, ` ${reason.bits} bits`)))),
        h("button", { type: "button", class: "small", onclick: () => readAs(it.name) }, `Read as ${it.title}`),
      ),
    );
  const near = possible.filter((it) => it.saved_bits > best - 12 || it.name === report.name).slice(0, 6);
  const far = possible.filter((it) => !near.includes(it));
  return h(
    "section",
    { class: "card wide" },
    h("h3", {}, "Which scheme made it"),
    timeLine(report, near, excluded),
    h("p", { class: "help" }, "The scheme that explains an ID in the fewest bits ranks first: “shorter” is by how many bits it beats a bare 64-bit number."),
    h("ol", { class: "candidates" }, near.map(item)),
    far.length ? h("details", { class: "more" }, h("summary", {}, `${far.length} more could have made it, less likely`), h("ol", { class: "candidates" }, far.map((it) => item(it, 1)))) : null,
    h(
      "details",
      { class: "more" },
      h("summary", {}, `${excluded.length} schemes cannot have made it`),
      h("ul", { class: "excluded" }, excluded.map((it) => h("li", {}, h("span", { class: "name" }, it.title), h("span", { class: "number" }, it.time.utc.slice(0, 10)), h("span", {}, it.excluded)))),
    ),
  );
}

/** Candidates on one scale of years, the likelier above the line. */
function timeLine(report, near, excluded) {
  const now = Date.now();
  const yearOf = (date) => date.getUTCFullYear() + (date - Date.UTC(date.getUTCFullYear(), 0)) / 31_556_952_000;
  const placed = near.map((it) => ({ it, date: dateOf(it.time.unix_ms) })).filter(({ date }) => date && yearOf(date) < yearOf(new Date(now)) + 2);
  const first = Math.min(2006, ...placed.map(({ date }) => Math.floor(yearOf(date))));
  const last = yearOf(new Date(now)) + 0.5;
  const share = (year) => ((year - first) / (last - first)) * 100;
  const width = Math.max(place.clientWidth - 80, 200);
  const lanes = [];
  const marks = placed.map(({ it, date }, nth) => {
    const at = share(yearOf(date));
    const name = it.title.replace(/ snowflake$/, "");
    const size = ((name.length * 7.2 + 24) / width) * 100;
    const isRight = at + size > 100;
    const [from, to] = isRight ? [at - size, at] : [at, at + size];
    let lane = lanes.findIndex((taken) => taken.every(([a, b]) => to < a || from > b));
    if (lane < 0) lane = lanes.push([]) - 1;
    lanes[lane].push([from, to]);
    return h("span", { class: `mark${nth === 0 ? " best" : ""}${isRight ? " right" : ""}`, style: { left: `${at}%`, "--lane": String(lane) } }, h("span", {}, name));
  });
  const ticks = [];
  const step = last - first > 40 ? 10 : last - first > 24 ? 5 : width < 420 ? 5 : 2;
  for (let year = Math.ceil(first / step) * step; year <= last; year += step) ticks.push(h("span", { class: "year", style: { left: `${share(year)}%` } }, String(year)));
  const faint = excluded.map((it) => ({ it, date: dateOf(it.time.unix_ms) })).filter(({ date }) => date && yearOf(date) >= first && yearOf(date) <= last);
  const dots = faint.map(({ it, date }) => h("span", { class: "dot", title: it.title, style: { left: `${share(yearOf(date))}%` } }));
  return h("div", { class: "time-line", "aria-hidden": "true", style: { "--lanes": String(Math.max(lanes.length, 1)) } }, h("div", { class: "marks" }, marks), h("div", { class: "axis" }, dots, ticks));
}

function copyCard(report) {
  const forms = report.forms.flatMap((form) => pair(form.name, form.text, form.name));
  const ranges = report.ranges.flatMap((range) => pair(range.name, `WHERE ${range.text}`, `the range of ${range.name}`));
  return card(
    "Copy",
    h("dl", { class: "pairs mono" }, forms),
    report.ranges.length || report.no_ranges ? h("h4", {}, "SQL ranges") : null,
    report.no_ranges ? h("p", { class: "help" }, capital(report.no_ranges), ".") : h("dl", { class: "pairs mono" }, ranges),
    report.copies.map((it) => h("details", { class: "more" }, h("summary", {}, it.name), h("div", { class: "code" }, h("pre", { tabIndex: 0 }, it.text), copyButton(it.text, it.name)))),
  );
}

function inverseCard(report) {
  const layout = report.layout ?? "snowmint";
  const answer = h("div", { class: "answer", role: "status" });
  const run = () => {
    const found = ask(at(field.value, layout));
    answer.replaceChildren(
      found.error
        ? h("p", { class: "warning" }, capital(found.error), ".")
        : h("dl", { class: "pairs mono" }, pair("smallest", found.first, "the smallest ID"), pair("largest", found.last, "the largest ID"), found.sql ? pair("SQL", `WHERE ${found.sql}`, "the range") : null, found.since ? pair("since", `WHERE ${found.since}`, "the condition") : null),
    );
  };
  const value = report.time ? report.time.utc : new Date().toISOString();
  const field = h("input", { id: "inverse", type: "text", value, spellcheck: false, autocomplete: "off", oninput: run });
  run();
  return card("The other way: IDs of a time", h("label", { for: "inverse" }, "Time: RFC 3339, a date, or Unix milliseconds"), field, answer);
}

// Many.

function many() {
  state.report = null;
  status.className = "status";
  const good = state.rows.filter((row) => !row.error);
  const counts = new Map();
  for (const row of good) counts.set(row.name, (counts.get(row.name) ?? 0) + 1);
  const kinds = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([name, count]) => `${grouped(count)} ${name}`);
  const times = good.filter((row) => row.unix_ms).map((row) => row.utc).sort();
  const skipped = state.skipped ? `, ${grouped(state.skipped)} lines without one` : "";
  status.textContent = `${grouped(good.length)} IDs${skipped}, in ${Math.round(state.took)} ms.`;
  const between = good.length === 2 ? differenceCard(good[0].text, good[1].text) : null;
  const body = h("tbody");
  const pager = h("div", { class: "pager" });
  const turn = () => {
    const from = state.page * PAGE_ROWS;
    body.replaceChildren(...state.rows.slice(from, from + PAGE_ROWS).map(rowOf));
    const pages = Math.ceil(state.rows.length / PAGE_ROWS);
    const step = (by) => {
      state.page = Math.min(Math.max(state.page + by, 0), pages - 1);
      turn();
    };
    pager.replaceChildren(
      h("span", { class: "number" }, `${from + 1}–${Math.min(from + PAGE_ROWS, state.rows.length)} of ${grouped(state.rows.length)}`),
      h("button", { type: "button", class: "small", disabled: state.page === 0, onclick: () => step(-1) }, "Previous"),
      h("button", { type: "button", class: "small", disabled: state.page >= pages - 1, onclick: () => step(1) }, "Next"),
    );
    pager.hidden = pages < 2;
  };
  turn();
  place.replaceChildren(
    h("div", { class: "result" }, h("div", { class: "result-head" }, h("h2", {}, kinds.join(", ")), h("span", { class: "actions" }, h("button", { type: "button", class: "small", onclick: saveCsv }, "Save as CSV"))), times.length ? h("p", { class: "also" }, `from ${times[0]} to ${times[times.length - 1]}`) : null),
    ...(between ? [between] : []),
    pager,
    scrolled("The IDs", h("table", { class: "rows" }, h("thead", {}, h("tr", {}, ["Line", "ID", "Time (UTC)", "Scheme", "Fields", "Warnings"].map((text) => h("th", { scope: "col" }, text)))), body)),
  );
}

function rowOf(row) {
  if (row.error) return h("tr", {}, h("td", { class: "number" }, String(row.line)), h("td", { colspan: 5 }, row.error));
  const doubt = row.verdict === "ambiguous" ? "?" : "";
  return h(
    "tr",
    {},
    h("td", { class: "number" }, String(row.line)),
    h("td", { class: "number" }, h("a", { href: addressOf("decode", row.text) }, row.text)),
    h("td", { class: "number" }, row.utc ?? "none"),
    h("td", {}, row.name + doubt),
    h("td", { class: "number" }, row.fields),
    h("td", { class: "number" }, row.warnings ? `⚠ ${row.warnings}` : ""),
  );
}

function differenceCard(a, b) {
  const found = ask(difference(a, b, state.reader, nowMs()));
  if (found.error) return card("Between the two", h("p", {}, capital(found.error), "."));
  const newer = found.older === a.trim() ? b : a;
  return card(
    "Between the two",
    h("p", { class: "big" }, found.older ? found.span : "the same time"),
    found.older ? h("p", {}, h("code", {}, found.older), " is older than ", h("code", {}, newer), ".") : null,
    h("dl", { class: "pairs mono" }, found.apart ? pair("as numbers", found.apart, "the difference") : null, found.ticks ? pair("in ticks", found.ticks, "the ticks") : null),
  );
}

function saveCsv() {
  const quoted = (text) => `"${String(text ?? "").replace(/^[=+@-]/, "'$&").replaceAll('"', '""')}"`;
  const lines = state.rows.map((row) => [row.line, row.text, row.id, row.name, row.verdict, row.utc, row.unix_ms, row.fields, row.warnings, row.error].map(quoted).join(","));
  const head = "line,text,id,scheme,verdict,utc,unix_ms,fields,warnings,error";
  download("ids.csv", "text/csv", `${head}\r\n${lines.join("\r\n")}\r\n`);
}
