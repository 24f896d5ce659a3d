// Small helpers: elements made of text (never of HTML), numbers as people write them, requests, one tooltip.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** The names of runs, as they stand in the page's address. */
export const address = (names) => names.map(encodeURIComponent).join("+");

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.flat(9));
  return node;
}

export function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  if (Number.isInteger(x)) return x.toLocaleString("en");
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return x.toExponential(2);
  return size >= 100 ? x.toFixed(1) : size >= 1 ? x.toFixed(2) : x.toFixed(3);
}

export const percent = (x) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(1)}%`);

export function age(then) {
  const s = Math.max(0, Date.now() / 1000 - then);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (s >= size) return `${Math.round(s / size)} ${unit}`;
  return `${Math.round(s)} s`;
}

export function duration(s) {
  const h = Math.floor(s / 3600), m = Math.floor((s % 3600) / 60);
  return h ? `${h} h ${m} min` : m ? `${m} min ${Math.round(s % 60)} s` : `${s.toFixed(s < 10 ? 1 : 0)} s`;
}

export async function ask(what, query = {}) {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const answer = await fetch(`/api/${what}?${words}`, { credentials: "same-origin" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

export const order = (run, action) => command({ run, action });

/** Send an order; all values are strings. */
export async function command(words) {
  const secret = document.querySelector("meta[name=burnish-secret]").content;
  const answer = await fetch("/api/order", {
    method: "POST", credentials: "same-origin",
    headers: { "Content-Type": "application/json", "X-Burnish-Secret": secret }, body: JSON.stringify(words),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

const tip = () => document.getElementById("tip");

export function showTip(event, ...children) {
  const box = tip();
  box.replaceChildren(...children);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - width - 8);
  const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18;
  box.style.left = `${Math.max(8, x)}px`;
  box.style.top = `${Math.max(8, y)}px`;
}

export function hideTip() {
  tip().hidden = true;
}

export function say(text, level = "info", button = null) {
  const note = el("div", { class: `toast ${level}`, role: "status" }, text, button ? el("button", { onclick: () => { note.remove(); button.onclick(); } }, button.label) : null);
  document.querySelectorAll(".toast").forEach((old) => old.remove());
  document.body.append(note);
  setTimeout(() => note.remove(), button ? 10000 : 4000);
}

/** Let the browser save a text as a file. */
export function save(name, text, kind = "text/csv") {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function stored(name, otherwise) {
  try {
    return localStorage.getItem(`burnish.${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function store(name, value) {
  try {
    localStorage.setItem(`burnish.${name}`, value);
  } catch {
    /* a browser that keeps nothing */
  }
}
