// What every view uses: elements, copying, times, the address.

/** An element with properties, listeners (`onclick`), attributes (`aria-…`, `data-…`, `role`) and children. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name.includes("-") || name === "role" || name === "for" || name === "colspan" || name === "scope" || name === "list")
      element.setAttribute(name, value);
    else element[name] = value;
  }
}

/** Asks Rust, whose answers are JSON. */
export function ask(text) {
  return JSON.parse(text);
}

export function nowMs() {
  return BigInt(Date.now());
}

let silence;

/** Says something in passing, to eyes and to screen readers. */
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(silence);
  silence = setTimeout(() => place.classList.remove("shown"), 2500);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied`);
  } catch {
    // Without a clipboard, as in an insecure context: a selection that can be copied by hand.
    const area = h("textarea", { value: text, "aria-hidden": "true", class: "offscreen" });
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand?.("copy");
    area.remove();
    say(isCopied ? `${what} copied` : `${what} could not be copied: the browser forbids it`);
  }
}

export function copyButton(text, what) {
  const of = typeof text === "function" ? text : () => text;
  return h(
    "button",
    { type: "button", class: "copy quiet", title: `Copy ${what}`, "aria-label": `Copy ${what}`, onclick: () => copy(of(), what) },
    s("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
      s("path", { d: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z", fill: "none", stroke: "currentColor", "stroke-width": 1.3 })),
  );
}

/** Hands a file to the visitor, out of memory. */
export function download(name, kind, text) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** The last moment that JavaScript's calendar knows, in Unix milliseconds. */
const CALENDAR_END = 8_640_000_000_000_000n;

/** A Unix millisecond (a string of digits) as a date of this machine; null where its calendar does not reach. */
export function dateOf(unixMs) {
  const ms = BigInt(unixMs);
  return ms <= CALENDAR_END ? new Date(Number(ms)) : null;
}

export function localText(unixMs) {
  const date = dateOf(unixMs);
  if (!date) return "beyond this browser's calendar";
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  const offset = -date.getTimezoneOffset();
  const sign = offset < 0 ? "−" : "+";
  const zone = `${sign}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
  return `${day} ${time} ${zone}`;
}

const UNITS = [
  ["year", 31_556_952_000n],
  ["month", 2_629_746_000n],
  ["day", 86_400_000n],
  ["hour", 3_600_000n],
  ["minute", 60_000n],
  ["second", 1_000n],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });

export function relativeText(unixMs) {
  const ms = BigInt(unixMs) - nowMs();
  const far = ms < 0n ? -ms : ms;
  for (const [unit, length] of UNITS) {
    if (far >= length) {
      const tenths = Number((far * 10n) / length) / 10;
      const count = tenths < 10 && length > 60_000n ? tenths : Math.floor(tenths);
      return count > 1e9 ? "further than the universe is old" : relative.format(ms < 0n ? -count : count, unit);
    }
  }
  return "just now";
}

/** Digits in groups of three, for reading. */
export function grouped(digits) {
  return String(digits).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

/** The address' fragment as a view and its parameters: `#decode=1&layout=discord`. */
export function readAddress(hash = location.hash) {
  const parts = hash.replace(/^#/, "").split("&").filter(Boolean);
  const pairs = parts.map((part) => {
    const at = part.indexOf("=");
    const [key, value] = at < 0 ? [part, ""] : [part.slice(0, at), part.slice(at + 1)];
    return [decoded(key), decoded(value)];
  });
  return { view: pairs[0]?.[0] ?? "", value: pairs[0]?.[1] ?? "", parameters: new Map(pairs.slice(1)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

function encoded(text) {
  // Half a character, as a cut-off paste leaves it, has no place in an address.
  const whole = text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
  return encodeURIComponent(whole).replaceAll("%20", "+").replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/");
}

/** The fragment of a view's state. */
export function addressOf(view, value, parameters = {}) {
  const rest = Object.entries(parameters).filter(([, text]) => text !== undefined && text !== null && text !== "");
  const pairs = [[view, value ?? ""], ...rest].map(([key, text]) => (text === "" ? key : `${key}=${encoded(String(text))}`));
  return `#${pairs.join("&")}`;
}

/** Longer ones are cut off by what carries links. */
const ADDRESS_MAX = 4000;

/** Puts a view's state into the address, without a step of history; false where it is too long for a link. */
export function writeAddress(view, value, parameters = {}) {
  const fragment = addressOf(view, value, parameters);
  const fits = fragment.length <= ADDRESS_MAX;
  history.replaceState(null, "", fits ? fragment : `#${view}`);
  return fits;
}

/** Lets the browser see to the visitor before going on. */
export function breathe() {
  if (globalThis.scheduler?.yield) return scheduler.yield();
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(0);
  });
}

/** Field → class of its pattern. */
export function roleClass(role) {
  return `role-${role}`;
}
