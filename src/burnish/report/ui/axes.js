// What runs along the x axis of curves, and the metrics of runs as a table.

const summed = (values) => {
  let total = 0;
  return values.map((value) => (total += value || 0));
};

/** name -> the x of each step of a run */
export const AXES = {
  steps: (run) => run.metrics.steps,
  tokens: (run) => summed(run.metrics.series.sampled_tokens || run.metrics.series.tokens || run.metrics.steps.map(() => 0)),
  samples: (run) => summed(run.metrics.steps.map(() => (run.config?.prompts ?? 1) * (run.config?.n ?? 1))),
  seconds: (run) => summed(run.metrics.steps.map((step) => run.timings.series.total?.[run.timings.steps.indexOf(step)] ?? 0)),
};

/** The x of each step; steps, where a run did not record what was asked for. */
export function along(run, name) {
  const found = (AXES[name] || AXES.steps)(run);
  return found.at(-1) ? found : AXES.steps(run);
}

/** A table with a line for each step of each run. */
export function csv(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics.series)))];
  const cell = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const lines = runs.flatMap((run) => run.metrics.steps.map((step, i) => [run.name, step, ...names.map((name) => run.metrics.series[name]?.[i])].map(cell).join(",")));
  return [["run", "step", ...names].map(cell).join(","), ...lines].join("\n") + "\n";
}
