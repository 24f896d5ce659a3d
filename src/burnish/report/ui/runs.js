// The list of runs: what each was, how far it got, how it ended. Mark several to see them together.

import { address, age, ask, el, store, stored } from "./dom.js";
import { spark } from "./charts.js";
import { actions, form, manager, readOnly } from "./manage.js";

const PAGE = 200; // rows that are drawn at once; a list of thousands is drawn on demand
const SORTS = { Run: (run) => run.title || run.name, Method: (run) => run.method, Task: (run) => run.task, Model: (run) => run.model, Seed: (run) => run.seed, "Held out": (run) => Number(run.result.match(/([0-9.]+)%?(?!.*[0-9])/)?.[1] ?? -1),
  Steps: (run) => run.step, State: (run) => run.state, Age: (run) => -run.updated };

export function runsView(page) {
  let runs = [], at = 0, wanted = "", archived = false, most = PAGE, last = "";
  let [by, down] = stored("sort", "Age,").split(",");
  const again = async () => { last = ""; await refresh(); };
  const { box: queue, fresh, refresh: look } = manager(again);
  const marked = new Set();
  const search = el("input", { type: "search", placeholder: "Filter by name, method, task, tag  ( / )", "aria-label": "Filter runs", oninput: () => { wanted = search.value; draw(); } });
  const together = el("button", { class: "primary", onclick: () => (location.hash = `#/run/${address([...marked])}`) });
  const body = el("tbody");
  const count = el("span", { class: "dim" });
  const table = el("table", { class: "runs" }, el("thead", {}, el("tr", {}, ["", "Run", "Method", "Task", "Model", "Seed", "Curve", "Held out", "Steps", "State", "Age", ""].map(heading))), body);
  const more = el("button", { hidden: true, onclick: () => { most += PAGE; draw(); } });
  const filed = el("label", { class: "dim" }, el("input", { type: "checkbox", onclick: (event) => { archived = event.target.checked; draw(); } }), " archive");
  const empty = el("div", { class: "welcome", hidden: true }, el("h2", {}, "No runs here yet"), el("p", {}, "Start one, and it appears on this page while it trains:"), el("pre", {}, "burnish train"));
  page.replaceChildren(el("div", { class: "bar" }, el("h1", {}, "Runs"), count, el("span", { class: "grow" }), filed, search, together, fresh), queue, el("div", { class: "scroll" }, table), more, empty);

  function heading(name) {
    if (!(name in SORTS)) return el("th", {}, name);
    return el("th", {}, el("button", { class: "sort", "aria-label": `Sort by ${name}`, onclick: () => { down = by === name && !down ? "down" : ""; by = name; store("sort", `${by},${down}`); draw(); } }, name));
  }

  function ordered(list) {
    const key = SORTS[by] || SORTS.Age, sign = down ? -1 : 1;
    return [...list].sort((a, b) => sign * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
  }

  const shown = () => ordered(runs.filter((run) => run.archived === archived && wanted.toLowerCase().split(/\s+/).every((word) => `${run.name} ${run.title} ${run.note} ${run.tags.join(" ")} ${run.method} ${run.task} ${run.model} ${run.state} seed${run.seed}`.toLowerCase().includes(word))));

  function draw() {
    const list = shown();
    at = Math.max(0, Math.min(at, list.length - 1));
    body.replaceChildren(...list.slice(0, Math.max(most, at + 1)).map((run, i) => row(run, i === at)));
    for (const button of table.querySelectorAll("button.sort")) button.parentNode.setAttribute("aria-sort", button.textContent !== by ? "none" : down ? "descending" : "ascending");
    more.hidden = list.length <= most;
    more.textContent = `${list.length - most} more`;
    table.hidden = !runs.length;
    empty.hidden = runs.length > 0;
    count.textContent = runs.length ? `${list.length === runs.length ? "" : `${list.length} of `}${runs.length}` : "";
    together.hidden = marked.size < 2;
    together.textContent = `Show ${marked.size} together`;
  }

  function row(run, on) {
    const target = `#/run/${address([run.name])}`;
    const mark = el("input", { type: "checkbox", checked: marked.has(run.name), "aria-label": `Mark ${run.name}`, onclick: (event) => { event.stopPropagation(); toggle(run.name); } });
    const part = run.steps ? run.step / run.steps : 0;
    return el("tr", { class: on ? "on" : "", onclick: () => (location.hash = target) },
      el("td", {}, mark), el("td", { class: "name", title: run.name }, el("a", { href: target }, run.title || run.name), run.tags.length ? el("span", { class: "labels" }, run.tags.map(label)) : null, run.note ? el("small", { class: "note" }, run.note) : null),
      el("td", { class: "method", title: run.method }, run.method), el("td", { class: "task", title: run.task }, run.task.split("/").at(-1)),
      el("td", { class: "model", title: run.model }, run.model.split("/").at(-1)), el("td", {}, String(run.seed)), el("td", { title: run.curve }, spark(run.spark)), el("td", { class: "result", title: run.result }, run.result),
      el("td", { class: "steps" }, el("span", {}, `${run.step}/${run.steps}`), el("div", { class: "track" }, el("div", { style: { width: `${100 * part}%` } }))),
      el("td", {}, pill(run)), el("td", { class: "dim" }, age(run.updated)), el("td", { class: "acts" }, actions(run, again)));
  }

  const label = (tag) => el("button", { class: "label", title: `Only runs with the tag ${tag}`, onclick: (event) => { event.stopPropagation(); search.value = wanted = tag; draw(); } }, tag);

  function toggle(name) {
    if (!marked.delete(name)) marked.add(name);
    draw();
  }

  async function refresh() {
    await look();
    const found = await ask("runs"), stamp = JSON.stringify(found);
    if (stamp !== last) { // thousands of rows are not drawn again for nothing
      [runs, last] = [found, stamp];
      draw();
    }
    return runs.some((run) => run.state === "running");
  }

  return {
    refresh,
    key(key) {
      const list = shown();
      if (key === "/") search.focus();
      else if (key === "n" && !readOnly()) form({ method: "grpo", options: {} }, again);
      else if (key === "j" || key === "ArrowDown") at = Math.min(at + 1, list.length - 1);
      else if (key === "k" || key === "ArrowUp") at = Math.max(at - 1, 0);
      else if (key === "x" && list[at]) toggle(list[at].name);
      else if (key === "Enter" && marked.size > 1) together.click();
      else if (key === "Enter" && list[at]) location.hash = `#/run/${address([list[at].name])}`;
      else return false;
      draw();
      body.querySelector("tr.on")?.scrollIntoView({ block: "nearest" });
      return true;
    },
  };
}

export function pill(run) {
  const state = run.paused ? "paused" : run.state;
  return el("span", { class: `pill ${state}` }, state);
}
