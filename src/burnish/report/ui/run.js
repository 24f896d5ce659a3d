// One run, or several together: how it stands, what to worry about, its curves, where the time goes, what happened.

import { address, age, ask, duration, el, number, order, percent, save, say, store, stored } from "./dom.js";
import { chart, COLOURS, rooms } from "./charts.js";
import { differences, differing, options, valueOf } from "./differences.js";
import { showLog } from "./manage.js";
import { pill } from "./runs.js";
import { AXES, along, csv } from "./axes.js";

const FIRST = ["reward", "correct", "*/accuracy", "*/nll"];
const HEALTH = ["kl/loss", "kl", "*/entropy", "length", "*/clipped", "*/old_kl", "mismatch/logp", "mismatch/ratio", "zero_variance_groups", "cut_off", "grad_norm"];

export function runView(page, names) {
  const runs = new Map(names.map((name) => [name, { name, metrics: { steps: [], series: {} }, timings: { steps: [], series: {} }, titles: {}, events: [], lastEvent: 0 }]));
  let definitions = null, smooth = Number(stored("smooth", 0)), drawn = "", seeds = null;
  const axes = { x: stored("x", "steps"), y: stored("y", "linear") };
  let grouped = "seeds", zoom = null; // runs are together that differ in their seed alone, or that share this option
  const head = el("section", { class: "head" }), worries = el("section", { class: "worries" }), tiles = el("section", { class: "tiles" });
  const curves = el("section"), side = el("section", { class: "two" });
  const slider = el("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: smooth, "aria-label": "Smoothing", oninput: () => { smooth = Number(slider.value); store("smooth", smooth); draw(true); } });
  const pick = (name, values, label) => el("label", {}, `${label} `, el("select", { "aria-label": label, onchange: (event) => { axes[name] = event.target.value; store(name, axes[name]); zoom = null; draw(true); } }, values.map((value) => el("option", { value, selected: value === axes[name] }, value))));
  const files = el("button", { title: "The metrics of these runs as a table", onclick: () => save(`${names.join("+").replaceAll("/", "-")}.csv`, csv([...runs.values()])) }, "CSV");
  const logs = names.length === 1 ? el("button", { title: "What the run prints", onclick: () => showLog(names[0]) }, "Log") : null;
  const by = el("select", { "aria-label": "Group by", onchange: (event) => { grouped = event.target.value; draw(true); } });
  const byLabel = names.length > 2 ? el("label", { title: "Mean and 95% band of the runs that share this option" }, "Group by ", by) : null;
  const unzoom = el("button", { hidden: true, title: "Drag along a chart to zoom, double click for the whole", onclick: () => zoomed(null) }, "Whole range");
  const zoomed = (range) => { zoom = range; draw(true); };
  const knobs = el("div", { class: "bar knobs" }, el("label", {}, "Smoothing ", slider), byLabel, unzoom, pick("x", Object.keys(AXES), "x"), pick("y", ["linear", "log"], "y"), el("span", { class: "grow" }), logs, files);
  page.replaceChildren(head, worries, tiles, knobs, curves, side);
  const one = () => runs.get(names[0]);

  async function look(run) {
    const last = run.metrics.steps.at(-1);
    const found = await ask("metrics", { run: run.name, after: last ?? 0, event: run.lastEvent });
    if (last !== undefined && found.run.step < last) { // the run was resumed from an earlier step: read it anew
      Object.assign(run, { metrics: { steps: [], series: {} }, timings: { steps: [], series: {} } });
      return look(run);
    }
    extend(run.metrics, found.metrics);
    extend(run.timings, found.timings);
    Object.assign(run.titles, found.titles);
    run.events.push(...found.events);
    run.lastEvent = run.events.at(-1)?.id ?? 0;
    Object.assign(run, { about: found.run, config: found.config, environment: found.environment, git: found.git, evaluation: found.evaluation, worries: found.worries, lr: found.lr });
  }

  function draw(anew = false) {
    const stamp = JSON.stringify([...runs.values()].map((run) => [run.metrics.steps.length, run.about, run.events.length, run.worries]));
    if (stamp === drawn && !anew) return;
    drawn = stamp;
    unzoom.hidden = !zoom;
    const known = ["seeds", ...options([...runs.values()])];
    if (by.options.length !== known.length) by.replaceChildren(...known.map((value) => el("option", { value, selected: value === grouped }, value.replaceAll("_", " "))));
    names.length === 1 ? drawHead(one()) : drawTogether();
    worries.replaceChildren(...[...runs.values()].flatMap((run) => Object.entries(run.worries || {}).map(([kind, text]) =>
      el("div", { class: `worry ${kind === "solved" ? "good" : ""}`, "data-kind": kind }, el("b", {}, kind.replaceAll("_", " ")), el("span", {}, names.length > 1 ? `${run.name}: ${text}` : text)))));
    tiles.replaceChildren(...(names.length === 1 ? tilesOf(one()) : []));
    drawCurves();
    side.replaceChildren(...(names.length === 1 ? [timeOf(one()), eventsOf(one()), configOf(one()), samplesOf(one())] : []));
  }

  function drawHead(run) {
    const { about } = run, button = (action, label, title) => el("button", { title, onclick: () => send(action) }, label);
    const running = about.state === "running";
    head.replaceChildren(
      el("div", { class: "bar" }, el("h1", { title: about.name }, about.title || about.name), pill(about), about.tags.map((tag) => el("span", { class: "label" }, tag)), el("span", { class: "grow" }), running ? [
        about.paused ? button("resume", "▶ Resume", "Resume training (p)") : button("pause", "❚❚ Pause", "Pause after this step (p)"),
        button("checkpoint", "Save checkpoint", "Save a checkpoint after this step"), button("stop", "■ Stop", "Finish this step, save, and stop: --resume continues it later"),
      ] : null, el("a", { class: "button", href: `#/traces/${address([about.name])}` }, "Traces →"), seedsOf(about)),
      el("p", { class: "dim" }, `${about.method} on ${about.task.split("/").at(-1)}, ${about.model.split("/").at(-1)}, seed ${about.seed}, ${age(about.updated)} ago`),
      el("div", { class: "progress", title: `${about.step} of ${about.steps} steps` }, el("div", { class: about.state, style: { width: `${about.steps ? (100 * about.step) / about.steps : 0}%` } })),
    );
  }

  function seedsOf(about) {
    const alike = (seeds || []).filter((run) => run.same === about.same);
    return alike.length > 1 ? el("a", { class: "button", href: `#/run/${address(alike.map((run) => run.name))}` }, `${alike.length} seeds together`) : null;
  }

  function drawTogether() {
    const found = groups();
    head.replaceChildren(el("div", { class: "bar" }, el("h1", {}, `${names.length} runs together`)), el("div", { class: "legend big" }, found.map((group) =>
      el("span", { class: "entry-of-legend", title: group.runs.map((run) => run.name).join("\n") }, el("i", { class: "swatch", style: { background: group.colour } }), el("b", {}, group.label),
        el("small", {}, group.runs.length > 1 ? ` mean and 95% band over ${group.runs.length} ${grouped === "seeds" ? "seeds" : "runs"}` : ` ${group.runs[0].name}`)))), differences(found));
  }

  /** Runs that differ in their seed alone, or that share the chosen option, are one line with a band. */
  function groups() {
    const found = new Map();
    for (const run of runs.values()) {
      const key = names.length < 2 ? run.name : grouped === "seeds" ? run.about?.same ?? run.name : valueOf(run, grouped);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(run);
    }
    const lists = [...found.values()];
    const labels = grouped === "seeds" ? differing(lists.map((list) => list[0])) : [...found.keys()].map((value) => `${grouped.replaceAll("_", " ")} ${value}`);
    return lists.map((list, i) => ({ runs: list, colour: `var(--c${i % COLOURS})`, label: labels[i] }));
  }

  function series(name) {
    return groups().map((group) => ({ label: names.length > 1 ? group.label : name, colour: group.colour, runs: group.runs.filter((run) => name in run.metrics.series).map((run) => ({ steps: along(run, axes.x), values: run.metrics.series[name] })) })).filter((line) => line.runs.length);
  }

  function drawCurves() {
    const all = [...new Set([...runs.values()].flatMap((run) => Object.keys(run.metrics.series)))];
    const steps = Math.max(...[...runs.values()].map((run) => run.about?.steps || 0));
    const used = new Set();
    const draw1 = (name) => { used.add(name); return chart({ ...titled(name), what: meaning(name), series: series(name), steps: axes.x === "steps" ? steps : 0, smooth, log: axes.y === "log", x: axes.x, zoom, onzoom: zoomed }); };
    const fit = (patterns) => patterns.flatMap((pattern) => all.filter((name) => !used.has(name) && !name.startsWith("heldout/") && matches(name, pattern)).map((name) => (used.add(name), name)));
    const held = all.filter((name) => name.startsWith("heldout/"));
    held.forEach((name) => used.add(name));
    const learning = [...fit(FIRST).map(draw1), ...held.map(heldOut), ...fit(["score/*"]).map(draw1)];
    if (!held.length && [...runs.values()].some((run) => run.evaluation?.after)) learning.push(...Object.keys([...runs.values()].find((run) => run.evaluation?.after).evaluation.after.metrics).map(heldOut));
    const health = fit(HEALTH).map(draw1);
    const rest = all.filter((name) => !used.has(name)).map(draw1);
    const speed = names.length === 1 ? [throughput(one(), steps)] : [];
    curves.replaceChildren(chapter("Learning", learning), chapter("Health", health), chapter("Everything else", [...speed, ...rest]));
    if (!all.length) curves.replaceChildren(el("p", { class: "empty" }, "The first step has not ended yet."));
  }

  function heldOut(name) {
    const lines = groups().map((group) => ({ label: names.length > 1 ? group.label : name, colour: group.colour, dotted: true, runs: group.runs.map((run) => {
      const points = (run.metrics.series[name] || []).map((value, i) => [run.metrics.steps[i], value]).filter(([, value]) => value !== null);
      const { before, after } = run.evaluation || {};
      if (before?.metrics[name] !== undefined) points.unshift([0, before.metrics[name]]);
      if (after?.metrics[name] !== undefined && run.about.state !== "running") points.push([run.about.step, after.metrics[name]]);
      return { steps: points.map(([x]) => x), values: points.map(([, y]) => y) };
    }) }));
    return chart({ ...titled(name), what: meaning(name), series: lines, steps: 0, ...(axes.x === "steps" ? { zoom, onzoom: zoomed } : {}) });
  }

  function throughput(run, steps) {
    const seconds = run.timings.series.total || [], tokens = run.metrics.series.sampled_tokens || [];
    const values = seconds.map((s, i) => (s && tokens[i] ? tokens[i] / s : null));
    return chart({ title: "Sampling", unit: "tokens per second", series: [{ label: "tokens/s", colour: "var(--c0)", runs: [{ steps: run.timings.steps, values }] }], steps, from: 0, smooth, ...(axes.x === "steps" ? { zoom, onzoom: zoomed } : {}) });
  }

  const titled = (name) => ({ name, title: name, ...[...runs.values()].find((run) => run.titles[name])?.titles[name] });
  const meaning = (name) => definitions?.find((one) => matches(name, one.name))?.what;

  async function send(action) {
    try {
      await order(names[0], action);
      say(`${action}: done when this step ends`);
    } catch (error) {
      say(error.message, "error");
    }
  }

  return {
    async refresh() {
      definitions ??= await ask("definitions");
      if (names.length === 1) seeds = await ask("runs");
      await Promise.all([...runs.values()].map(look));
      draw();
      return [...runs.values()].some((run) => run.about.state === "running");
    },
    key(key) {
      if (key !== "p" || names.length > 1 || one().about?.state !== "running") return false;
      send(one().about.paused ? "resume" : "pause");
      return true;
    },
  };
}

function chapter(title, charts) {
  return charts.length ? el("div", { class: "chapter" }, el("h2", {}, title), el("div", { class: "grid" }, charts)) : "";
}

function tilesOf(run) {
  const last = (name) => run.metrics.series[name]?.at(-1);
  const named = (pattern) => Object.keys(run.metrics.series).find((name) => matches(name, pattern) && !name.startsWith("heldout/"));
  const tile = (label, value, note = "") => el("div", { class: "tile" }, el("span", {}, label), el("b", {}, value), el("small", {}, note));
  const found = [];
  const heldOut = latestHeldOut(run);
  if (heldOut) found.push(tile(heldOut.title, heldOut.value, heldOut.note));
  for (const [label, pattern] of [["reward", "reward"], ["entropy", "*/entropy"], ["KL", "kl/loss"], ["KL", "kl"], ["NLL", "*/nll"], ["length", "length"]]) {
    const name = named(pattern);
    if (name && !found.some((one) => one.firstChild.textContent === label)) found.push(tile(label, number(last(name)), run.titles[name]?.unit || "last step"));
  }
  const seconds = run.timings.series.total || [];
  const recent = seconds.slice(-10).filter((s) => s);
  if (recent.length) {
    const pace = recent.reduce((a, b) => a + b, 0) / recent.length, left = run.about.steps - run.about.step;
    found.push(tile("a step", duration(pace), run.about.state === "running" && left > 0 ? `${duration(pace * left)} left` : `${duration(seconds.reduce((a, b) => a + (b || 0), 0))} in all`));
  }
  return found;
}

const heldOutName = (outcome) => `heldout/${outcome.name.replace("held-out ", "")}`;

/** The newest held-out score: after training, or the last one during it; a resumed run's old final one is not the newest. */
function latestHeldOut(run) {
  const { before, after } = run.evaluation || {};
  const write = (name, value) => (run.titles[name]?.unit === "%" ? percent(value) : number(value));
  const around = (one) => one.value.low === one.value.high ? "" : `[${write(heldOutName(one), one.value.low)}, ${write(heldOutName(one), one.value.high)}]`;
  const was = before ? `before: ${[write(heldOutName(before), before.value.mean), around(before)].filter(Boolean).join(" ")}` : "";
  const titled = (name) => run.titles[name]?.title || "held out";
  if (after && run.about.state !== "running") return { title: titled(heldOutName(after)), value: write(heldOutName(after), after.value.mean), note: [around(after), was].filter(Boolean).join(", ") };
  const name = before ? heldOutName(before) : Object.keys(run.metrics.series).find((one) => one.startsWith("heldout/"));
  const values = (name && run.metrics.series[name]) || [];
  const at = values.findLastIndex((value) => value !== null && value !== undefined);
  if (at >= 0) return { title: titled(name), value: write(name, values[at]), note: [`step ${run.metrics.steps[at]}`, was].filter(Boolean).join(", ") };
  return before ? { title: titled(heldOutName(before)), value: write(heldOutName(before), before.value.mean), note: [around(before), "before training"].filter(Boolean).join(" ") } : null;
}

function timeOf(run) {
  const sums = Object.fromEntries(Object.entries(run.timings.series).map(([name, values]) => [name, values.reduce((a, b) => a + (b || 0), 0)]));
  return el("div", { class: "card" }, el("h2", {}, "Where the time goes"), Object.keys(sums).length ? rooms(sums) : el("p", { class: "empty" }, "nothing yet"));
}

function eventsOf(run) {
  const rows = run.events.slice(-40).reverse().map((event) => el("tr", { class: event.level }, el("td", { class: "dim" }, event.step === null ? "" : `step ${event.step}`), el("td", {}, event.kind.replaceAll("_", " ")), el("td", {}, event.text), el("td", { class: "dim" }, age(event.time))));
  return el("div", { class: "card" }, el("h2", {}, "What happened"), rows.length ? el("table", { class: "events" }, rows) : el("p", { class: "empty" }, "nothing yet"));
}

function configOf(run) {
  const { command, ...made } = run.environment || {};
  const facts = { ...run.config, "learning rate": run.lr, ...made, commit: run.git ? `${run.git.commit.slice(0, 12)} (${run.git.branch}${run.git.changed.length ? `, ${run.git.changed.length} files changed` : ""})` : null };
  const rows = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => el("tr", {}, el("td", { class: "dim" }, name.replaceAll("_", " ")), el("td", {}, String(value))));
  return el("details", { class: "card" }, el("summary", {}, "Configuration and environment"), el("table", { class: "facts" }, rows));
}

