"""`burnish overoptimise REWARD`: RL on a reward, and what the policy is worth by a gold standard on the way."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from rich.table import Table

    from burnish.commands.gold import Gold
    from burnish.core.step import Settings
    from burnish.evals.overoptimised import Point
    from burnish.evals.reward_eval import RewardScorer
    from burnish.tasks.source import Source


@dataclass(frozen=True)
class OveroptimiseOptions:
    """burnish overoptimise REWARD --task TASK: train a policy by RL on a reward, and measure how far that helps.

    REWARD is the directory of a reward model, or any reward by name. The policy is trained on it, and at --points
    checkpoints, the start among them, its replies to held-out prompts are scored by the reward and by the gold standard
    (the task's verifier, or --gold), over the KL from the start (arXiv 2210.10760). The best-of-n curve of the same
    reward is that of `burnish eval-reward --policy`."""

    task: str = "sort"
    """A built-in task (burnish tasks), or a dataset with prompts."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text."""
    method: str = "grpo"
    """The method, with flags of burnish train in brackets: "grpo(n=8, beta=0, lr=1e-4)"."""
    model: str = "tiny"
    """The policy at the start: a model's name or directory."""
    steps: Annotated[int, Option(at_least=1)] = 60
    """Steps of the training."""
    points: Annotated[int, Option(at_least=2)] = 7
    """How many policies are measured, the start and the last among them."""
    gold: str | None = None
    """The gold standard: a reward model or a reward by name; by default the task's verifier."""
    tasks: Annotated[int, Option(at_least=2)] = 64
    """Number of held-out rows."""
    n: Annotated[int, Option(at_least=1)] = 4
    """Replies sampled for each of them, at temperature 1."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 64
    """The longest reply, in tokens."""
    out: str = "runs/overoptimised"
    """The folder of the run; the same command continues an interrupted one, and measures a finished one again."""
    svg: str | None = None
    """Write the curves as this SVG file."""
    seed: int = 0
    """The seed of the training."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(OveroptimiseOptions, "overoptimise", words, plain=1)
    if asked is None:
        return 0
    rewards, options = asked
    if not rewards:
        raise ValueError("say which reward is optimised: burnish overoptimise runs/DIR/model --task sort")
    if options.svg and Path(options.svg).suffix != ".svg":
        raise ValueError(f"--svg {options.svg} must end in .svg")
    from burnish.commands.gold import require_gold
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, columns=options.columns)
    if options.gold is None:
        require_gold(source)
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        code = _train(rewards[0], options)
        if code:
            return code
    points = list(_measured(rewards[0], source, options))
    _show(rewards[0], points, options)
    return 0


def _every(options: OveroptimiseOptions) -> int:
    return max(1, options.steps // (options.points - 1))


def _train(reward: str, options: OveroptimiseOptions) -> int:
    """Run or continue the training; its exit status."""
    from burnish.commands import train
    from burnish.commands.gold import called
    from burnish.compare.plan import candidate
    from burnish.core.call_syntax import Call

    folder = Path(options.out)
    if (folder / "model").is_dir():
        return 0
    if (folder / "checkpoints").is_dir():
        return train.main(["--resume", str(folder)])
    how, call = candidate(options.method), called(reward)
    text = f"rm({reward})" if call == Call("rm", (reward,)) else reward
    every = str(_every(options))
    given = {"model": options.model, "task": options.task, "reward": text, "steps": options.steps, "seed": options.seed}
    given |= {"columns": options.columns} if options.columns else {}
    given |= {"max_new_tokens": options.max_new_tokens, "device": options.device, "out": options.out}
    given |= {"save_every": every, "keep_every": every, "eval_tasks": 0, **how.flags}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return train.main([how.method, *words])


def _measured(reward: str, source: Source, options: OveroptimiseOptions) -> Iterator[Point]:
    """The start and the kept checkpoints, in the order of the training."""
    from rich.console import Console
    from rich.progress import Progress

    from burnish.checkpoint.checkpoint import checkpoints, step_of
    from burnish.commands.gold import gold_standard, load_scorer
    from burnish.core.step import Settings

    settings = Settings(max_new_tokens=options.max_new_tokens)
    scorer = load_scorer(reward, source, settings, options.device)
    gold = gold_standard(options.gold, source, settings, options.device)
    stored = [(step_of(path), str(path / "policy")) for path in checkpoints(Path(options.out))]
    places = [
        (0, options.model),
        *((step, place) for step, place in stored if step % _every(options) == 0 or step == stored[-1][0]),
    ]
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=options.json or not console.is_terminal) as progress:
        for step, place in progress.track(places, description="policies"):
            yield _point(step, place, source, settings, scorer, gold, options)


def _point(
    step: int,
    place: str,
    source: Source,
    settings: Settings,
    scorer: RewardScorer,
    gold: Gold,
    options: OveroptimiseOptions,
) -> Point:
    from burnish.commands.gold import sampled
    from burnish.commands.loaded import load_policy
    from burnish.evals.overoptimised import log_ratios, point
    from burnish.evals.reward_eval import sampled_scores

    models = load_policy(place, settings, options.device, reference=options.model)
    groups = sampled(models, source, settings, options.tasks, options.n)
    chat = models["policy"].chat
    proxy, true = sampled_scores(scorer, lambda groups: gold(groups, chat), groups, chat)
    return point(step, log_ratios(models, groups), proxy, true)


def _show(reward: str, points: list[Point], options: OveroptimiseOptions) -> None:
    from burnish.evals.overoptimised import said, turning

    command = shlex.join(["burnish", "overoptimise", reward, "--task", options.task, "--out", options.out])
    if options.svg:
        Path(options.svg).write_text(drawn(points))
    if options.json:
        found = {"reward": reward, "task": options.task, "method": options.method, "command": command}
        rows = [asdict(one) for one in points]
        print(json.dumps({**found, "points": rows, "best_step": turning(points).step}, indent=1))
        return
    console = stdout_console()
    console.print(_table(points))
    console.print(said(points), soft_wrap=True)
    if options.svg:
        console.print(f"written: {options.svg}", style="dim")


def _table(points: list[Point]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for column in ("step", "KL from the start", "reward", "95%", "gold", "95%"):
        table.add_column(column, justify="right")
    for one in points:
        cells = [(f"[bold]{x.mean:.3f}[/]", f"[dim]{x.low:.3f} to {x.high:.3f}[/]") for x in (one.proxy, one.gold)]
        table.add_row(str(one.step), f"{one.kl.mean:.2f}", *cells[0], *cells[1])
    return table


def drawn(points: list[Point]) -> str:
    """Reward and gold reward over the KL, each as a gain over the start in shares of its own range."""
    from burnish.report.charts import Line, line_chart, standalone

    lines = []
    rows = sorted(points, key=lambda one: one.kl.mean)
    for label, key in (("the reward", "proxy"), ("gold", "gold")):
        values = [getattr(one, key) for one in rows]
        start = getattr(points[0], key).mean
        scale = max(x.high for x in values) - min(x.low for x in values) or 1.0
        at = [one.kl.mean for one in rows]
        middle = [(kl, (x.mean - start) / scale) for kl, x in zip(at, values, strict=True)]
        band = [(kl, (x.low - start) / scale, (x.high - start) / scale) for kl, x in zip(at, values, strict=True)]
        lines.append(Line(label, middle, band))
    title = "RL on a reward: gain over the start, as a share of each one's range"
    return standalone(line_chart(lines, title=title, x="KL from the start", y="gain"))
