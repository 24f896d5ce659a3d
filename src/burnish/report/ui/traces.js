// The trace viewer: find traces by step, score, fate or words; read one token by token; see its group, and its prompt elsewhere.

import { address, ask, el, number, store, stored } from "./dom.js";
import { tokensView, modesOf } from "./tokens.js";
import { severalReplies, treeView } from "./tree.js";

const PAGE = 50;

export function tracesView(page, names, words) {
  const run = names[0];
  let wanted = { order: "newest", ...words }, rows = [], more = false, open = null, mode = stored("colour", "author"), steps = [], busy = false, ended = false, other = null, tree = null;
  let lists = 0, reads = 0; // questions so far: an answer that is overtaken by a later question is dropped
  const list = el("div", { class: "list", role: "listbox", "aria-label": "Traces" }), detail = el("article", { class: "detail" });
  const count = el("span", { class: "dim" });
  const field = (name, attributes) => el("input", { name, value: wanted[name] ?? "", onchange: (event) => choose({ [name]: event.target.value }), ...attributes });
  const choice = (name, options, label) => el("select", { name, "aria-label": label, onchange: (event) => choose({ [name]: event.target.value }) }, options.map(([value, text]) => el("option", { value, selected: (wanted[name] ?? "") === value }, text)));
  const search = field("search", { type: "search", placeholder: "Search prompts and replies  ( / )", "aria-label": "Search" });
  const step = field("step", { type: "number", min: 1, placeholder: "any", "aria-label": "Step", class: "small", value: wanted.step !== undefined && wanted.step !== "" ? Number(wanted.step) : "", onchange: (event) => choose({ step: event.target.value }) });
  const kind = choice("show", [["", "traces"], ["groups", "groups"]], "Show traces or groups");
  const phase = choice("phase", [["", "any phase"], ...(wanted.phase ? [[wanted.phase, wanted.phase]] : [])], "Phase");
  const fresh = el("button", { class: "fresh", hidden: true, onclick: () => { fresh.hidden = true; load(true); } }, "Show new traces");
  const filters = el("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, search, kind,
    el("label", {}, "step ", step),
    el("label", { class: "score-range" }, "reward ", field("least", { type: "number", step: "any", placeholder: "min", class: "small", "aria-label": "Least reward" }), " – ", field("most", { type: "number", step: "any", placeholder: "max", class: "small", "aria-label": "Largest reward" })),
    choice("correct", [["", "right or wrong"], ["1", "right"], ["0", "wrong"]], "Right or wrong"),
    choice("dropped", [["", "kept or dropped"], ["0", "learnt from"], ["1", "dropped"]], "Kept or dropped"),
    choice("order", [["newest", "newest first"], ["oldest", "oldest first"], ["best", "best first"], ["worst", "worst first"]], "Order"), phase, count, fresh);
  page.replaceChildren(el("div", { class: "viewer" }, el("div", { class: "left" }, filters, list), detail));
  list.addEventListener("scroll", () => more && !busy && list.scrollTop + list.clientHeight > list.scrollHeight - 400 && load());

  function choose(change) {
    wanted = { ...wanted, ...change };
    const { id, ...rest } = wanted;
    history.replaceState(null, "", `#/traces/${address([run])}?${new URLSearchParams(Object.entries(rest).filter(([, value]) => value !== "" && value !== undefined))}`);
    return load(true);
  }

  async function load(anew = false) {
    if (busy && !anew) return;
    const mine = ++lists;
    busy = true;
    try {
      const { id, show: what, ...query } = wanted;
      const found = await ask(what === "groups" ? "groups" : "traces", { run, ...query, limit: PAGE, offset: anew ? 0 : rows.length });
      if (mine !== lists) return;
      rows = anew ? found.rows : [...rows, ...found.rows];
      more = found.more;
      draw();
      if (anew) list.scrollTop = 0;
      if (anew && rows.length && !rows.some((row) => first(row) === open?.id)) await show(first(rows[0]));
      if (!rows.length) detail.replaceChildren(el("p", { class: "empty" }, "No trace matches these filters."));
    } finally {
      if (mine === lists) busy = false;
    }
  }

  function draw() {
    filters.classList.toggle("groups", wanted.show === "groups");
    list.replaceChildren(...rows.map(wanted.show === "groups" ? groupEntry : entry), more ? el("div", { class: "more dim" }, "more below …") : "");
    count.textContent = `${rows.length}${more ? "+" : ""} shown`;
  }

  function entry(row) {
    return el("button", { class: `entry ${row.id === open?.id ? "on" : ""} ${row.dropped ? "gone" : ""}`, role: "option", "aria-selected": String(row.id === open?.id), "data-id": String(row.id), onclick: () => show(row.id) },
      el("span", { class: "line1" }, score(row), el("span", { class: "dim" }, `step ${row.step}`), el("span", { class: "dim" }, `#${row.id}`), row.dropped ? el("span", { class: "tag" }, `dropped: ${row.dropped}`) : null),
      el("span", { class: "prompt" }, row.prompt), el("span", { class: "text" }, (row.text || "(nothing)").replaceAll("\n", " ⏎ ")));
  }

  function groupEntry(row) {
    return el("button", { class: `entry ${row.id === open?.group_id ? "on" : ""}`, role: "option", "aria-selected": String(row.id === open?.group_id), "data-group": String(row.id), onclick: () => show(first(row)) },
      el("span", { class: "line1" }, el("span", { class: "score" }, number(mean(row.traces.map((one) => one.reward)))), el("span", { class: "dim" }, `step ${row.step}`), el("span", { class: "dim" }, `${row.traces.length} traces`)),
      el("span", { class: "prompt" }, row.prompt), strip(row.traces, open?.id));
  }

  async function show(id) {
    const mine = ++reads, found = await ask("trace", { run, id });
    if (mine !== reads) return;
    open = found;
    for (const node of list.querySelectorAll(".entry")) {
      const on = node.dataset.id === String(id) || node.dataset.group === String(open.group_id);
      node.classList.toggle("on", on);
      node.setAttribute("aria-selected", String(on));
      if (on) node.scrollIntoView({ block: "nearest" });
    }
    drawDetail();
    if (tree?.group === open.group_id || !severalReplies(open)) return;
    const nodes = await ask("tree", { run, group: open.group_id });
    if (mine !== reads) return;
    tree = { group: open.group_id, nodes };
    drawDetail();
  }

  function colour(name) {
    mode = name;
    store("colour", name);
    drawDetail();
  }

  function drawDetail() {
    const modes = modesOf(open), on = modes.some(([name]) => name === mode) ? mode : "author";
    detail.replaceChildren(
      el("div", { class: "bar" }, el("h1", {}, `Trace ${open.id}`), score(open), el("span", { class: "dim" }, `step ${open.step}, phase ${open.phase}, ${open.length} tokens`), el("span", { class: "grow" }),
        el("button", { onclick: elsewhere, title: "The same prompt across steps and runs (s)" }, "Same prompt elsewhere")),
      open.dropped ? el("p", { class: "worry" }, el("b", {}, "dropped"), el("span", {}, `Not learnt from: the part ${open.dropped} took it out.`)) : "",
      pictures(), group(), tree?.group === open.group_id ? treeView(tree.nodes, open.id, show) : "", facts(), el("div", { class: "modes", role: "radiogroup", "aria-label": "Colour tokens by" }, el("span", { class: "dim" }, "Colour by"), modes.map(([name, label], i) =>
        el("button", { role: "radio", "aria-checked": String(name === on), class: name === on ? "on" : "", title: i < 9 ? `(${i + 1})` : "", onclick: () => colour(name) }, label))),
      tokensView(open, on), besides());
  }

  /** The pictures of its prompt, and what the model drew. */
  function pictures() {
    const shown = (open.pictures ?? []).map((src, i) => el("img", { src, alt: `Picture ${i + 1} of the prompt` }));
    if (open.drawn) shown.push(el("img", { src: open.drawn, alt: "What the model drew", title: "what the model drew" }));
    return shown.length ? el("div", { class: "pictures" }, shown) : "";
  }

  /** The group as a strip of scores: what this trace was compared with. */
  function group() {
    return el("div", { class: "group", "aria-label": "Its group" }, strip(open.siblings, open.id, show),
      el("span", { class: "dim" }, `group of ${open.siblings.length}: mean reward ${number(mean(open.siblings.map((row) => row.reward)))}`));
  }

  function facts() {
    const pair = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    const note = Object.entries(open.note || {}).filter(([name]) => name !== "keys").map(([name, value]) => pair(name, typeof value === "string" ? value : JSON.stringify(value)));
    const given = Object.entries(open.given || {}).filter(([, value]) => typeof value === "string" || typeof value === "number").map(([name, value]) => pair(name, String(value)));
    return el("div", { class: "facts" },
      el("dl", {}, Object.entries(open.scores).map(([name, value]) => pair(name, number(value))), open.advantage !== null ? pair("advantage", number(open.advantage)) : null, open.tags.length ? pair("tags", open.tags.join(", ")) : null, note),
      given.length ? el("details", {}, el("summary", {}, "What came with the task"), el("dl", {}, given)) : null);
  }

  /** Stays open while traces of the same prompt are read. */
  async function elsewhere() {
    const { task } = open;
    other = { task, rows: await ask("prompt", { run, task }) };
    drawDetail();
    document.getElementById("elsewhere")?.scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  function besides() {
    if (other?.task !== open.task) return "";
    const sets = new Map();
    for (const row of other.rows) {
      const key = `${row.run}\n${row.step}`;
      if (!sets.has(key)) sets.set(key, []);
      sets.get(key).push(row);
    }
    const reply = (row) => el("a", { class: `reply ${row.correct === null ? "" : row.correct > 0.5 ? "right" : "wrong"}`, href: `#/traces/${address([row.run])}?id=${row.id}` }, row.text.slice(0, 160));
    const line = (set) => el("tr", { class: set.some((row) => row.id === open.id && row.run === run) ? "on" : "" }, el("td", {}, set[0].run), el("td", {}, String(set[0].step)), el("td", {}, number(mean(set.map((row) => row.reward)))), el("td", { class: "replies" }, set.slice(0, 4).map(reply)));
    return el("section", { id: "elsewhere" }, el("h2", {}, "The same prompt elsewhere"), el("table", { class: "answers" }, el("tr", {}, ["Run", "Step", "Mean reward", "Replies"].map((name) => el("th", {}, name))), [...sets.values()].map(line)));
  }

  const step1 = (by) => {
    const next = steps[steps.indexOf(open?.step) + by];
    if (next !== undefined) { step.value = next; choose({ step: next }); }
  };
  const near = (items, by) => items[items.findIndex((row) => (row.traces ? row.id === open?.group_id : row.id === open?.id)) + by];

  return {
    async refresh() {
      if (ended && (rows.length || open)) return false;
      const found = await ask("steps", { run });
      ended = found.state !== "running";
      if (phase.length < found.phases.length + 1) phase.replaceChildren(...[["", "any phase"], ...found.phases.map((name) => [name, name])].map(([value, text]) => el("option", { value, selected: (wanted.phase ?? "") === value }, text)));
      phase.hidden = found.phases.length < 2;
      if (!found.steps.length) detail.replaceChildren(el("p", { class: "empty" }, "No traces are recorded yet."));
      else if (!rows.length && !open) {
        if (wanted.id) await show(Number(wanted.id));
        await load(!wanted.id);
      } else if (found.steps.at(-1) > (steps.at(-1) ?? 0)) fresh.hidden = false;
      steps = found.steps;
      return !ended;
    },
    async changed(change) {
      wanted = { order: "newest", ...change };
      if (wanted.id) await show(Number(wanted.id));
      else await load(true);
    },
    key(key) {
      const modes = open ? modesOf(open) : [];
      if (key === "/") search.focus();
      else if ((key === "j" || key === "ArrowDown") && near(rows, 1)) show(first(near(rows, 1)));
      else if ((key === "k" || key === "ArrowUp") && near(rows, -1)) show(first(near(rows, -1)));
      else if ((key === "l" || key === "ArrowRight") && open && near(open.siblings, 1)) show(near(open.siblings, 1).id);
      else if ((key === "h" || key === "ArrowLeft") && open && near(open.siblings, -1)) show(near(open.siblings, -1).id);
      else if (key === "]") step1(1);
      else if (key === "[") step1(-1);
      else if (key === "s" && open) elsewhere();
      else if (modes[Number(key) - 1]) colour(modes[Number(key) - 1][0]);
      else return false;
      if (key === "j" && more && rows.indexOf(rows.find((row) => row.id === open?.id)) > rows.length - 10) load();
      return true;
    },
  };
}

/** The scores of a group as bars: green is right, faint was dropped. */
function strip(rows, on, choose = null) {
  const best = Math.max(...rows.map((row) => row.reward ?? 0), 1e-9), worst = Math.min(0, ...rows.map((row) => row.reward ?? 0));
  return el("span", { class: "strip" }, rows.map((row) => el(choose ? "button" : "span", { class: `${row.id === on ? "on" : ""} ${row.dropped ? "gone" : ""}`, title: `#${row.id}: reward ${number(row.reward)}, advantage ${number(row.advantage)}${row.dropped ? `, dropped by ${row.dropped}` : ""}`, onclick: choose ? () => choose(row.id) : null },
    el("i", { style: { height: `${4 + (26 * ((row.reward ?? 0) - worst)) / (best - worst || 1)}px` }, class: row.correct === null ? "" : row.correct > 0.5 ? "right" : "wrong" }))));
}

const first = (row) => (row.traces ? row.traces[0].id : row.id);
const mean = (values) => { const known = values.filter((x) => x !== null); return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null; };

function score(row) {
  const kind = row.correct === null ? "" : row.correct > 0.5 ? "right" : "wrong";
  return el("span", { class: `score ${kind}` }, row.reward === null ? "–" : Number.isInteger(row.reward) ? row.reward.toFixed(1) : number(row.reward));
}
