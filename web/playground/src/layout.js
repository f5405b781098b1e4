// Layout: boundaries to move, what a layout holds, what a change of it would do.
import { change, derive, layout as reportOf, schemes } from "./snowmint.js";
import { ask, copyButton, h, nowMs, relativeText, roleClass, writeAddress } from "./ui.js";

const DEFAULT = "reserved:1 timestamp:41 region:2 worker:8 sequence:12 epoch-ms:1735689600000 tick-ns:1000000";
const NEEDS = [
  ["years", "Years", "from the epoch", 60],
  ["regions", "Regions", "", 4],
  ["workers", "Workers", "in a region", 200],
  ["burst", "IDs a millisecond", "of the busiest worker", 3000],
];
const ROLES = ["reserved", "timestamp", "region", "worker", "sequence", "shard", "other"];
const BITS = 64;
const U32_MAX = 4294967295;

const state = { fields: [], epoch: "", tick: "", needs: {}, used: "snowmint", cutover: "" };
let root, catalogue, parts, nextMonth;

export function begin(section) {
  root = section;
  catalogue = ask(schemes());
  nextMonth = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
  parts = {
    preset: h("select", { id: "preset", onchange: (event) => load(event.target.value) }),
    bar: h("div", { class: "layout-bar", role: "group", "aria-label": "The layout's 64 bits, the highest first" }),
    note: h("p", { class: "help" }, "Drag a boundary, or focus it and press the arrow keys: one field gives the bits that the other takes."),
    fault: h("p", { class: "warning", role: "alert", hidden: true }),
    table: h("div"),
    facts: h("div", { class: "stack" }),
    needs: h("div", { class: "stack" }),
    change: h("div", { class: "stack" }),
    exports: h("div", { class: "stack" }),
  };
  root.append(
    h("h1", {}, "Lay out 64 bits"),
    h("p", { class: "lead" }, "Move the boundaries until every requirement passes: see when the layout ends, how its IDs sort, and what a change would do to IDs that exist."),
    h("div", { class: "toolbar" }, h("label", { for: "preset" }, "Start from"), parts.preset),
    parts.bar,
    parts.note,
    parts.fault,
    h("div", { class: "columns" }, h("div", { class: "stack" }, parts.table, parts.facts), h("div", { class: "stack" }, parts.needs, parts.change)),
    parts.exports,
  );
  parts.preset.append(h("option", { value: "" }, "your own"), ...catalogue.map((it) => h("option", { value: it.name }, it.title)));
}

export function show(address) {
  const { value, parameters } = address;
  for (const [key, , , standard] of NEEDS) state.needs[key] = number(parameters.get(key), standard);
  state.used = parameters.get("used") ?? "snowmint";
  state.cutover = parameters.get("cutover") ?? nextMonth;
  const known = catalogue.find((it) => it.name === value);
  parse(known ? known.layout : value ? canonical(value, parameters) : DEFAULT);
  draw();
}

function number(text, standard) {
  const value = Number.parseInt(text ?? "", 10);
  return Number.isInteger(value) && value >= 0 && value <= U32_MAX ? value : standard;
}

/** From the address' form: fields with commas, epoch and tick beside. */
function canonical(fields, parameters) {
  return `${fields.replaceAll(",", " ")} epoch-ms:${parameters.get("epoch") ?? "1735689600000"} tick-ns:${parameters.get("tick") ?? "1000000"}`;
}

function parse(text) {
  state.fields = [];
  for (const word of text.split(" ")) {
    const [key, rest = ""] = word.split(":");
    if (key === "epoch-ms") state.epoch = rest;
    else if (key === "tick-ns") state.tick = rest;
    else if (key) {
      const [bits, name] = rest.split("/");
      state.fields.push({ role: key, bits: number(bits, 0), name: name ?? "" });
    }
  }
}

function text() {
  const fields = state.fields.map((field) => `${field.role}:${field.bits}${field.name && field.name !== field.role ? `/${field.name}` : ""}`);
  return `${fields.join(" ")} epoch-ms:${state.epoch} tick-ns:${state.tick}`;
}

