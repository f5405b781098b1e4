// Simulate: lanes of workers under faults, and a naive Snowflake beside.
import init, { Lanes, faults } from "./simulator.js";
import { ask, breathe, copy, grouped, h, say, writeAddress } from "./ui.js";

/** A sample of the time line, its length, and the longest time that Rust may work at once. */
const SAMPLE_US = 25_000;
const SHOWN_MS = 12_000;
const SLICE_MS = 10;
const STEP_US = 100_000;
const SPEEDS = [0.05, 0.25, 1, 4];
const LOG_SHOWN = 60;
const U64_MAX = (1n << 64n) - 1n;

const state = { seed: 7n, events: [], world: null, now: null, samples: [], log: [], lane: 0, speed: 1, playing: false, run: 0 };
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let root, facts, parts, lanes;

export async function begin(section) {
  root = section;
  await init();
  facts = ask(faults());
  parts = {
    ids: h("output", { class: "big" }),
    duplicates: h("output", { class: "big" }),
    naiveIds: h("output", { class: "big" }),
    naiveDuplicates: h("output", { class: "big" }),
    play: h("button", { type: "button", class: "primary", onclick: () => (state.playing ? pause() : play()) }, "Play"),
    clock: h("output", { class: "number" }),
    seed: h("input", { id: "seed", type: "text", inputMode: "numeric", spellcheck: false, autocomplete: "off", onchange: (event) => reseed(event.target.value) }),
    speed: h("select", { id: "speed", onchange: (event) => (state.speed = Number(event.target.value)) }, SPEEDS.map((speed) => h("option", { value: speed, selected: speed === 1 }, `${speed}×`))),
    victims: h("div", { class: "choices", role: "group", "aria-label": "Whom the next fault befalls" }),
    faults: h("div", { class: "faults", role: "group", "aria-label": "Faults" }),
    hint: h("p", { class: "help hint" }),
    lanes: h("div", { class: "lanes" }),
    episodes: h("ol", { class: "episodes" }),
    log: h("ol", { class: "log", tabIndex: 0, "aria-label": "What happened, the latest first" }),
    progress: h("p", { class: "status", role: "status" }),
  };
  const score = (name, value, more, kind) => h("div", { class: `score ${kind}` }, h("span", { class: "help" }, name), value, h("span", { class: "help" }, more));
  root.append(
    h("h1", {}, "Break the clock, race the peers"),
    h("p", { class: "lead" }, "Snowmint's own generators and leases, four workers of them, beside a naive Snowflake under the same faults. Every ID of both is compared with all before it."),
    h(
      "div",
      { class: "scores", role: "group", "aria-label": "IDs and duplicates" },
      h("div", { class: "side" }, h("h2", {}, "Snowmint"), score("IDs issued", parts.ids, "each compared", ""), score("Duplicates", parts.duplicates, "found by the check", "good")),
      h("div", { class: "side naive" }, h("h2", {}, "Naive Snowflake"), score("IDs issued", parts.naiveIds, "each compared", ""), score("Duplicates", parts.naiveDuplicates, "found by the check", "bad")),
    ),
    h(
      "div",
      { class: "toolbar controls" },
      parts.play,
      h("button", { type: "button", onclick: step }, "Step 100 ms"),
      h("button", { type: "button", onclick: () => restart() }, "Restart"),
      h("label", { for: "speed" }, "Speed"),
      parts.speed,
      h("label", { for: "seed" }, "Seed"),
      parts.seed,
      parts.clock,
      h("button", { type: "button", class: "quiet", onclick: () => copy(location.href, "the link to this run") }, "Copy link"),
    ),
    h("section", { class: "card" }, h("div", { class: "toolbar" }, h("h2", {}, "Break something"), parts.victims), parts.faults, parts.hint),
    parts.progress,
    parts.lanes,
    h("p", { class: "help legend" }, h("span", { class: "key wall" }), "wall clock against true time", h("span", { class: "key id" }), "ID clock", h("span", { class: "key minting" }), "mints", h("span", { class: "key refusing" }), "refuses", h("span", { class: "key double" }), "duplicates of the naive one"),
    h("div", { class: "columns" }, h("section", { class: "card" }, h("h2", {}, "Predicted, then seen"), parts.episodes), h("section", { class: "card" }, h("h2", {}, "Log"), parts.log)),
  );
  parts.faults.append(
    ...facts.faults.map((fault) =>
      h("button", { type: "button", "data-fault": fault.name, "aria-describedby": "fault-hint", onclick: () => inject(fault.name), onpointerenter: () => hint(fault), onfocus: () => hint(fault) }, fault.title),
    ),
  );
  parts.hint.id = "fault-hint";
  parts.hint.textContent = "Hover or focus a fault: what is predicted of it is said here, before it happens.";
  document.addEventListener("theme", () => state.now && drawStrips());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.now && drawStrips());
  new ResizeObserver(() => state.now && drawStrips()).observe(parts.lanes);
}

