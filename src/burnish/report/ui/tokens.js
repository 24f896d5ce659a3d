// A trace as its tokens, coloured by one of the numbers they carry; turns are marked by their author.

import { el, hideTip, number, percent, showTip } from "./dom.js";

const AUTHORS = { task: 0, policy: 1, demo: 2, env: 3, guide: 4, hint: 4, past: 5 };

const CONTROL = /^<\|[^|]*\|>$|^<\/?s>$/; // what the chat template writes between messages

const isClaim = (name) => /^(claim|member):/.test(name); // runs of version 0.1 and before call a claim a member
const termOf = (name) => name.slice(name.indexOf(":") + 1);

/** The ways this trace can be coloured: [name, label]. */
export function modesOf(trace) {
  const streams = Object.keys(trace.tokens.streams);
  const found = [["author", "author"]];
  if (streams.includes("adv")) found.push(["adv", "advantage"]);
  if (trace.tokens.logp.some((x) => x !== null)) found.push(["probability", "probability"], ["surprise", "surprise"]);
  if (streams.includes("entropy")) found.push(["entropy", "entropy"]);
  return [...found, ...streams.filter((name) => !["adv", "entropy", "token"].includes(name)).map((name) => [name, isClaim(name) ? `learnt by ${termOf(name)}` : name])];
}

function writtenBy(turn) {
  const runs = turn.versions || [];
  return runs.length < 2 ? runs.map(([version]) => `, weights ${version}`).join("") : `, weights ${runs.map(([version, count]) => `${version} (${count})`).join(", ")}`;
}

export function tokensView(trace, mode) {
  const { ids, pieces, logp } = trace.tokens, values = valuesOf(trace, mode);
  const largest = Math.max(1e-9, ...values.filter((x) => x !== null).map(Math.abs));
  const box = el("div", { class: "tokens", tabindex: "0" });
  const states = statesOf(trace);
  let start = 0;
  trace.turns.forEach((turn, index) => {
    const said = el("div", { class: `turn author${hue(turn.author)}` }, el("div", { class: "who" }, el("b", {}, turn.author), states[index] ? el("span", { class: "state" }, states[index]) : "", el("span", { class: "dim" }, ` ${turn.tokens} tokens${writtenBy(turn)}${turnScores(trace, index)}`), called(trace, index)));
    const text = el("div", { class: "text" });
    for (let i = start; i < start + turn.tokens; i++) {
      const piece = pieces[i] || `⟨${ids[i]}⟩`;
      const token = el("span", { class: CONTROL.test(piece) ? "token control" : "token", "data-i": String(i) }, visible(piece));
      if (mode !== "author" && values[i] !== null) paint(token, mode, values[i], largest);
      else if (mode !== "author") token.classList.add("none");
      text.append(token);
      if (piece.includes("\n")) text.append(document.createElement("br"));
    }
    said.append(text);
    box.append(said);
    start += turn.tokens;
  });
  box.addEventListener("pointermove", (event) => {
    const i = event.target.dataset?.i;
    if (i === undefined) return hideTip();
    showTip(event, ...about(trace, Number(i)));
  });
  box.addEventListener("pointerleave", hideTip);
  return el("div", {}, legend(mode, largest), box);
}

function valuesOf({ tokens }, mode) {
  if (mode === "probability") return tokens.logp.map((x) => (x === null ? null : Math.exp(x)));
  if (mode === "surprise") return tokens.logp.map((x) => (x === null ? null : -x));
  const values = tokens.streams[mode] || tokens.ids.map(() => null);
  const claims = Object.entries(tokens.streams).filter(([name]) => isClaim(name)).map(([, claimed]) => claimed);
  if (mode !== "adv" || !claims.length) return values;
  return values.map((x, i) => (claims.some((claimed) => claimed[i]) ? x : null)); // an advantage that no term reads moves nothing
}

/** Signed numbers go from red over nothing to green; sizes from nothing to the accent; improbable tokens stand out. */
function paint(token, mode, value, largest) {
  if (mode === "probability") token.style.background = `color-mix(in srgb, var(--bad) ${(70 * (1 - value)).toFixed(0)}%, transparent)`;
  else if (mode === "surprise" || mode === "entropy" || mode === "old" || mode === "ref") token.style.background = `color-mix(in srgb, var(--accent) ${(75 * Math.min(1, Math.abs(value) / Math.max(largest, 0.5))).toFixed(0)}%, transparent)`;
  else token.style.background = `color-mix(in srgb, var(${value < 0 ? "--bad" : "--good"}) ${((65 * Math.abs(value)) / largest).toFixed(0)}%, transparent)`;
}

function legend(mode, largest) {
  const words = {
    author: "Each turn has the colour of its author.",
    adv: `Green earned credit, red lost it (up to ${number(largest)}); grey tokens are not learnt from.`,
    probability: "Red tokens were improbable when they were sampled.",
    surprise: `The stronger the colour, the more surprising: minus the log-prob when sampled (up to ${number(largest)} nats).`,
    old: `Log-probs of the policy that sampled: the stronger, the less probable (down to -${number(largest)}).`,
    ref: `Log-probs of the reference: the stronger, the less probable (down to -${number(largest)}).`,
    entropy: `The stronger the colour, the less sure the policy was when it learnt from this (up to ${number(largest)} nats).`,
  };
  if (isClaim(mode)) words[mode] = `Green tokens are those that the term ${termOf(mode)} learns from.`;
  return el("p", { class: "dim key" }, words[mode] || `${mode}: green above zero, red below (up to ${number(largest)}); grey tokens have no value.`);
}

function about(trace, i) {
  const { ids, pieces, logp, streams } = trace.tokens;
  const row = (name, value) => el("div", { class: "row" }, el("span", {}, name), el("b", {}, value));
  const found = [el("b", {}, JSON.stringify(pieces[i])), row("token", `${ids[i]}, the ${i + 1}.`)];
  if (logp[i] !== null) found.push(row("probability", percent(Math.exp(logp[i]))), row("log-prob", number(logp[i])));
  for (const [name, values] of Object.entries(streams)) if (values[i] !== null) found.push(row(name === "adv" ? "advantage" : name, number(values[i])));
  return found;
}

/** In an episode of several replies, a label for each reply: its number, its seat, and the state in which it was made. */
function statesOf(trace) {
  const replies = trace.turns.map((turn, i) => i).filter((i) => !["task", "env"].includes(trace.turns[i].author));
  const { seat, keys } = trace.note || {};
  if (replies.length < 2 && !seat && !keys) return {};
  const label = (k) => [`reply ${k + 1}`, seat ? `as ${seat}` : "", keys?.[k] ? `in state ${keys[k]}` : ""].filter(Boolean).join(" ");
  return Object.fromEntries(replies.map((at, k) => [at, label(k)]));
}

/** The tool calls of a reply, and that the environment's turn after them is what the tools answered. */
function called(trace, index) {
  const calls = trace.calls?.[index], answers = trace.turns[index].author === "env" && trace.calls?.[index - 1];
  if (answers) return el("span", { class: "call" }, answers.length === 1 ? "the tool's answer" : `answers of ${answers.length} calls`);
  return (calls || []).map((call) => el("span", { class: "call" }, `calls ${call}`));
}

function turnScores(trace, index) {
  return Object.entries(trace.turn_scores || {}).map(([name, values]) => (values[index] === null || values[index] === undefined ? "" : `, ${name} ${number(values[index])}`)).join("");
}

const hue = (author) => (author in AUTHORS ? AUTHORS[author] : 6);
const visible = (piece) => piece.replaceAll("\n", "⏎");
