// Begins the page: the core, the views, the theme, the address.
import init from "./snowmint.js";
import { readAddress } from "./ui.js";
import * as decode from "./decode.js";

const LATER = {
  layout: () => import("./layout.js"),
  simulate: () => import("./simulate.js"),
  bench: () => import("./bench.js"),
};
const TITLES = { decode: "Decode", layout: "Layout", simulate: "Simulate", bench: "Benchmark" };
const begun = new Map();
let shown;

async function begin(view) {
  if (!begun.has(view)) {
    const load = async () => {
      const module = view === "decode" ? decode : await LATER[view]();
      await module.begin(document.getElementById(`view-${view}`));
      return module;
    };
    begun.set(view, load());
  }
  return begun.get(view);
}

async function route() {
  const address = readAddress();
  const view = address.view in TITLES ? address.view : "decode";
  for (const name of Object.keys(TITLES)) {
    document.getElementById(`view-${name}`).hidden = name !== view;
    const link = document.querySelector(`nav a[data-view="${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[view]} · Snowmint playground`;
  if (shown && shown !== view) (await begun.get(shown))?.leave?.();
  const isNew = shown !== view;
  shown = view;
  const module = await begin(view);
  if (shown === view) await module.show(address, isNew);
}

const THEMES = ["system", "light", "dark"];

function theme(name) {
  const button = document.getElementById("theme");
  const next = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.textContent = { system: "◐", light: "☀", dark: "☾" }[name];
  button.setAttribute("aria-label", `Theme: ${name}. Change to ${next}`);
  button.title = `Theme: ${name}`;
  button.onclick = () => theme(next);
  try {
    localStorage.setItem("snowmint-theme", name);
  } catch {
    // Storage may be forbidden: the choice then lasts as long as the page.
  }
  document.dispatchEvent(new CustomEvent("theme"));
}

function keepOffline() {
  if (!("serviceWorker" in navigator) || !window.isSecureContext) return;
  // Where it is forbidden, the page works while there is a network.
  navigator.serviceWorker.register("service-worker.js").catch(() => {});
}

theme(document.documentElement.dataset.theme ?? "system");
await init();
window.addEventListener("hashchange", route);
await route();
document.documentElement.dataset.ready = "true";
performance.mark("ready");
requestIdleCallback?.(keepOffline) ?? setTimeout(keepOffline, 500);