function load(name) {
  const scheme = catalogue.find((it) => it.name === name);
  if (scheme) {
    parse(scheme.layout);
    changed();
  }
}

function changed() {
  const scheme = catalogue.find((it) => it.layout === text());
  const needs = Object.fromEntries(NEEDS.filter(([key, , , standard]) => state.needs[key] !== standard).map(([key]) => [key, state.needs[key]]));
  const beside = { ...needs, used: state.used === "snowmint" ? undefined : state.used, cutover: state.cutover === nextMonth ? undefined : state.cutover };
  if (scheme) writeAddress("layout", scheme.name === "snowmint" ? "" : scheme.name, beside);
  else writeAddress("layout", text().split(" epoch-ms:")[0].replaceAll(" ", ","), { epoch: state.epoch, tick: state.tick, ...beside });
  draw();
}

function report() {
  const { years, regions, workers, burst } = state.needs;
  return ask(reportOf(text(), years, regions, workers, burst, nowMs()));
}

function draw() {
  const found = report();
  parts.preset.value = catalogue.find((it) => it.layout === text())?.name ?? "";
  parts.fault.hidden = !found.error;
  parts.fault.textContent = found.error ? capital(found.error) + "." : "";
  drawBar();
  drawTable();
  drawNeeds(found);
  drawFacts(found);
  drawChange(found);
  drawExports(found);
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const nameOf = (field) => field.name || field.role;

// The bar.

function drawBar() {
  const focused = parts.bar.contains(document.activeElement) ? document.activeElement.dataset.boundary : null;
  const total = state.fields.reduce((sum, field) => sum + field.bits, 0);
  const pieces = [];
  state.fields.forEach((field, at) => {
    pieces.push(
      h("div", { class: `segment ${roleClass(field.role)}`, style: { "flex-grow": String(Math.max(field.bits, 0.2)) }, title: `${nameOf(field)}, ${field.bits} bits` }, h("span", { class: "segment-name" }, nameOf(field)), h("span", { class: "segment-bits" }, String(field.bits))),
    );
    const right = state.fields[at + 1];
    if (right) {
      const [min, max] = [1, field.bits + right.bits - 1];
      pieces.push(
        h("div", {
          class: "boundary",
          role: "slider",
          tabIndex: 0,
          "data-boundary": at,
          "aria-orientation": "horizontal",
          "aria-label": `Boundary of ${nameOf(field)} and ${nameOf(right)}`,
          "aria-valuemin": min,
          "aria-valuemax": max,
          "aria-valuenow": field.bits,
          "aria-valuetext": `${nameOf(field)} ${field.bits} bits, ${nameOf(right)} ${right.bits} bits`,
          onkeydown: (event) => boundaryKey(event, at),
          onpointerdown: (event) => boundaryDown(event, at),
        }),
      );
    }
  });
  parts.bar.replaceChildren(...pieces);
  parts.bar.dataset.total = total;
  if (focused !== null) parts.bar.querySelector(`[data-boundary="${focused}"]`)?.focus();
}

/** Moves a boundary so that the field left of it has so many bits. */
function moveBoundary(at, bits) {
  const [left, right] = [state.fields[at], state.fields[at + 1]];
  const both = left.bits + right.bits;
  const next = Math.min(Math.max(bits, 1), both - 1);
  if (next === left.bits) return;
  left.bits = next;
  right.bits = both - next;
  changed();
}

function boundaryKey(event, at) {
  const { bits } = state.fields[at];
  const both = bits + state.fields[at + 1].bits;
  const next = { ArrowLeft: bits - 1, ArrowDown: bits - 1, ArrowRight: bits + 1, ArrowUp: bits + 1, PageDown: bits - 4, PageUp: bits + 4, Home: 1, End: both - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  moveBoundary(at, next);
}

function boundaryDown(event, at) {
  event.preventDefault();
  event.target.focus();
  const from = event.clientX;
  const before = state.fields[at].bits;
  const total = state.fields.reduce((sum, field) => sum + field.bits, 0);
  const perBit = parts.bar.clientWidth / Math.max(total, 1);
  const move = (moved) => moveBoundary(at, before + Math.round((moved.clientX - from) / perBit));
  const end = () => {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    removeEventListener("pointercancel", end);
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
  addEventListener("pointercancel", end);
}

// The fields by number.

function drawTable() {
  const focused = parts.table.contains(document.activeElement) ? document.activeElement.id : null;
  const row = (field, at) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("span", { class: `swatch ${roleClass(field.role)}`, "aria-hidden": "true" }), h("span", { class: "field-name" }, nameOf(field))),
      h("td", {}, h("select", { id: `role-${at}`, "aria-label": `Role of field ${at + 1}`, class: "small", onchange: (event) => edit(at, { role: event.target.value, name: "" }) }, ROLES.map((role) => h("option", { value: role, selected: role === field.role }, role)))),
      h("td", {}, h("input", { id: `bits-${at}`, type: "number", min: 1, max: 63, value: field.bits, "aria-label": `Bits of ${nameOf(field)}`, class: "small", onchange: (event) => edit(at, { bits: number(event.target.value, field.bits) }) })),
      h(
        "td",
        { class: "moves" },
        h("button", { type: "button", id: `up-${at}`, class: "quiet small", "aria-label": `Move ${nameOf(field)} up`, disabled: at === 0, onclick: () => swap(at, at - 1) }, "↑"),
        h("button", { type: "button", id: `down-${at}`, class: "quiet small", "aria-label": `Move ${nameOf(field)} down`, disabled: at === state.fields.length - 1, onclick: () => swap(at, at + 1) }, "↓"),
        h("button", { type: "button", id: `remove-${at}`, class: "quiet small", "aria-label": `Remove ${nameOf(field)}`, disabled: state.fields.length < 2, onclick: () => remove(at) }, "×"),
      ),
    );
  const total = state.fields.reduce((sum, field) => sum + field.bits, 0);
  parts.table.replaceChildren(
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Fields"),
      h("div", { class: "scrolled bare", role: "region", "aria-label": "The layout's fields", tabIndex: 0 }, h("table", { class: "edit" }, h("thead", {}, h("tr", {}, ["Field", "Role", "Bits", ""].map((name) => (name ? h("th", { scope: "col" }, name) : h("td", {}))))), h("tbody", {}, state.fields.map(row)))),
      h("div", { class: "toolbar" }, h("button", { type: "button", class: "small", disabled: state.fields.length >= 8, onclick: add }, "Add a field"), h("span", { class: `total${total === BITS ? "" : " off"}` }, `${total} of ${BITS} bits`)),
      h("div", { class: "two" },
        h("div", {}, h("label", { for: "epoch" }, "Epoch, Unix ms"), h("input", { id: "epoch", type: "text", inputMode: "numeric", value: state.epoch, spellcheck: false, autocomplete: "off", onchange: (event) => setEpoch(event.target.value) })),
        h("div", {}, h("label", { for: "tick" }, "Tick, ms"), h("input", { id: "tick", type: "text", inputMode: "decimal", value: tickMs(), spellcheck: false, autocomplete: "off", onchange: (event) => setTick(event.target.value) }))),
    ),
  );
  if (focused) document.getElementById(focused)?.focus();
}

