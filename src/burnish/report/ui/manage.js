// The run manager: the form of a new run, the queue, notes and tags, archive, bin and undo.

import { age, ask, command, el, say } from "./dom.js";

let known = null; // the answer of /api/queue

export const readOnly = () => known?.read_only ?? true;

/** The bar above the list: a new run, the queue and the bin. */
export function manager(again) {
  const box = el("section", { class: "queue", "aria-label": "Queue" });
  const fresh = el("button", { class: "primary", hidden: true, title: "Start or queue a run (n)", onclick: () => form({ method: "grpo", options: {} }, again) }, "+ New run");
  let drawn = "";
  async function refresh() {
    known = await ask("queue");
    fresh.hidden = known.read_only;
    const stamp = JSON.stringify(known.jobs) + known.deleted;
    if (stamp === drawn) return;
    drawn = stamp;
    const jobs = known.jobs.filter((job) => ["queued", "running", "failed"].includes(job.state)).slice(-8);
    box.replaceChildren(...jobs.map((job) => el("div", { class: "job" },
      el("span", { class: `pill ${job.state}` }, job.state), el("b", { title: job.words }, job.run), el("span", { class: "dim" }, `${job.device}, ${age(job.asked)} ago`), el("span", { class: "grow" }),
      job.state === "queued" && !known.read_only ? el("button", { onclick: () => act({ action: "cancel", job: job.id }, again) }, "Cancel") : null,
      job.state === "failed" ? el("button", { onclick: () => showLog(job.run) }, "Log") : null)),
    ...(known.deleted.length && !known.read_only ? [el("details", {}, el("summary", {}, `${known.deleted.length} deleted`), known.deleted.map((name) =>
      el("div", { class: "job" }, el("b", {}, name), el("span", { class: "grow" }), el("button", { onclick: () => act({ action: "restore", run: name }, again) }, "Restore"))))] : []));
  }
  return { box, fresh, refresh };
}

/** Send an order and say what came of it; with `undo`, a button that takes it back. */
export async function act(words, again, undo = null) {
  try {
    const done = await command(words);
    if (undo) say(undo.text, "info", { label: "Undo", onclick: () => act(undo.order, again) });
    await again();
    return done;
  } catch (error) {
    say(error.message, "error");
    return null;
  }
}

/** The menu of a run: what can be done with it in its state. */
export function actions(run, again) {
  if (readOnly()) return [];
  const button = (label, title, onclick) => el("button", { class: "mini", title, "aria-label": `${title}: ${run.name}`, onclick: (event) => { event.stopPropagation(); onclick(); } }, label);
  const running = run.state === "running";
  return [
    running ? button("■", "Stop after this step", () => act({ action: "stop", run: run.name }, again)) : null,
    !running && run.state !== "unreadable" && run.step < run.steps ? button("▶", "Resume from the last checkpoint", () => act({ action: "proceed", run: run.name }, again)) : null,
    button("copy", "New run with these options", () => copy(run, again)),
    button("✎", "Note and tags", () => annotate(run, again)),
    running ? null : button(run.archived ? "⬆" : "⬇", run.archived ? "Take out of the archive" : "Archive", () => act({ action: run.archived ? "unarchive" : "archive", run: run.name }, again,
      { text: `${run.name} ${run.archived ? "is back" : "is archived"}`, order: { action: run.archived ? "archive" : "unarchive", run: run.name } })),
    running ? null : button("✕", "Delete", () => act({ action: "delete", run: run.name }, again, { text: `${run.name} is deleted`, order: { action: "restore", run: run.name } })),
  ];
}

async function copy(run, again) {
  const { config } = await ask("metrics", { run: run.name });
  const options = Object.fromEntries(Object.entries(config).filter(([name, value]) => !["method", "out", "device", "run_name", "ranks", "tag"].includes(name) && value !== null));
  return form({ method: config.method, options, name: `${run.name}-copy`.replaceAll("/", "-") }, again);
}

