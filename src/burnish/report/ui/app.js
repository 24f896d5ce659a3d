// The page: which view is shown, what the keyboard does, light and dark, and the pulse that keeps a view up to date.

import { address, el, hideTip, store, stored } from "./dom.js";
import { runsView } from "./runs.js";
import { runView } from "./run.js";
import { tracesView } from "./traces.js";

const PULSE = 1500; // milliseconds between looks
const page = document.getElementById("page");
let view = null;

// #/                         the runs
// #/run/NAME+NAME            curves of one run, or of several
// #/traces/NAME?step=3&...   its traces
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, ...rest] = path.split("/");
  const words = Object.fromEntries(new URLSearchParams(query || ""));
  const names = rest.join("/").split("+").filter(Boolean).map(decodeURIComponent);
  if (kind === "run" && names.length) return { kind, names, words };
  if (kind === "traces" && names.length) return { kind, names, words };
  return { kind: "runs", names: [], words };
}

async function show() {
  const place = route();
  hideTip();
  const same = view && view.kind === place.kind && view.names.join("+") === place.names.join("+");
  if (same && view.changed) return view.changed(place.words);
  if (view && view.leave) view.leave();
  view = { runs: runsView, run: runView, traces: tracesView }[place.kind](page, place.names, place.words);
  Object.assign(view, { kind: place.kind, names: place.names });
  crumbs(place);
  scrollTo(0, 0);
  await pulse();
}

function crumbs({ kind, names }) {
  const where = document.getElementById("where");
  const name = names.join(" + ");
  const link = (label, target, on) => el("a", { href: target, class: on ? "on" : "" }, label);
  document.title = name ? `${name} · burnish` : "burnish";
  where.replaceChildren(...(name ? [
    el("span", { class: "name", title: name }, name), link("Curves", `#/run/${address(names)}`, kind === "run"),
    ...(names.length === 1 ? [link("Traces", `#/traces/${address(names)}`, kind === "traces")] : []),
  ] : []));
}

async function pulse() {
  const live = document.getElementById("live");
  try {
    const running = await view.refresh();
    live.textContent = running ? "live" : "";
    live.className = running ? "live on" : "live";
  } catch (error) {
    live.textContent = error instanceof TypeError ? "burnish ui has ended" : error.message;
    live.className = "live lost";
  }
}

const KEYS = [
  ["g", "all runs"], ["c", "the run's curves"], ["v", "the run's traces"], ["j k", "next and previous in a list"], ["Enter", "open what is marked"],
  ["x", "mark a run, to see several together"], ["h l", "previous and next trace of a group"], ["[ ]", "previous and next step"],
  ["1 … 6", "colour tokens by author, advantage, probability, surprise, entropy, or another stream"], ["s", "the same prompt across steps and runs"],
  ["n", "a new run"], ["/", "search"], ["p", "pause, or go on"], ["t", "light or dark"], ["?", "this list"], ["Esc", "close"],
];

function help() {
  const box = document.getElementById("help");
  box.replaceChildren(el("h2", {}, "Keyboard"), el("table", {}, KEYS.map(([key, what]) =>
    el("tr", {}, el("th", {}, key.split(" ").map((one) => el("kbd", {}, one))), el("td", {}, what)))), el("button", { onclick: () => box.close(), autofocus: true }, "Close"));
  box.showModal();
}

function theme() {
  const dark = document.documentElement.dataset.theme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store("theme", document.documentElement.dataset.theme);
}

document.documentElement.dataset.theme = stored("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("keys").addEventListener("click", help);
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || document.getElementById("help").open) return;
  const { names } = route();
  const moves = { g: "#/", c: `#/run/${address(names)}`, v: `#/traces/${address(names.slice(0, 1))}` };
  if (event.key === "t") theme();
  else if (event.key === "?") help();
  else if (moves[event.key] && (names.length || event.key === "g")) location.hash = moves[event.key];
  else if (!(view && view.key && view.key(event.key, event))) return;
  event.preventDefault();
});
setInterval(() => document.hidden || !view || pulse(), PULSE);
show();