function edit(at, values) {
  Object.assign(state.fields[at], values);
  changed();
}

function swap(a, b) {
  [state.fields[a], state.fields[b]] = [state.fields[b], state.fields[a]];
  changed();
}

function remove(at) {
  state.fields.splice(at, 1);
  changed();
}

function add() {
  const used = new Set(state.fields.map((field) => field.role));
  const role = ["region", "worker", "sequence", "shard"].find((it) => !used.has(it)) ?? "reserved";
  state.fields.push({ role, bits: 1, name: "" });
  changed();
}

function setEpoch(value) {
  const trimmed = value.trim();
  // A date is as good as its milliseconds.
  const date = /^\d{4}-/.test(trimmed) ? Date.parse(trimmed) : Number.NaN;
  state.epoch = Number.isNaN(date) ? trimmed.replace(/^0+(?=\d)/, "") || "0" : String(Math.max(date, 0));
  changed();
}

/** Ticks are kept in nanoseconds, which some public schemes need, and shown in milliseconds. */
function tickMs() {
  if (!/^\d{1,20}$/.test(state.tick)) return state.tick;
  const ns = BigInt(state.tick);
  const rest = (ns % 1_000_000n).toString().padStart(6, "0").replace(/0+$/, "");
  return `${ns / 1_000_000n}${rest ? `.${rest}` : ""}`;
}