function hint(fault) {
  parts.hint.replaceChildren(h("strong", {}, "Snowmint: "), fault.prediction, " ", h("strong", {}, "Naive: "), fault.naive_prediction);
}

export async function show(address) {
  const { value, parameters } = address;
  state.seed = seedOf(value) ?? 7n;
  const events = [];
  for (const part of (parameters.get("events") ?? "").split(",").filter(Boolean).slice(0, 200)) {
    const [at, name, lane] = part.split(":");
    const atUs = Number(at);
    if (Number.isSafeInteger(atUs) && atUs >= 0 && facts.faults.some((fault) => fault.name === name)) events.push({ at: atUs, name, lane: Number(lane) || 0 });
  }
  events.sort((a, b) => a.at - b.at);
  const until = Math.min(Math.max(Number(parameters.get("at")) || 0, events.at(-1)?.at ?? 0), facts.shown_ms_max * 1000);
  const isLink = value !== "" || events.length > 0;
  await replay(events, until);
  if (!isLink && !calm.matches) play();
}

export function leave() {
  pause({ keepsAddress: true });
  state.run++;
}

function seedOf(text) {
  return /^\d{1,20}$/.test(text.trim()) && BigInt(text) <= U64_MAX ? BigInt(text) : null;
}

function reseed(text) {
  const seed = seedOf(text);
  if (seed === null) {
    parts.seed.value = String(state.seed);
    return say("A seed is a number of 64 bits");
  }
  state.seed = seed;
  restart();
}

function restart() {
  replay([], 0).then(() => {
    remember();
    if (!calm.matches) play();
  });
}

/** The run again, from its seed: every event at its moment. */
async function replay(events, until) {
  const run = ++state.run;
  pause({ keepsAddress: true });
  state.world?.free();
  state.world = new Lanes(state.seed);
  state.events = [];
  state.samples = [];
  state.log = [];
  parts.seed.value = String(state.seed);
  look();
  let next = 0;
  let sliceBegun = performance.now();
  while (state.now.now_us < until || next < events.length) {
    if (next < events.length && events[next].at <= state.now.now_us) {
      const event = events[next++];
      state.world.inject(event.name, event.lane);
      state.events.push(event);
      look({ isSample: false });
      continue;
    }
    const target = Math.min(next < events.length ? events[next].at : until, state.now.now_us + SAMPLE_US);
    if (target <= state.now.now_us || state.now.is_over) break;
    state.world.advance(target - state.now.now_us);
    look();
    if (performance.now() - sliceBegun > SLICE_MS) {
      parts.progress.textContent = `Replaying: ${(state.now.now_us / 1e6).toFixed(1)} of ${(until / 1e6).toFixed(1)} s`;
      await breathe();
      if (run !== state.run) return;
      sliceBegun = performance.now();
    }
  }
  parts.progress.textContent = "";
  drawLanes();
  draw();
}

/** Takes in what can be seen now. */
function look({ isSample = true } = {}) {
  const now = ask(state.world.state());
  for (const line of now.lines) state.log.push(line);
  if (state.log.length > 400) state.log.splice(0, state.log.length - 400);
  if (isSample) {
    const before = state.now?.lanes;
    state.samples.push({
      at: now.now_us,
      lanes: now.lanes.map((lane, nth) => ({
        wall: lane.wall_off_ms,
        id: lane.id_off_ms,
        mints: lane.is_alive && !lane.is_paused && lane.refusal === null && lane.code !== null,
        refuses: lane.is_alive && !lane.is_paused && lane.refusal !== null,
        doubles: before !== undefined && state.samples.length > 0 && lane.naive_duplicates !== before[nth].naive_duplicates,
      })),
    });
    const oldest = now.now_us - SHOWN_MS * 1000;
    while (state.samples.length && state.samples[0].at < oldest) state.samples.shift();
  }
  state.now = now;
}

function advance(us, isWhole = false) {
  let left = us;
  const begun = performance.now();
  while (left > 0 && !state.now.is_over) {
    const part = Math.min(left, SAMPLE_US);
    state.world.advance(part);
    look();
    left -= part;
    // A machine that is too slow for the speed lets time pass more slowly.
    if (!isWhole && performance.now() - begun > SLICE_MS) break;
  }
}

