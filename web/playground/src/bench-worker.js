// Measures in a thread of its own, so that the page neither waits nor disturbs.
import init, { Bench } from "./snowmint.js";
import { bigintSnowflake, halvesSnowflake, uuidV7 } from "./others.js";

const SAMPLES = 31;
/** A sample is long enough that a clock of a tenth of a millisecond is no error. */
const SAMPLE_MS = 20;
const WARM_MS = 150;
const IDS_PER_TICK = 4096;
const BEGIN_MS = 1_796_083_200_000;

/** Moves on by a millisecond every 4,096 IDs, so that nobody waits for a clock and everybody reads the same. */
function clockOf() {
  let count = 0;
  return () => BEGIN_MS + Math.floor(count++ / IDS_PER_TICK);
}

// What is measured is kept from being optimised away.
let sink = 0;

const ROWS = {
  "core-calls": () => {
    const bench = new Bench();
    const clock = clockOf();
    return (count) => {
      for (let nth = 0; nth < count; nth++) sink ^= Number(bench.next(BigInt(clock())) & 1n);
    };
  },
  "core-runs": () => {
    const bench = new Bench();
    let now = BEGIN_MS;
    return (count) => {
      for (let made = 0; made < count; made += IDS_PER_TICK) {
        let id = bench.run(BigInt(now++), IDS_PER_TICK);
        for (let nth = 0; nth < IDS_PER_TICK; nth++) sink ^= Number(id++ & 1n);
      }
    };
  },
  "core-rust": () => {
    const bench = new Bench();
    let now = BEGIN_MS;
    return (count) => {
      for (let made = 0; made < count; made += IDS_PER_TICK) sink ^= Number(bench.run(BigInt(now++), IDS_PER_TICK) & 1n);
    };
  },
  bigint: () => {
    const next = bigintSnowflake(clockOf());
    return (count) => {
      for (let nth = 0; nth < count; nth++) sink ^= Number(next() & 1n);
    };
  },
  halves: () => {
    const next = halvesSnowflake(clockOf());
    return (count) => {
      for (let nth = 0; nth < count; nth++) sink ^= next().low & 1;
    };
  },
  "random-uuid": () =>
    crypto.randomUUID &&
    ((count) => {
      for (let nth = 0; nth < count; nth++) sink ^= crypto.randomUUID().length;
    }),
  uuidv7: () => {
    const next = uuidV7(clockOf());
    return (count) => {
      for (let nth = 0; nth < count; nth++) sink ^= next().length;
    };
  },
};

function timed(run, count) {
  const begun = performance.now();
  run(count);
  return performance.now() - begun;
}

function measure(name, tell) {
  const run = ROWS[name]();
  if (!run) return null;
  // Warmed up until the time is over and the batch is long enough.
  let batch = IDS_PER_TICK;
  const begun = performance.now();
  for (;;) {
    const took = timed(run, batch);
    if (took < SAMPLE_MS) batch = Math.ceil((batch * Math.min(Math.max(SAMPLE_MS / Math.max(took, 0.1), 1.2), 8)) / IDS_PER_TICK) * IDS_PER_TICK;
    else if (performance.now() - begun > WARM_MS) break;
  }
  const samples = [];
  for (let nth = 0; nth < SAMPLES; nth++) {
    samples.push((timed(run, batch) * 1e6) / batch);
    tell((nth + 1) / SAMPLES);
  }
  samples.sort((a, b) => a - b);
  const at = (share) => samples[Math.round((samples.length - 1) * share)];
  return { median: at(0.5), low: at(0.05), high: at(0.95), samples: samples.length, batch };
}

self.onmessage = async ({ data: names }) => {
  try {
    await init();
    for (const [nth, name] of names.entries()) {
      const figures = measure(name, (share) => postMessage({ progress: (nth + share) / names.length }));
      postMessage({ name, figures });
    }
    postMessage({ done: true, sink });
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