function dialog(title, ...children) {
  const box = el("dialog", { class: "form", "aria-label": title }, el("h2", {}, title), ...children);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

function annotate(run, again) {
  const note = el("textarea", { rows: 5, "aria-label": "Note" }, run.note || "");
  const tags = el("input", { value: run.own_tags.join(", "), "aria-label": "Tags", placeholder: "tags, with commas" });
  const box = dialog(`Note on ${run.name}`, el("label", {}, "Note", note), el("label", {}, "Tags", tags), el("div", { class: "bar" }, el("span", { class: "grow" }),
    el("button", { onclick: () => box.close() }, "Cancel"), el("button", { class: "primary", onclick: async () => {
      box.close();
      await act({ action: "note", run: run.name, note: note.value }, again);
      await act({ action: "tags", run: run.name, tags: tags.value }, again);
    } }, "Save")));
}

export async function showLog(run) {
  const text = el("pre", { class: "log" });
  const box = dialog(`Log of ${run}`, text, el("div", { class: "bar" }, el("span", { class: "grow" }), el("button", { onclick: () => box.close() }, "Close")));
  const read = async () => {
    const low = text.scrollTop + text.clientHeight >= text.scrollHeight - 30;
    text.textContent = (await ask("log", { run })).text || "Nothing: it was started in a terminal, or has printed nothing yet.";
    if (low) text.scrollTop = text.scrollHeight;
  };
  await read();
  const clock = setInterval(read, 1500);
  box.addEventListener("close", () => clearInterval(clock));
}

/** The form of a run, from the same schema as the command line. Only what differs from its default is sent. */
export async function form({ method, options, name = "" }, again) {
  const fields = new Map(), groups = el("div", { class: "groups" }), wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const chosen = el("select", { "aria-label": "Method", onchange: () => draw(chosen.value) }, known.methods.map((one) => el("option", { value: one, selected: one === method }, one)));
  const title = el("input", { value: name, placeholder: "name (by default method-task)", "aria-label": "Name" });
  const device = el("input", { value: "auto", "aria-label": "Device", title: "auto, cpu, cuda or cuda:1; the queue starts one run on each" });
  const box = dialog("New run", el("div", { class: "row" }, el("label", {}, "Method", chosen), el("label", {}, "Name", title), el("label", {}, "Device", device)), groups, wrong,
    el("div", { class: "bar" }, el("span", { class: "grow" }), el("button", { onclick: () => box.close() }, "Cancel"), el("button", { class: "primary", onclick: send }, "Start")));
  async function draw(which) {
    const schema = await ask("schema", { method: which });
    for (const [field, input] of fields) if (valueOf(input) !== "") options[field] = valueOf(input);
    fields.clear();
    groups.replaceChildren(el("p", { class: "dim" }, schema.summary), ...schema.groups.map((group, i) => el("details", { open: i < 2 }, el("summary", {}, group.title), el("div", { class: "fields" }, group.fields.map(field)))));
  }
  function field(one) {
    const value = options[one.name] ?? "", placeholder = one.default === "-" ? "" : one.default;
    const given = String(value) === one.default ? "" : String(value);
    const input = one.choices.length || one.kind === "on/off"
      ? el("select", {}, ["", ...(one.kind === "on/off" ? ["true", "false"] : one.choices)].map((choice) => el("option", { value: choice, selected: choice === given }, choice || `default (${one.default})`)))
      : el("input", { value: given, placeholder });
    fields.set(one.name, input);
    return el("label", { title: one.help }, el("span", {}, one.name.replaceAll("_", " "), one.range ? el("small", {}, ` ${one.range}`) : null), input);
  }
  async function send() {
    const given = Object.fromEntries([...fields].map(([one, input]) => [one, valueOf(input)]).filter(([, value]) => value !== ""));
    try {
      const { job, refused } = await command({ action: "start", method: chosen.value, device: device.value, options: JSON.stringify({ ...given, ...(title.value ? { name: title.value } : {}) }) });
      if (refused) throw new Error(refused);
      box.close();
      say(`${job.run} is ${job.state}`);
      await again();
    } catch (error) {
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
  }
  await draw(method);
}

const valueOf = (input) => input.value.trim();
