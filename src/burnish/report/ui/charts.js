// Line charts as SVG: one line a run, or mean and 95% band where runs differ in their seed alone.

import { el, hideTip, number, percent, showTip, svg } from "./dom.js";

export const COLOURS = 8; // --c0 .. --c7 in style.css
const WIDTH = 420, HEIGHT = 190, LEFT = 46, RIGHT = 10, TOP = 10, BOTTOM = 24;
const MOST_POINTS = 500;
// the two-sided 95% quantile of Student's t by degrees of freedom: a band over three seeds is honest about being three
const T = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.2, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.1, 2.09, 2.09];

/** series: [{label, colour, runs: [{steps, values}]}]; zoom: [from, to] of x; onzoom is given what a drag chose, or null. */
export function chart({ name, title, unit = "", what, series, steps, height = HEIGHT, smooth = 0, from = null, log = false, x: along = "steps", zoom = null, onzoom = null }) {
  const percentage = unit === "%";
  const whole = series.map((one) => line(one, smooth)).map((one) => (log ? positive(one) : one)).filter((one) => one.points.length);
  const lines = zoom ? whole.map((one) => inside(one, zoom)).filter((one) => one.points.length) : whole;
  const ys = bounds(lines, percentage);
  const box = el("figure", { class: "chart" }, el("figcaption", { title: [name, what].filter(Boolean).join(": ") },
    el("span", { class: "name", "data-name": name || title }, title, unit && !percentage ? el("small", {}, ` ${unit}`) : null), latest(lines, percentage)));
  if (!ys.length) {
    box.append(el("p", { class: "empty" }, whole.length ? "nothing in this range" : "nothing yet"));
    return box;
  }
  const [low, high] = log ? decades(ys) : range(ys, percentage, from);
  const last = Math.max(...lines.flatMap((one) => one.points.map((p) => p.x)));
  const begin = zoom ? zoom[0] : 0;
  const end = zoom ? zoom[1] : Math.max(last > (steps || 0) / 3 ? steps || 0 : 0, last, 1); // a run that has just begun fills the width
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * (step - begin)) / (end - begin);
  const part = log ? (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  const y = (value) => height - BOTTOM - (height - TOP - BOTTOM) * part(value);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${title} over ${along}` });
  for (const mark of log ? powers(low, high) : ticks(low, high, 4))
    drawing.append(
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(mark), y2: y(mark) }),
      svg("text", { class: "mark", x: LEFT - 6, y: y(mark) + 3.5, "text-anchor": "end" }, percentage ? `${Math.round(100 * mark)}%` : short(mark)),
    );
  for (const mark of ticks(begin, end, 5).filter((one) => Number.isInteger(one) && one >= begin))
    drawing.append(svg("text", { class: "mark", x: x(mark), y: height - 7, "text-anchor": x(mark) > WIDTH - 24 ? "end" : "middle" }, short(mark)));
  for (const one of lines) {
    if (one.banded) drawing.append(svg("path", { class: "band", d: band(one.points, x, y), fill: one.colour }));
    const d = one.points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");
    drawing.append(svg("path", { class: `line ${one.dashed ? "dashed" : ""}`, d, stroke: one.colour }));
    if (one.points.length === 1 || one.dotted)
      drawing.append(...one.points.map((p) => svg("circle", { cx: x(p.x), cy: y(p.y), r: 2.6, fill: one.colour })));
  }
  hover(drawing, lines, { x, begin, end, height, percentage, along });
  if (onzoom) dragging(drawing, { begin, end, height, onzoom });
  box.append(drawing);
  return box;
}

/** A line within a range of x. */
const inside = (one, [from, to]) => ({ ...one, points: one.points.filter((p) => p.x >= from && p.x <= to) });

/** A drag along x chooses a range, a double click the whole. */
function dragging(drawing, { begin, end, height, onzoom }) {
  const shade = svg("rect", { class: "zoom", y: TOP, height: height - TOP - BOTTOM, width: 0, visibility: "hidden" });
  const at = (event) => {
    const box = drawing.getBoundingClientRect();
    return Math.min(WIDTH - RIGHT, Math.max(LEFT, ((event.clientX - box.left) / box.width) * WIDTH));
  };
  const value = (px) => begin + ((px - LEFT) / (WIDTH - LEFT - RIGHT)) * (end - begin);
  let start = null;
  drawing.append(shade);
  drawing.addEventListener("pointerdown", (event) => { start = at(event); drawing.setPointerCapture(event.pointerId); });
  drawing.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const now = at(event);
    shade.setAttribute("x", Math.min(start, now));
    shade.setAttribute("width", Math.abs(now - start));
    shade.setAttribute("visibility", "visible");
  });
  drawing.addEventListener("pointerup", (event) => {
    const now = at(event), [from, to] = [Math.min(start ?? now, now), Math.max(start ?? now, now)];
    start = null;
    shade.setAttribute("visibility", "hidden");
    if (to - from > 8) { hideTip(); onzoom([value(from), value(to)]); } // the chart under the tip is drawn anew
  });
  drawing.addEventListener("dblclick", () => onzoom(null));
}

/** A line without what a logarithmic axis cannot show. */
const positive = (one) => ({ ...one, banded: one.banded && one.points.every((p) => p.low > 0), points: one.points.filter((p) => p.y > 0) });

function decades(ys) {
  const above = ys.filter((value) => value > 0), low = Math.min(...above), high = Math.max(...above);
  return high / low < 1.1 ? [low / 1.5, high * 1.5] : [low / 1.1, high * 1.1];
}

/** Powers of ten, with 2 and 5 where there are few. */
function powers(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const m of Math.log10(high / low) > 2 ? [1] : [1, 2, 5]) if (m * 10 ** power >= low && m * 10 ** power <= high) found.push(Number((m * 10 ** power).toPrecision(3)));
  return found;
}

/** What must be seen: all lines, and of their bands as much as does not squeeze the lines flat. */
function bounds(lines, percentage) {
  const ys = lines.flatMap((one) => one.points.map((p) => p.y));
  if (!ys.length) return ys;
  const low = Math.min(...ys), high = Math.max(...ys), room = Math.max(high - low, 1e-12) * 0.6;
  const within = (y) => Math.max(low >= 0 ? Math.max(0, low - room) : low - room, Math.min(percentage && high <= 1 ? 1 : high + room, y));
  for (const one of lines) for (const p of one.points) [p.low, p.high] = [within(p.low), within(p.high)];
  return lines.flatMap((one) => one.points.flatMap((p) => [p.low, p.high]));
}

function line({ label, colour, runs, dashed, dotted }, smooth) {
  const sums = new Map();
  for (const run of runs) {
    const values = smoothed(run.values, smooth);
    run.steps.forEach((step, i) => {
      if (values[i] === null || values[i] === undefined) return;
      if (!sums.has(step)) sums.set(step, []);
      sums.get(step).push(values[i]);
    });
  }
  let points = [...sums].sort(([a], [b]) => a - b).map(([x, values]) => spread(x, values));
  const stride = Math.ceil(points.length / MOST_POINTS);
  if (stride > 1) points = points.filter((_, i) => i % stride === 0 || i === points.length - 1);
  return { label, colour, points, dashed, dotted, banded: runs.length > 1, seeds: runs.length };
}

function spread(x, values) {
  const n = values.length, mean = values.reduce((a, b) => a + b, 0) / n;
  if (n < 2) return { x, y: mean, low: mean, high: mean, n };
  const sd = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (n - 1));
  const half = ((T[n - 2] ?? 1.96) * sd) / Math.sqrt(n);
  return { x, y: mean, low: mean - half, high: mean + half, half, n };
}

function smoothed(values, share) {
  if (!share) return values;
  let held = null;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    held = held === null ? value : share * held + (1 - share) * value;
    return held;
  });
}

function range(ys, percentage, from) {
  let low = Math.min(...ys), high = Math.max(...ys);
  if (from !== null) low = Math.min(low, from);
  if (percentage && low >= 0 && high <= 1) return [0, 1];
  if (high - low < 1e-9) [low, high] = [low - Math.max(0.05, Math.abs(low) * 0.1), high + Math.max(0.05, Math.abs(high) * 0.1)];
  const room = 0.06 * (high - low);
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

export function ticks(low, high, about) {
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough * 0.99);
  const found = [];
  for (let mark = Math.ceil(low / size - 1e-9) * size; mark <= high + 1e-9 * size; mark += size) found.push(Math.abs(mark) < 1e-9 * size ? 0 : Number(mark.toPrecision(10)));
  return found;
}

function short(x) {
  const size = Math.abs(x);
  if (size >= 1e6) return `${x / 1e6}M`;
  if (size >= 1e4) return `${x / 1e3}k`;
  return size !== 0 && size < 1e-3 ? Number(x.toPrecision(3)).toExponential() : String(x);
}

function band(points, x, y) {
  const above = points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.high).toFixed(1)}`);
  const below = [...points].reverse().map((p) => `L${x(p.x).toFixed(1)} ${y(p.low).toFixed(1)}`);
  return `${above.join("")}${below.join("")}Z`;
}

