"""`burnish arena MODEL MODEL ...`: battles between models, judged in both orders, and their Elo ratings."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from rich.table import Table

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class ArenaOptions:
    """burnish arena MODEL MODEL ... --task TASK: let models fight on held-out prompts and rate them.

    A MODEL is a name, a directory, model(DIR, temperature=1) or endpoint(https://HOST/v1, NAME). Every two models reply
    to each prompt; a judge scores the two replies in both orders, and a battle counts if the orders agree on the
    winner. Without a judge the task's verifier decides. Elo is fitted by maximum likelihood (Bradley-Terry), with mean
    0 and 95% intervals over prompts."""

    task: str = "sort"
    """A built-in task (burnish tasks) or a dataset: the prompts, and the verifier where there is no judge."""
    judge: str | None = None
    """Who judges: a model, or endpoint(https://HOST/v1, NAME)."""
    tasks: Annotated[int, Option(at_least=2)] = 100
    """Number of held-out rows."""
    words: Literal["full", "brief"] = "full"
    """How much a question to the judge says; brief is for small models."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(ArenaOptions, "arena", words, plain=64)
    if asked is None:
        return 0
    names, options = asked
    if len(set(names)) < 2:
        raise ValueError("an arena needs two models that differ; write burnish arena MODEL MODEL --task TASK")
    from burnish.core.step import Settings, Step
    from burnish.core.types import Clock
    from burnish.evals.arena import leads_of, ratings
    from burnish.evals.evaluate import held_out_tasks
    from burnish.judges import templates
    from burnish.models.build import build
    from burnish.models.known_models import resolve
    from burnish.score.judge import require_verifier
    from burnish.score.judges import read_judge
    from burnish.tasks.resolve import resolve_task

    players = [read_judge(name) for name in dict.fromkeys(names)]
    judge = read_judge(options.judge) if options.judge else None
    source = resolve_task(options.task, columns=options.columns)
    if judge is None:
        require_verifier(source, "heldout")
    roles = {name: role for one in (*players, *([judge] if judge else [])) for name, role in one.models.items()}
    if any("policy" in one for player in (*players, *([judge] if judge else [])) for one in player.reads):
        raise ValueError("there is no policy outside a run; name a model or an endpoint")
    settings = Settings()
    first = next(iter(roles.values()), None)
    models = build(roles, resolve(first.source if first else "tiny"), settings, device=options.device)
    step = Step(Clock(0, 1), models, settings)
    template = {"full": templates.BATTLE, "brief": templates.PRINCIPLES_BRIEF}[options.words]
    leads = leads_of(players, held_out_tasks(source, options.tasks), source, judge, template, step)
    found = ratings([player.name for player in players], leads)
    unread = step.notes.means().get("judge_unread", 0.0)
    if options.json:
        rows = [asdict(one) for one in found]
        print(json.dumps({"task": options.task, "prompts": len(leads), "judge_unread": unread, "ratings": rows}))
        return 0
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(("model", "Elo", "95%", "won", "lost", "tied")):
        table.add_column(column, justify="right" if i else "left")
    for one in found:
        between = f"[dim]{one.low:+.0f} to {one.high:+.0f}[/]"
        table.add_row(one.model, f"[bold]{one.elo:+.0f}[/]", between, str(one.won), str(one.lost), str(one.tied))
    stdout_console().print(table)
    if unread:
        stdout_console().print(f"{unread:.1%} of the judge's answers could not be read", style="dim")
    return 0