function samplesOf(run) {
  const { before, after } = run.evaluation || {};
  const earlier = new Map((before?.shown || []).map((shown) => [shown.prompt, shown]));
  const reply = (shown) => el("td", { class: `reply ${shown ? (shown.correct ? "right" : "wrong") : ""}` }, shown ? shown.reply : "");
  const rows = (after || before)?.shown?.slice(0, 6).map((shown) => el("tr", {}, el("td", {}, shown.prompt), reply(earlier.get(shown.prompt)), after ? reply(shown) : null)) || [];
  if (!rows.length) return "";
  return el("div", { class: "card wide" }, el("h2", {}, "Held-out answers"), el("table", { class: "answers" }, el("tr", {}, ["Prompt", "Before", ...(after ? ["After"] : [])].map((name) => el("th", {}, name))), rows));
}

function extend(known, more) {
  const before = known.steps.length;
  known.steps.push(...more.steps);
  for (const name of new Set([...Object.keys(known.series), ...Object.keys(more.series)])) {
    known.series[name] ??= new Array(before).fill(null);
    known.series[name].push(...(more.series[name] || more.steps.map(() => null)));
  }
}

export function matches(name, pattern) {
  if (!pattern.includes("*")) return name === pattern;
  const [start, end] = pattern.split("*");
  return name.startsWith(start) && name.endsWith(end) && name.length > start.length + end.length;
}