function latest(lines, percentage) {
  if (lines.length !== 1) return null;
  const last = lines[0].points.at(-1);
  return el("span", { class: "now" }, percentage ? percent(last.y) : number(last.y));
}

function hover(drawing, lines, { x, begin, end, height, percentage, along }) {
  const cross = svg("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  drawing.append(cross);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const step = ((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT)) * (end - begin) + begin;
    const near = lines.map((one) => [one, one.points.reduce((a, b) => (Math.abs(b.x - step) < Math.abs(a.x - step) ? b : a))]);
    const at = near.reduce((a, b) => (Math.abs(b[1].x - step) < Math.abs(a[1].x - step) ? b : a))[1].x;
    cross.setAttribute("x1", x(at));
    cross.setAttribute("x2", x(at));
    cross.setAttribute("visibility", "visible");
    const write = (value) => (percentage ? percent(value) : number(value));
    showTip(event, el("b", {}, along === "steps" ? `step ${number(at)}` : `${number(at)} ${along}`), ...near.filter(([, p]) => p.x === at).map(([one, p]) =>
      el("div", { class: "row" }, el("i", { class: "swatch", style: { background: one.colour } }), el("span", {}, one.label),
        el("b", {}, write(p.y)), p.n > 1 ? el("small", {}, `± ${write(p.half)}, ${p.n} runs`) : null)));
  });
  drawing.addEventListener("pointerleave", () => {
    cross.setAttribute("visibility", "hidden");
    hideTip();
  });
}