function setTick(value) {
  const found = /^(\d{1,12})(?:\.(\d{1,6}))?$/.exec(value.trim());
  state.tick = found ? (BigInt(found[1]) * 1_000_000n + BigInt((found[2] ?? "").padEnd(6, "0"))).toString() : value.trim();
  changed();
}

// Requirements.

function drawNeeds(found) {
  const focused = parts.needs.contains(document.activeElement) ? document.activeElement.id : null;
  const fields = NEEDS.map(([key, name, more]) =>
    h("div", { class: "need" }, h("label", { for: `need-${key}` }, name, more ? h("span", { class: "of" }, ` ${more}`) : null), h("input", { id: `need-${key}`, type: "number", min: 1, max: U32_MAX, value: state.needs[key], onchange: (event) => setNeed(key, event.target.value) })),
  );
  const rows = (found.margins ?? []).map((margin) =>
    h(
      "li",
      { class: margin.passes ? "pass" : "fail", "data-need": margin.need },
      h("span", { class: "badge" }, margin.passes ? "✓ pass" : "✗ fail"),
      h("span", {}, margin.text.replace(": too few", ""), margin.spare ? h("span", { class: "of" }, ` · ${margin.spare}`) : null),
      margin.fix ? h("span", { class: "fix" }, h("span", {}, `Cheapest fix: ${margin.fix.text}.`), margin.fix.layout ? h("button", { type: "button", class: "small", onclick: () => apply(margin.fix.layout) }, "Apply") : null) : null,
    ),
  );
  parts.needs.replaceChildren(
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Requirements"),
      h("div", { class: "two" }, fields),
      rows.length ? h("ul", { class: "margins", "aria-live": "polite" }, rows) : h("p", { class: "help" }, "Requirements are looked at once the fields add up to 64 bits."),
      h("div", { class: "toolbar" }, h("button", { type: "button", class: found.passes ? "" : "primary", onclick: deriveOne }, "Derive a layout"), (parts.derived = h("span", { class: "help", role: "status" }))),
    ),
  );
  if (focused) document.getElementById(focused)?.focus();
}

function setNeed(key, value) {
  state.needs[key] = number(value, state.needs[key]);
  changed();
}

function apply(layout) {
  parse(layout);
  changed();
}

function deriveOne() {
  const { years, regions, workers, burst } = state.needs;
  const epoch = /^\d{1,19}$/.test(state.epoch) ? BigInt(state.epoch) : 0n;
  const found = ask(derive(years, regions, workers, burst, epoch));
  if (!found.error) apply(found.layout);
  const spare = found.spare_bits;
  parts.derived.textContent = found.error ? `${capital(found.error)}.` : spare === 0 ? "Fits exactly: not a bit to spare." : `${spare} bit${spare === 1 ? "" : "s"} to spare, given to the sequence up to 12 bits, then to the timestamp.`;
}

// What it holds.

function drawFacts(found) {
  if (found.error) {
    parts.facts.replaceChildren();
    return;
  }
  const fact = (name, value, more, isGood) => [h("dt", {}, name), h("dd", {}, h("span", { class: "text" }, isGood === undefined ? null : h("span", { class: isGood ? "ok" : "care" }, isGood ? "✓ " : "⚠ "), value, more ? h("span", { class: "of" }, ` ${more}`) : null))];
  parts.facts.replaceChildren(
    h(
      "section",
      { class: "card" },
      h("h2", {}, "What it holds"),
      h(
        "dl",
        { class: "pairs" },
        fact("Ends", found.ends.utc.slice(0, 10), `${found.years} years from ${found.epoch.utc.slice(0, 10)}; ${relativeText(found.ends.unix_ms)}`, !found.has_ended),
        fact("Nodes", `${found.regions} × ${found.workers_per_region}`, "regions × workers"),
        fact("IDs", found.ids_per_tick, `a worker in ${found.tick}${found.ids_per_second ? `; ${found.ids_per_second} a second` : ""}`),
        found.facts.map((it) => fact(it.name, it.text, "", it.is_good)),
        fact("Minted by", found.not_minted ?? "any Snowmint worker", "", !found.not_minted),
      ),
    ),
  );
}

