// What differs between runs: the label of each curve, and a table of the options that are not the same.

import { el } from "./dom.js";

const NOT_COMPARED = ["seed", "out", "run_name", "tag", "device", "token_budget"]; // they do not say what was tried
const FIRST = ["method", "task", "model", "lr", "n"]; // of the options that differ, these are named first
const MOST = 4; // options in a label

function written(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3) return value.toExponential();
  return value === true ? "on" : value === false ? "off" : String(value);
}

/** The options of a run; the learning rate is the one that was used, where it was chosen by the size of the model. */
const config = (run) => ({ ...run.config, lr: run.config?.lr ?? run.lr });

/** The value of an option in a run, as it is written. */
export const valueOf = (run, name) => short(name, config(run)[name]);

const short = (name, value) => (name === "task" || name === "model" ? written(value).split("/").at(-1) : written(value));

/** The options that are not equal in all of these runs, and all of their values; an option that a method does not have is "–". */
export function options(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(config(run))))].filter((name) => !NOT_COMPARED.includes(name));
  const differ = names.filter((name) => new Set(runs.map((run) => written(config(run)[name]))).size > 1);
  return [...FIRST.filter((name) => differ.includes(name)), ...differ.filter((name) => !FIRST.includes(name))];
}

/** A label for each run, by the options in which it differs from the others: "lr 1e-05, n 8". */
export function differing(runs) {
  if (runs.length < 2) return runs.map((run) => (run.about ? `${run.about.method} on ${run.about.task.split("/").at(-1)}` : run.name));
  const names = options(runs).filter((name) => runs.every((run) => name in config(run))); // not what only some methods have
  return runs.map((run) => {
    const parts = names.slice(0, MOST).map((name) => (name === "method" ? "" : `${name.replaceAll("_", " ")} `) + short(name, config(run)[name]));
    return parts.length ? parts.join(", ") + (names.length > MOST ? `, and ${names.length - MOST} more` : "") : run.about?.title || run.name;
  });
}

/** A table of the options that differ, one column a curve. */
export function differences(groups) {
  const names = options(groups.map((group) => group.runs[0]));
  if (groups.length < 2 || !names.length) return "";
  const head = el("tr", {}, el("th", {}, ""), groups.map((group) => el("th", { title: group.runs[0].name }, el("i", { class: "swatch", style: { background: group.colour } }), group.runs[0].about?.title || group.runs[0].name)));
  const rows = names.map((name) => el("tr", {}, el("td", { class: "dim" }, name.replaceAll("_", " ")), groups.map((group) => el("td", {}, written(config(group.runs[0])[name])))));
  const open = document.querySelector("details.differences")?.open ?? names.length <= 8; // as it was before it is drawn again
  return el("details", { class: "card differences", open }, el("summary", {}, `What differs: ${names.length} option${names.length > 1 ? "s" : ""}`), el("div", { class: "scroll" }, el("table", { class: "facts" }, head, rows)));
}