export function spark(values, colour = "var(--accent)") {
  const drawing = svg("svg", { class: "spark", viewBox: "0 0 90 24", "aria-hidden": "true" });
  if (values.length < 2) return drawing;
  const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  const d = values.map((v, i) => `${i ? "L" : "M"}${((88 * i) / (values.length - 1) + 1).toFixed(1)} ${(21 - (18 * (v - low)) / span).toFixed(1)}`).join("");
  drawing.append(svg("path", { class: "line", d, stroke: colour }));
  return drawing;
}

/** Where the time goes: one bar, a part for each room. */
export function rooms(seconds) {
  const names = Object.keys(seconds).filter((name) => name !== "total");
  const total = seconds.total || names.reduce((sum, name) => sum + seconds[name], 0);
  const known = names.reduce((sum, name) => sum + seconds[name], 0);
  const parts = [...names.map((name) => [name, seconds[name]]), ["other", Math.max(0, total - known)]].filter(([, s]) => s / total > 0.002);
  const bar = el("div", { class: "rooms" }, parts.map(([name, s], i) =>
    el("span", { class: "room", style: { width: `${(100 * s) / total}%`, background: `var(--c${i % COLOURS})` }, title: `${name}: ${s.toFixed(3)} s` })));
  const legend = el("div", { class: "legend" }, parts.map(([name, s], i) =>
    el("span", {}, el("i", { class: "swatch", style: { background: `var(--c${i % COLOURS})` } }), `${name} `, el("b", {}, `${((100 * s) / total).toFixed(s / total < 0.1 ? 1 : 0)}%`))));
  return el("div", {}, bar, legend);
}
