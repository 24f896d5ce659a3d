"""`burnish eval-reward REWARD`: whether a reward model, or any reward by name, can be trusted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.core.step import Settings
    from burnish.evals.evaluate import Interval
    from burnish.evals.reward_eval import BestOfN, Pair, RewardScorer
    from burnish.score.judges.kept import Said
    from burnish.score.maths.calibration import Bin
    from burnish.tasks.source import Source

BENCHES = ("", "rewardbench", "rm-bench", "processbench")
HELD_OUT = 200  # rows
ALL = 1 << 30


@dataclass(frozen=True)
class EvalRewardOptions:
    """burnish eval-reward REWARD --task PAIRS: measure a reward model on held-out pairs, with 95% intervals.

    REWARD is the directory of a reward model, or any reward by name (burnish rewards): "ensemble(runs/a/model,
    runs/b/model)". Shown are: accuracy (a tie is one half) and by slices, beside preferring the longer reply;
    calibration; consistency under contrast instructions; with --policy the best-of-n curve: what the reward's favourite
    of n replies is worth by the reward itself and by the task's verifier or --gold, and where the two part."""

    task: str = "sort"
    """A built-in task (burnish tasks) or a dataset with pairs (columns chosen and rejected)."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,chosen=good."""
    tasks: Annotated[int | None, Option(at_least=2)] = None
    """Number of rows; by default 200 held-out ones, and all rows of a benchmark."""
    bench: Annotated[str, Option(choices=BENCHES)] = ""
    """Measure all rows of --task by the rules of rewardbench, rm-bench or processbench (for process reward models and
    judges). A built-in task gives rows of the same form."""
    verdicts: str | None = None
    """Write what judges said about pairs that they ordered rightly into this .jsonl file, as rows for sft."""
    slice: str | None = None
    """Columns by whose values accuracy is shown, with commas."""
    policy: str | None = None
    """A model whose replies to the held-out prompts are sampled, for the best-of-n curve."""
    n: Annotated[int, Option(at_least=2)] = 16
    """Replies sampled for each prompt."""
    prompts: Annotated[int, Option(at_least=1)] = 64
    """Held-out prompts of the best-of-n curve."""
    gold: str | None = None
    """The gold standard of the best-of-n curve: a reward model or a reward by name; by default the task's verifier."""
    temperature: Annotated[float, Option(above=0)] = 1.0
    """Temperature of the sampled replies."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 64
    """The longest sampled reply, in tokens."""
    max_length: Annotated[int | None, Option(at_least=1)] = None
    """The longest row, in tokens; by default the model's context. Longer replies are cut."""
    svg: str | None = None
    """Write the curves (reliability, and best-of-n) as SVG files that begin with this path."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(EvalRewardOptions, "eval-reward", words, plain=1)
    if asked is None:
        return 0
    rewards, options = asked
    if not rewards:
        raise ValueError("say which reward to measure: burnish eval-reward runs/DIR/model --task pairs.jsonl")
    console = stdout_console()
    numbers, parts = _measured(rewards[0], options)
    if options.json:
        print(json.dumps({"reward": rewards[0], "task": options.task, **numbers}, indent=1))
        return 0
    rows = f"{numbers['rows']} rows" if options.bench else f"{numbers['pairs']} held-out pairs"
    console.print(Text.assemble((rewards[0], "bold cyan"), f" on {options.task}: {rows}"))
    for part in parts:
        console.print(part)
    return 0


def _measured(name: str, options: EvalRewardOptions) -> tuple[dict[str, Any], list[Table | Text]]:
    from burnish.commands.gold import load_scorer, require_gold
    from burnish.core.step import Settings
    from burnish.evals import reward_eval
    from burnish.score.judges.kept import check_keep, listening
    from burnish.score.maths.calibration import calibration_error
    from burnish.tasks.resolve import resolve_task

    check_keep(options.verdicts or "")

    source = resolve_task(options.task, columns=options.columns)
    if options.bench:
        return _bench(name, source, options)
    if options.policy and options.gold is None:
        require_gold(source)
    settings = Settings(max_new_tokens=options.max_new_tokens, max_length=options.max_length)
    scorer = load_scorer(name, source, settings, options.device)
    tasks = options.tasks or HELD_OUT
    with listening() as said:
        pairs = reward_eval.scored_pairs(scorer, source, tasks)
    curve = reward_eval.reliability([pair.margin for pair in pairs])
    contrast = reward_eval.consistency(scorer, source, tasks)
    columns = [column.strip() for column in (options.slice or "").split(",") if column.strip()]
    by_slice = reward_eval.slices(pairs, columns)
    numbers: dict[str, Any] = {
        "pairs": len(pairs),
        "accuracy": asdict(reward_eval.accuracy(pairs)),
        "longer_is_better": asdict(reward_eval.length_baseline(pairs)),
        "slices": {key: {"pairs": len(some), **asdict(reward_eval.accuracy(some))} for key, some in by_slice.items()},
        "ece": calibration_error(curve),
        "reliability": [asdict(one) for one in curve],
        "consistency": contrast and asdict(contrast),
    }
    parts: list[Table | Text] = [_accuracies(pairs, by_slice), _calibration(curve, numbers["ece"])]
    alike = Text("no two held-out tasks have different replies: instructions were not contrasted", style="dim")
    parts.append(_contrast(numbers["consistency"]) if contrast else alike)
    best = _best_of_n(scorer, source, settings, options) if options.policy else []
    if best:
        numbers["best_of_n"] = [asdict(one) for one in best]
        parts += [_curve_table(best), *_drawn(best)]
    if options.verdicts:
        numbers["verdicts"] = _keep_verdicts(options.verdicts, reward_eval.right_verdicts(said, pairs))
        parts.append(Text(f"{numbers['verdicts']} of {len(said)} verdicts: {options.verdicts}", style="dim"))
    if options.svg:
        numbers["files"] = _write_charts(options.svg, curve, best)
        parts.append(Text(f"written: {', '.join(numbers['files'])}", style="dim"))
    return numbers, parts


def _bench(name: str, source: Source, options: EvalRewardOptions) -> tuple[dict[str, Any], list[Table | Text]]:
    """The rows of a benchmark, by its own rules."""
    from burnish.commands import reward_benches
    from burnish.commands.gold import load_scorer
    from burnish.core.step import Settings

    if options.policy or options.verdicts:
        raise ValueError("--bench measures rows by the rules of a benchmark alone; leave out --policy and --verdicts")
    settings = Settings(max_length=options.max_length, max_new_tokens=options.max_new_tokens, on_long="truncate")
    size = source.size("heldout")
    tasks = options.tasks or (HELD_OUT if size is None else ALL)
    if options.bench == "processbench":
        return reward_benches.of_steps(name, source, tasks, settings, options.device)
    scorer = load_scorer(name, source, settings, options.device)
    return reward_benches.of_pairs(options.bench, scorer, source, tasks)


def _keep_verdicts(path: str, said: list[Said]) -> int:
    """Write the rows; how many there are."""
    rows = list(dict.fromkeys(json.dumps(one.row(), ensure_ascii=False) for one in said))
    Path(path).write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return len(rows)


# --------------------------------------------------------------------------------------------------------- best of n


def _best_of_n(scorer: RewardScorer, source: Source, settings: Settings, options: EvalRewardOptions) -> list[BestOfN]:
    from burnish.commands.gold import gold_standard, sampled
    from burnish.commands.loaded import load_policy
    from burnish.evals import reward_eval

    assert options.policy is not None
    models = load_policy(options.policy, settings, options.device)
    chat = models["policy"].chat
    gold = gold_standard(options.gold, source, settings, options.device)
    groups = sampled(models, source, settings, options.prompts, options.n, options.temperature)
    proxies, golds = reward_eval.sampled_scores(scorer, lambda groups: gold(groups, chat), groups, chat)
    return reward_eval.best_of_curve(proxies, golds)


# ------------------------------------------------------------------------------------------------------------- shown


def _accuracies(pairs: list[Pair], by_slice: dict[str, list[Pair]]) -> Table:
    from burnish.evals.reward_eval import accuracy, length_baseline

    table = _table("pairs in the right order", "pairs", "mean", "95%")
    rows = [("all", pairs, accuracy(pairs)), ("if the longer reply were preferred", pairs, length_baseline(pairs))]
    rows += [(key, some, accuracy(some)) for key, some in by_slice.items()]
    for label, some, found in rows:
        table.add_row(label, str(len(some)), f"[bold]{found.mean:.1%}[/]", _between(found, "{:.1%}"))
    return table


def _calibration(curve: list[Bin], error: float) -> Table:
    table = _table(f"calibration: ECE {error:.3f}", "pairs", "confidence", "right")
    for one in curve:
        table.add_row("", str(one.count), f"{one.confidence:.1%}", f"[bold]{one.accuracy:.1%}[/]")
    return table


def _contrast(found: dict[str, Any]) -> Table:
    table = _table("contrast instructions", "pairs", "mean", "95%")
    labels = {"response": "own reply over a similar task's", "instruction": "own task over a similar one"}
    for key, label in labels.items():
        one = found[key]
        between = f"{one['low']:.1%} to {one['high']:.1%}"
        table.add_row(label, str(found["pairs"]), f"[bold]{one['mean']:.1%}[/]", f"[dim]{between}[/]")
    return table


def _curve_table(curve: list[BestOfN]) -> Table:
    table = _table("best of n by the reward", "KL", "reward", "95%", "gold", "95%")
    for one in curve:
        cells = [(f"[bold]{x.mean:.3f}[/]", _between(x, "{:.3f}")) for x in (one.proxy, one.gold)]
        table.add_row(str(one.n), f"{one.kl:.2f}", *cells[0], *cells[1])
    best = max(curve, key=lambda one: one.gold.mean)
    table.caption = f"the gold score is highest at n = {best.n}"
    table.caption_justify = "left"
    return table


def _drawn(curve: list[BestOfN]) -> list[Text]:
    """The gold score over the KL, in braille."""
    from burnish.report.plot import plot

    values = [one.gold.mean for one in curve]
    low, high = min(values), max(values)
    if high <= low:
        return []
    points = [(one.kl, one.gold.mean) for one in curve]
    lines = plot(points, end=max(1e-9, curve[-1].kl), width=48, height=6, low=low, high=high)
    return [Text(f"gold over KL: {low:.3f} to {high:.3f}", style="dim"), Text("\n".join(lines))]


def _write_charts(path: str, curve: list[Bin], best: list[BestOfN]) -> list[str]:
    """The curves as SVG files; their names."""
    from burnish.report.charts import Line, line_chart, percent, standalone

    bins = Line("the reward", [(one.confidence, one.accuracy) for one in curve])
    ideal = Line("calibrated", [(0.5, 0.5), (1.0, 1.0)])
    chart = line_chart(
        [bins, ideal],
        title="Reliability",
        x="confidence",
        y="right",
        x_form=percent,
        y_form=percent,
        y_range=(0.0, 1.0),
    )
    files = {f"{path}-reliability.svg": chart}
    if best:
        lines = []
        for label, key in (("reward", "proxy"), ("gold", "gold")):
            rows: list[tuple[float, Interval]] = [(one.kl, getattr(one, key)) for one in best]
            scale = max((x.high for _, x in rows), default=1.0) - min((x.low for _, x in rows), default=0.0) or 1.0
            start = rows[0][1].mean
            lines.append(
                Line(
                    label,
                    [(kl, (x.mean - start) / scale) for kl, x in rows],
                    [(kl, (x.low - start) / scale, (x.high - start) / scale) for kl, x in rows],
                )
            )
        title = "Best of n: gain over n = 1, as a share of each one's range"
        files[f"{path}-best-of-n.svg"] = line_chart(lines, title=title, x="KL", y="gain")
    for name, svg in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(standalone(svg))
    return list(files)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def _between(interval: Interval, form: str) -> str:
    return f"[dim]{form.format(interval.low)} to {form.format(interval.high)}[/]"