function play() {
  if (state.now?.is_over) return say("This run has shown its five minutes: restart it");
  state.playing = true;
  parts.play.textContent = "Pause";
  const run = ++state.run;
  let last = performance.now();
  let rest = 0;
  const frame = (time) => {
    if (!state.playing || run !== state.run) return;
    const passed = Math.min(Math.max(time - last, 0), 100);
    // Without motion: twice a second, half a second at once.
    if (!calm.matches || time - last >= 500) {
      rest += (calm.matches ? 500 : passed) * 1000 * state.speed;
      const whole = Math.floor(rest / 500) * 500;
      rest -= whole;
      last = time;
      if (whole > 0) {
        advance(whole);
        draw();
      }
    }
    if (state.now.is_over) return pause();
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function pause({ keepsAddress = false } = {}) {
  const was = state.playing;
  state.playing = false;
  parts.play.textContent = "Play";
  if (was && !keepsAddress) remember();
}

function step() {
  pause({ keepsAddress: true });
  advance(STEP_US, true);
  draw();
  remember();
}

function inject(name) {
  if (state.now.is_over) return say("This run has shown its five minutes: restart it");
  const event = { at: state.now.now_us, name, lane: state.lane };
  state.world.inject(name, state.lane);
  state.events.push(event);
  look({ isSample: false });
  remember();
  draw();
  if (!state.playing && !calm.matches) play();
}

function remember() {
  const events = state.events.map((event) => `${event.at}:${event.name}:${event.lane}`).join(",");
  if (!root.hidden) writeAddress("simulate", String(state.seed), { events, at: state.playing ? undefined : state.now.now_us || undefined });
}

// Drawing.

function drawLanes() {
  parts.victims.replaceChildren(
    ...state.now.lanes.map((lane, nth) => h("button", { type: "button", class: "small", "aria-pressed": nth === state.lane ? "true" : "false", onclick: () => choose(nth) }, lane.name)),
  );
  lanes = state.now.lanes.map((lane) => {
    const cell = {
      state: h("span", { class: "lane-state" }),
      code: h("span", { class: "number" }),
      wall: h("span", { class: "number" }),
      id: h("span", { class: "number" }),
      sequence: h("span", { class: "meter", role: "img" }, h("i")),
      lease: h("span", { class: "meter", role: "img" }, h("i")),
      naive: h("span", { class: "number" }),
      canvas: h("canvas", { "aria-hidden": "true" }),
    };
    cell.element = h(
      "section",
      { class: "lane", "aria-label": lane.name },
      h(
        "div",
        { class: "lane-facts" },
        h("h3", {}, lane.name, h("span", { class: "of" }, ` region ${lane.region}`)),
        cell.state,
        h("dl", { class: "pairs" }, [["code", cell.code], ["wall clock", cell.wall], ["ID clock", cell.id], ["sequence", cell.sequence], ["lease", cell.lease], ["naive", cell.naive]].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      ),
      h("div", { class: "strip" }, cell.canvas),
    );
    return cell;
  });
  parts.lanes.replaceChildren(...lanes.map((cell) => cell.element));
}

function choose(nth) {
  state.lane = nth;
  [...parts.victims.children].forEach((button, at) => button.setAttribute("aria-pressed", at === nth ? "true" : "false"));
}

function signed(ms) {
  if (ms === null) return "none yet";
  if (ms === 0) return "±0 ms";
  const far = Math.abs(ms);
  const text = far >= 3_600_000 ? `${(far / 3_600_000).toFixed(2)} h` : far >= 10_000 ? `${(far / 1000).toFixed(1)} s` : `${grouped(far)} ms`;
  return `${ms < 0 ? "−" : "+"}${text}`;
}

function stateOf(lane) {
  if (!lane.is_alive) return ["no process", "off"];
  if (lane.is_paused) return ["stands still", "off"];
  if (lane.refusal) return [`refuses: ${lane.refusal}`, "refusing"];
  return lane.code === null ? [lane.phase, "off"] : ["mints", "minting"];
}

function meter(element, share, text) {
  element.firstChild.style.setProperty("inline-size", `${Math.min(Math.max(share, 0), 1) * 100}%`);
  element.setAttribute("aria-label", text);
  element.title = text;
}

function draw() {
  const { now } = state;
  if (!lanes) drawLanes();
  parts.ids.textContent = grouped(now.ids);
  parts.duplicates.textContent = grouped(now.duplicates);
  parts.naiveIds.textContent = grouped(now.naive_ids);
  parts.naiveDuplicates.textContent = grouped(now.naive_duplicates);
  parts.naiveDuplicates.closest(".score").classList.toggle("has", now.naive_duplicates !== "0");
  parts.clock.textContent = `${(now.now_us / 1e6).toFixed(2)} s`;
  now.lanes.forEach((lane, nth) => {
    const cell = lanes[nth];
    const [text, kind] = stateOf(lane);
    cell.state.textContent = `${{ minting: "●", refusing: "■", off: "○" }[kind]} ${text}${lane.is_cut ? " (cut off)" : ""}`;
    cell.state.className = `lane-state ${kind}`;
    cell.code.textContent = lane.code === null ? "none" : `${lane.code} (${lane.phase})`;
    cell.wall.textContent = signed(lane.wall_off_ms);
    cell.id.textContent = signed(lane.id_off_ms);
    meter(cell.sequence, lane.used / facts.ids_per_tick, `${grouped(lane.used)} of ${grouped(facts.ids_per_tick)} IDs of its tick`);
    meter(cell.lease, lane.lease_ms / facts.window_ms, lane.lease_ms ? `${grouped(lane.lease_ms)} ms to the deadline` : "no lease");
    cell.naive.textContent = `${lane.naive_code === null ? "waits" : `number ${lane.naive_code}`}, ${grouped(lane.naive_duplicates)} duplicates`;
    cell.naive.classList.toggle("bad", lane.naive_duplicates !== "0");
  });
  drawStrips();
  drawEpisodes();
  drawLog();
}

/** Clock offsets span from a millisecond to hours: a scale that is straight near 0 and logarithmic beyond. */
function scaled(ms) {
  return Math.sign(ms) * Math.log10(1 + Math.abs(ms));
}

function drawStrips() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const ink = { soft: color("--soft"), line: color("--line"), accent: color("--accent"), mid: color("--accent-mid"), bad: color("--bad"), ink: color("--ink"), panel: color("--panel") };
  const from = state.now.now_us - SHOWN_MS * 1000;
  lanes?.forEach((cell, nth) => drawStrip(cell.canvas, nth, from, ink));
}

function drawStrip(canvas, nth, from, ink) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return;
  const ratio = Math.min(devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const paint = canvas.getContext("2d");
  paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint.clearRect(0, 0, width, height);
  const left = 44;
  const bottom = height - 38;
  const middle = bottom / 2 + 2;
  const reach = bottom / 2 - 8;
  const x = (us) => left + ((us - from) / (SHOWN_MS * 1000)) * (width - left);
  const y = (ms) => middle - (scaled(Math.max(Math.min(ms, 4e7), -4e7)) / scaled(4e7)) * reach;
  paint.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  paint.textBaseline = "middle";
  paint.lineWidth = 1;
  for (const [ms, text] of [[28_800_000, "+8 h"], [1000, "+1 s"], [0, "true"], [-1000, "−1 s"]]) {
    paint.strokeStyle = ink.line;
    paint.beginPath();
    paint.moveTo(left, y(ms));
    paint.lineTo(width, y(ms));
    paint.stroke();
    paint.fillStyle = ink.soft;
    paint.fillText(text, 4, y(ms));
  }
  for (let second = Math.ceil(from / 1e6); second * 1e6 <= state.now.now_us; second++) {
    if (second < 0) continue;
    paint.fillStyle = ink.line;
    paint.fillRect(x(second * 1e6), 0, 1, bottom);
  }
  // Whether it mints: a solid band; whether it refuses: a hatched one.
  const samples = state.samples;
  const band = (test, draw) => {
    let begun = null;
    samples.forEach((sample, at) => {
      const holds = test(sample.lanes[nth]);
      if (holds && begun === null) begun = at === 0 ? sample.at : samples[at - 1].at;
      if (begun !== null && (!holds || at === samples.length - 1)) {
        draw(x(begun), Math.max(x(holds ? sample.at : samples[at - 1].at) - x(begun), 1.5));
        begun = null;
      }
    });
  };
  band((lane) => lane.mints, (at, wide) => {
    paint.fillStyle = ink.accent;
    paint.fillRect(at, bottom + 6, wide, 10);
  });
  band((lane) => lane.refuses, (at, wide) => {
    paint.save();
    paint.beginPath();
    paint.rect(at, bottom + 6, wide, 10);
    paint.clip();
    paint.strokeStyle = ink.soft;
    for (let line = at - 12; line < at + wide; line += 5) {
      paint.beginPath();
      paint.moveTo(line, bottom + 17);
      paint.lineTo(line + 11, bottom + 5);
      paint.stroke();
    }
    paint.restore();
  });
  band((lane) => lane.doubles, (at, wide) => {
    paint.fillStyle = ink.bad;
    for (let tooth = at; tooth < at + wide; tooth += 6) {
      paint.beginPath();
      paint.moveTo(tooth, bottom + 33);
      paint.lineTo(tooth + 3, bottom + 22);
      paint.lineTo(tooth + 6, bottom + 33);
      paint.fill();
    }
  });
  const line = (pick, stroke, dash, thick) => {
    paint.strokeStyle = stroke;
    paint.lineWidth = thick;
    paint.setLineDash(dash);
    paint.beginPath();
    let isDown = false;
    let before = null;
    for (const sample of samples) {
      const ms = pick(sample.lanes[nth]);
      if (ms === null) {
        isDown = false;
        continue;
      }
      const [px, py] = [x(sample.at), y(ms)];
      if (isDown && before !== null) paint.lineTo(px, before);
      if (isDown) paint.lineTo(px, py);
      else paint.moveTo(px, py);
      isDown = true;
      before = py;
    }
    paint.stroke();
    paint.setLineDash([]);
  };
  line((lane) => lane.wall, ink.ink, [5, 4], 1.5);
  line((lane) => lane.id, ink.accent, [], 2);
  for (const event of state.events) {
    if (event.at < from || (event.lane !== nth && !(["cut", "lose"].includes(event.name) && state.now.lanes[nth].region === state.now.lanes[event.lane]?.region))) continue;
    paint.strokeStyle = ink.bad;
    paint.lineWidth = 1.5;
    paint.beginPath();
    paint.moveTo(x(event.at), 14);
    paint.lineTo(x(event.at), height - 4);
    paint.stroke();
    paint.fillStyle = ink.bad;
    const isLate = x(event.at) > width - 90;
    paint.textAlign = isLate ? "right" : "left";
    paint.fillText(event.name, x(event.at) + (isLate ? -4 : 4), 8);
    paint.textAlign = "left";
  }
}

function drawEpisodes() {
  const recent = state.now.episodes.slice(-6).reverse();
  if (!recent.length) {
    parts.episodes.replaceChildren(h("li", { class: "help" }, "Nothing was broken yet."));
    parts.episodes.dataset.key = "";
    return;
  }
  const key = JSON.stringify(recent);
  if (parts.episodes.dataset.key === key) return;
  parts.episodes.dataset.key = key;
  parts.episodes.replaceChildren(
    ...recent.map((episode) => {
      const fault = facts.faults.find((it) => it.name === episode.fault);
      const worst = episode.refused.filter(([reason]) => reason !== "no-grant" || episode.refused.length === 1).map(([reason, us]) => `${reason} for ${us >= 1_000_000 ? `${(us / 1e6).toFixed(1)} s` : `${us / 1000} ms`}`);
      return h(
        "li",
        { "data-fault": episode.fault },
        h("h3", {}, fault.title, h("span", { class: "of" }, ` ${state.now.lanes[episode.lane]?.name ?? ""}, at ${(episode.at_us / 1e6).toFixed(2)} s`)),
        h("p", { class: "predicted" }, h("span", { class: "of" }, "predicted "), fault.prediction),
        h("p", {}, h("span", { class: "of" }, "seen "), worst.length ? `refused ${worst.join(", ")}; ` : "no refusal yet; ", h("strong", { class: episode.duplicates === "0" ? "ok" : "bad" }, `${grouped(episode.duplicates)} duplicates`), episode.is_recovered ? ", as many mint as before." : ", not yet as many mint as before."),
        h("p", {}, h("span", { class: "of" }, "naive "), h("strong", { class: episode.naive_duplicates === "0" ? "" : "bad" }, `${grouped(episode.naive_duplicates)} duplicates`), ". ", fault.naive_prediction),
      );
    }),
  );
}

function drawLog() {
  const recent = state.log.slice(-LOG_SHOWN).reverse();
  const key = `${state.log.length}:${recent[0]?.at_us}:${recent[0]?.text}`;
  if (parts.log.dataset.key === key) return;
  parts.log.dataset.key = key;
  parts.log.replaceChildren(
    ...recent.map((line) => {
      const who = line.lane === null ? "all" : state.now.lanes[line.lane].name;
      return h("li", { class: line.is_naive ? "naive" : "" }, h("span", { class: "number" }, (line.at_us / 1e6).toFixed(3)), h("span", { class: "who" }, line.is_naive ? `naive ${who}` : who), h("span", {}, line.text));
    }),
  );
}