// What a change would do.

function drawChange(found) {
  const focused = parts.change.contains(document.activeElement) ? document.activeElement.id : null;
  const minted = catalogue.filter((it) => it.mints);
  const select = h("select", { id: "used", onchange: (event) => ((state.used = event.target.value), changed()) }, minted.map((it) => h("option", { value: it.name, selected: it.name === state.used }, it.title)));
  const when = h("input", { id: "cutover", type: "text", value: state.cutover, spellcheck: false, autocomplete: "off", onchange: (event) => ((state.cutover = event.target.value), changed()) });
  const body = [];
  if (!found.error) {
    const done = ask(change(state.used, text(), state.cutover, nowMs()));
    if (done.error) body.push(h("p", { class: "warning" }, `${capital(done.error)}.`));
    else if (done.is_same) body.push(h("p", { class: "help" }, "That is this layout: nothing changes. Move a boundary, and see what it would do to IDs that exist."));
    else {
      if (done.example) {
        const side = (name, values) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, values.map(([key, value]) => h("span", { class: "reading" }, h("span", { class: "of" }, key), " ", value))));
        body.push(
          h("p", {}, "An ID that is minted now, ", h("code", {}, done.example.id), ", would be misread if the layout were just swapped:"),
          h("table", { class: "compare" }, h("tbody", {}, side("before", done.example.old), side("after", done.example.new))),
        );
      }
      if (done.plan) {
        const { plan } = done;
        body.push(
          h("p", {}, h("strong", { class: "ok" }, "✓ "), "A cut-over keeps every ID readable: all new IDs lie above all old ones."),
          h(
            "ol",
            { class: "plan" },
            h("li", {}, h("strong", {}, "Plan. "), "The old layout's last millisecond, ", h("code", {}, plan.old_last.utc), ", goes into the cluster record. No lease reaches past it; the largest old ID is ", h("code", {}, plan.old_last_id), "."),
            h("li", {}, h("strong", {}, "Scan. "), "Every code's end lies at or below it. Old workers go on to that tick, and stop: none can be late."),
            h("li", {}, h("strong", {}, "Open. "), "The new layout is current from ", h("code", {}, plan.new_first.utc), "; its smallest ID is ", h("code", {}, plan.new_first_id), "."),
          ),
          h("details", { class: "more" }, h("summary", {}, "A file that reads IDs of both"), h("div", { class: "code" }, h("pre", { tabIndex: 0 }, plan.history), copyButton(plan.history, "the history"))),
        );
      } else body.push(h("p", { class: "warning" }, h("strong", {}, "No cut-over can be promised: "), done.no_plan, "."));
    }
  }
  parts.change.replaceChildren(h("section", { class: "card" }, h("h2", {}, "What a change would do"), h("div", { class: "two" }, h("div", {}, h("label", { for: "used" }, "In use now"), select), h("div", {}, h("label", { for: "cutover" }, "Cut over at"), when)), body));
  if (focused) document.getElementById(focused)?.focus();
}

function drawExports(found) {
  if (found.error) {
    parts.exports.replaceChildren();
    return;
  }
  const blocks = found.exports.map((it) => h("div", {}, h("h3", {}, it.name, it.name === "TOML" ? h("span", { class: "of" }, " for --layout FILE") : null), h("div", { class: "code" }, h("pre", { tabIndex: 0, "data-export": it.name }, it.text), copyButton(it.text, it.name))));
  parts.exports.replaceChildren(h("section", { class: "card" }, h("h2", {}, "Export"), h("div", { class: "exports" }, blocks)));
}
