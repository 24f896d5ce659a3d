// The group as a tree of replies: where its traces go the same way, and where they part.

import { el, number, store, stored } from "./dom.js";

const replies = (row) => row.turns.filter((turn) => !["task", "env"].includes(turn.author)).length;

/** Whether a trace or one of its group has more than one reply: only those have a tree. */
export const severalReplies = (trace) => trace.siblings.length > 1 && trace.siblings.some((row) => replies(row) > 1);

/** One line for each reply, those of the open trace marked; a click opens the first trace that goes through it. */
export function treeView(nodes, open, choose) {
  if (!nodes.length) return "";
  const parted = nodes.filter((node, i) => nodes.slice(i + 1).filter((other, k, rest) => other.depth === node.depth + 1 && !rest.slice(0, k).some((one) => one.depth <= node.depth)).length > 1).length;
  const roots = nodes.filter((node) => node.depth === 0).length;
  const line = (node) => el("button", { class: `node ${node.traces.includes(open) ? "on" : ""}`, title: `reply ${node.depth + 1} of ${traces(node.traces)}`, onclick: () => choose(node.traces.includes(open) ? open : node.traces[0]) },
    el("span", { class: "score" }, number(node.reward)), el("span", { class: "many dim" }, node.traces.length > 1 ? `×${node.traces.length}` : ""),
    el("span", { class: "said", style: { paddingLeft: `${24 * node.depth}px` } }, flat(node.text) || "(nothing)"), node.answer ? el("span", { class: "answered" }, `→ ${flat(node.answer)}`) : "");
  const box = el("details", { class: "tree", open: stored("tree", "open") === "open", ontoggle: () => store("tree", box.open ? "open" : "shut") },
    el("summary", {}, `Tree of the group: ${roots} first ${roots === 1 ? "reply" : "replies"}; traces part after ${parted} of ${nodes.length} replies`), el("div", { class: "nodes" }, nodes.map(line)));
  requestAnimationFrame(() => { const on = box.querySelector(".node.on"); if (on) on.parentNode.scrollTop = on.offsetTop - on.parentNode.offsetTop - 60; });
  return box;
}

const traces = (ids) => (ids.length === 1 ? `trace #${ids[0]}` : `${ids.length} traces: ${ids.slice(0, 8).map((id) => `#${id}`).join(", ")}${ids.length > 8 ? " …" : ""}`);
const flat = (text) => text.replaceAll("\n", " ⏎ ");
