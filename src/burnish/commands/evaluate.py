"""`burnish eval MODEL`: what a model is worth on held-out rows, by the measure that the data allow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from burnish.commands.eval_reports import (
    Report,
    between,
    cut_replies,
    of_likelihood,
    of_preference,
    of_shifts,
    plain,
    range_of,
    table_of,
)
from burnish.config.flags import read
from burnish.core.option import Option
from burnish.tool_calls.table import NAMES as CALL_FORMATS
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.core.roles import Role
    from burnish.core.step import Settings
    from burnish.engine.mixture import Blend
    from burnish.evals.evaluate import Evaluation
    from burnish.models.build import Models
    from burnish.tasks.source import Source

SAMPLES = 4
TASKS = 200
MEASURES = ("auto", "accuracy", "reward", "preference", "likelihood", "shift")


@dataclass(frozen=True)
class EvalOptions:
    """burnish eval MODEL --task TASK: measure a model on held-out tasks, or on --bench NAMES, with 95% intervals.

    Replies that can be judged: greedy accuracy, pass@k and majority@k of sampled replies. With a reward function or a
    reward model: the mean reward. Preference pairs: how many are in the right order, and by how much. Demonstrations:
    their perplexity. MODEL is a name (burnish models) or a directory, for example runs/DIR/model; a reward model is
    measured on pairs."""

    task: str = "sort"
    """A built-in task (burnish tasks), gym:NAME, or a dataset."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,answer=gold."""
    measure: Annotated[str, Option(choices=MEASURES)] = "auto"
    """accuracy, reward, preference, likelihood or shift; auto takes the first of these that the data allow. shift: the
    ranks that the model's greedy tokens have under --reference, its base."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of held-out rows, by default 200; of a benchmark, its first rows, by default all."""
    k: Annotated[int, Option(at_least=1)] = 16
    """Replies sampled for each task, beside the greedy one."""
    temperature: Annotated[float, Option(at_least=0)] = 1.0
    """Temperature of the sampled replies; 0: only the greedy one."""
    seed: int = 0
    """The same seed samples the same replies."""
    max_new_tokens: Annotated[int | None, Option(at_least=1)] = None
    """The longest reply, in tokens; of a benchmark, its own; else by default as long as the replies in the data, within
    the model's context, 256 where they have none, and 64 for the tasks in the box."""
    max_length: Annotated[int | None, Option(at_least=1)] = None
    """The longest row, in tokens; by default the model's context."""
    on_long: Literal["drop", "truncate", "stop"] = "drop"
    """What to do with longer rows: drop, truncate or stop."""
    train_on: Literal["all", "last", "everything"] = "all"
    """Whose tokens the likelihood of a conversation counts: all replies, the last one, or everything."""
    reward: str | None = None
    """A reward function path/to/file.py:function, instead of the task's verifier."""
    reward_model: str | None = None
    """The directory of a reward model that scores the replies."""
    reference: str | None = None
    """A model to compare with: margins of pairs are of log pi / ref, as in DPO; of replies, the win rate is shown: how
    often they score more than the reference's."""
    guide: str | None = None
    """Models that guide it token by token, with weights: a, or a*0.7,b*0.3 (docs/decoding.md)."""
    against: str | None = None
    """The model that those of --guide were tuned from: what tuning changed is added, not all that they say."""
    opponent: str | None = None
    """In an environment of several players, the model that has the other seats, or SEAT=MODEL for each; by default the
    environment itself."""
    seat: str | None = None
    """With --opponent: the seat of the model that is evaluated; by default the environment's first."""
    tools: str | None = None
    """Functions that the model may call before it answers, as in burnish train: my_tools.py:search."""
    tool_parser: Annotated[str | None, Option(choices=CALL_FORMATS)] = None
    """The format in which the model writes tool calls; by default that of its chat template."""
    turns: Annotated[int, Option(at_least=1)] = 16
    """With an environment or tools: the most replies of one episode."""
    chat_template: str | None = None
    """The chat template: a file with a Jinja template, or chatml, plain, none or tools; by default the model's own."""
    system_prompt: str | None = None
    """The system message of conversations that have none; by default the one that the model was trained with."""
    template_option: str | None = None
    """Values for the chat template, key=value, several with commas: enable_thinking=false."""
    bench: str | None = None
    """Public benchmarks in place of --task: gsm8k, math500, mmlu, ifeval, humaneval, mbpp, bbh, truthfulqa, arc, or
    lm-eval:TASK; several with commas (docs/benchmarks.md)."""
    bench_data: str | None = None
    """The folder with the data of benchmarks, as NAME.jsonl or NAME/; by default they come from the hub."""
    shots: Annotated[int | None, Option(at_least=0)] = None
    """Examples before a question of a benchmark; by default as it is usually reported."""
    bench_chat: bool = False
    """Ask benchmarks with replies as a user's message in the chat template; by default as plain text."""
    trained_on: str | None = None
    """Data that the model was trained on: rows of a benchmark that it contains are counted, and left out once."""
    out: str | None = None
    """A new folder for what the model said to each row of a benchmark, and its scores."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(EvalOptions, "eval", words, plain=1)
    if asked is None:
        return 0
    (models, options) = asked
    if not models:
        raise ValueError("say which model to evaluate: burnish eval runs/DIR/model --task sort")
    console = stdout_console()
    if options.bench is not None:
        from burnish.commands.bench import main_of

        return main_of(models[0], options, console)
    if named := [name for name in ("bench_data", "shots", "trained_on", "out") if getattr(options, name) is not None]:
        raise ValueError(f"--{named[0].replace('_', '-')} belongs to benchmarks; add --bench gsm8k, or another")
    options = replace(options, tasks=options.tasks or TASKS)
    report = _report(models[0], options, console)
    if options.json:
        print(json.dumps({"model": models[0], "task": options.task, "seed": options.seed, **report.numbers}, indent=1))
    else:
        console.print(Text.assemble((models[0], "bold cyan"), f" on {options.task}: {report.heading}"))
        for part in report.parts:
            console.print(part)
    return 0


def _report(name: str, options: EvalOptions, console: Console) -> Report:
    from burnish.commands.guiding import read_guides
    from burnish.commands.loaded import is_reward_model, load_policy, print_assumed_template
    from burnish.core.step import Settings
    from burnish.envs.named_tools import read_tools
    from burnish.evals import measures
    from burnish.evals.token_shift import token_shifts
    from burnish.models.known_models import resolve
    from burnish.models.template import Style, read_template
    from burnish.run.lengths import Needs, fit
    from burnish.run.reply_length import reply_length
    from burnish.tasks.resolve import resolve_task
    from burnish.tasks.task_set import with_tools

    source = resolve_task(options.task, options.reward, columns=options.columns)
    if options.tools:
        source = with_tools(source, read_tools(options.tools))
    source, others = _seated(source, options)
    scores = is_reward_model(name)
    measure = _measure(source, options, scores)
    guides = read_guides(options.guide, options.against)
    if guides.blend is not None and measure not in ("accuracy", "reward"):
        raise ValueError(f"--guide changes how replies are written, and the measure {measure} reads none; leave it out")
    style = Style(
        read_template(options.chat_template), options.system_prompt, options.template_option, options.tool_parser
    )
    longest = options.max_new_tokens or reply_length(source, resolve(name), style)
    settings = Settings(
        **{one: getattr(options, one) for one in ("max_length", "on_long", "train_on", "turns")}, max_new_tokens=longest
    )
    reader = "rm" if scores else "policy"
    if scores:
        models = _load_scorer(name, settings, options.device, style)
    else:
        judges = {"reward_model": options.reward_model, "reference": options.reference}
        models = load_policy(name, settings, options.device, style, **judges, more={**others, **guides.models})
        guides.check(models)
    print_assumed_template(models[reader].chat, Console(stderr=True, highlight=False))
    needs = {
        "likelihood": Needs((), conversations=True, samples=False),
        "preference": Needs(("chosen", "rejected"), conversations=False, samples=False),
    }.get(measure, Needs((), conversations=False, samples=True))
    long = fit(source, needs, models, reader, settings, splits=("heldout",))
    if measure == "likelihood":
        report = of_likelihood(measures.likelihood(models, source, settings, options.tasks or TASKS))
    elif measure == "preference":
        found = measures.preference(
            models, source, settings, options.tasks or TASKS, reader=reader, reference=options.reference is not None
        )
        report = of_preference(found, "score" if scores else "log pi / ref" if options.reference else "log pi")
    elif measure == "shift":
        report = of_shifts(token_shifts(models, source, settings, options.tasks or TASKS), str(options.reference))
    else:
        report = _of_replies(models, source, settings, options, measure, console, guides.blend)
    if long is not None and (said := long.sentence()):
        report = Report(
            {**report.numbers, "left_out": long.rows - long.kept}, f"{report.heading}; {said}", report.parts
        )
    return report


def _seated(source: Source, options: EvalOptions) -> tuple[Source, dict[str, Role]]:
    """The tasks with the models of the other seats, and these models."""
    from burnish.compose.seats import read_opponent
    from burnish.tasks.task_set import with_opponent

    if options.opponent is None:
        if options.seat is not None:
            raise ValueError("--seat gives the model another seat, and nobody has the first one; add --opponent MODEL")
        return source, {}
    who = read_opponent(options.opponent)
    if any(role.liveness != "frozen" or role.follows is not None for role in who.roles.values()):
        raise ValueError(f"--opponent {options.opponent} is for training; name a model, such as runs/DIR/model or tiny")
    return with_opponent(source, who.train, who.heldout, options.seat), dict(who.roles)


def _measure(source: Source, options: EvalOptions, scores: bool) -> str:
    """The measure to take; raise ValueError where the data allow none, or not the one that was asked for."""
    from burnish.evals.evaluate import can_evaluate
    from burnish.tasks.replies import cut_to_replies

    pairs = {"chosen", "rejected"} <= source.gives or {"demo", "mistake"} <= source.gives
    judged = not scores and options.reward_model is None and can_evaluate(source)
    rewarded = options.reward is not None or options.reward_model is not None
    if options.measure == "likelihood" or not (scores or pairs or judged or rewarded):
        cut_to_replies(source)
    possible = {
        "accuracy": judged and options.reward is None,
        "reward": not scores and rewarded,
        "preference": pairs,
        "likelihood": not scores and "demo" in source.gives,
        "shift": not scores and options.reference is not None,
    }
    if scores and not pairs:
        raise ValueError(
            f"a reward model is measured on preference pairs, but task {options.task!r} has none (columns chosen and "
            "rejected); give another --task"
        )
    wanted = (
        next((name for name, can in possible.items() if can), None) if options.measure == "auto" else options.measure
    )
    if wanted == "shift" and not possible[wanted]:
        raise ValueError("--measure shift compares a model that writes with its base; add --reference BASE")
    if wanted is None or not possible[wanted]:
        has = ", ".join(sorted(source.gives)) or "only prompts"
        raise ValueError(
            f"task {options.task!r} gives {has}, which "
            + ("cannot be measured" if wanted is None else f"does not allow --measure {wanted}")
            + "; give a --reward function or a --reward-model, or data with answers, pairs or demonstrations"
        )
    return wanted


def _load_scorer(name: str, settings: Settings, device: str, style: Any) -> Models:
    from burnish.core.roles import Role
    from burnish.models.build import build
    from burnish.models.known_models import resolve

    return build({"rm": Role("frozen", "base", outputs=1)}, resolve(name), settings, device=device, style=style)


def _of_replies(
    models: Models,
    source: Source,
    settings: Settings,
    options: EvalOptions,
    measure: str,
    console: Console,
    blend: Blend | None = None,
) -> Report:
    """The greedy reply to each task, and k sampled ones."""
    from burnish.evals.evaluate import evaluate

    def sampled(k: int, temperature: float, what: str, who: str = "policy") -> Evaluation:
        with _bar(what, source, options, console) as answered:
            return evaluate(
                models,
                source,
                settings,
                tasks=options.tasks or TASKS,
                k=k,
                seed=options.seed,
                temperature=temperature,
                who=who,
                reward_model=options.reward_model is not None,
                on_progress=answered,
                blend=blend if who == "policy" else None,
            )

    greedy = sampled(1, 0.0, "greedy replies")
    several = (
        sampled(options.k, options.temperature, f"{options.k} sampled replies each") if options.temperature else None
    )
    ks = [k for k in (2**i for i in range(options.k.bit_length())) if k < options.k] + [options.k]
    numbers: dict[str, Any] = {"measure": measure, "tasks": len(greedy.correct), "different": greedy.different}
    numbers["k"] = options.k
    numbers |= {"temperature": options.temperature, "greedy": plain(greedy.pass_at(1))}
    numbers |= {"reward": plain((several or greedy).reward()), "length": (several or greedy).length}
    if measure == "reward":
        numbers["greedy"] = plain(greedy.reward())
        parts: list[Table | Text] = [_rewards(greedy, several, options.temperature)]
        if several is not None:
            numbers["best"] = {str(k): plain(several.best_of(k)) for k in ks}
    else:
        accuracy = greedy.pass_at(1)
        parts = [Text.from_markup(f"greedy accuracy [bold]{accuracy.mean:.1%}[/]  {range_of(accuracy)}")]
    if several is not None and measure == "accuracy":
        numbers["pass"] = {str(k): plain(several.pass_at(k)) for k in ks}
        numbers["majority"] = {str(k): plain(several.majority_at(k)) for k in ks}
        parts.append(_passes(several, ks))
    if options.reference:
        k, temperature = (options.k, options.temperature) if several else (1, 0.0)
        wins = (several or greedy).wins_against(sampled(k, temperature, "replies of the reference", "ref"))
        numbers["win_rate"] = {"reference": options.reference, **plain(wins)}
        rate = Text.from_markup(f"[bold]{wins.mean:.1%}[/]  {range_of(wins)}")
        parts.append(Text.assemble(f"win rate against {options.reference} ", rate))
    parts.append(_first_tasks(several or greedy, judged=measure == "accuracy", boxed=console.is_terminal))
    numbers["cut_off"] = (several or greedy).cut
    parts += cut_replies(greedy, several, settings.max_new_tokens)
    beside = f" and {options.k} at temperature {options.temperature:g}" if several else ""
    different = f" ({greedy.different} different)" if greedy.different < len(greedy.correct) else ""
    heading = (
        f"{len(greedy.correct)} held-out tasks{different}, one greedy reply each (temperature 0){beside}, "
        f"{(several or greedy).length:.1f} tokens on average"
    )
    if failed := (*greedy.failed, *(several.failed if several else ())):
        numbers["failed"] = len(failed)
        heading += f"; {len(failed)} episodes failed, the first because {failed[0]}"
    return Report(numbers, heading, tuple(parts))


@contextmanager
def _bar(what: str, source: Source, options: EvalOptions, console: Console) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )
    hidden = options.json or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        size = source.size("heldout")
        tasks = options.tasks or TASKS
        bar = progress.add_task(what, total=tasks if size is None else min(tasks, size))
        yield lambda answered: progress.update(bar, completed=answered)


def _rewards(greedy: Evaluation, several: Evaluation | None, temperature: float) -> Table:
    table = table_of("replies", "mean reward", "95%")
    rows = [("greedy (temperature 0)", greedy.reward())]
    if several is not None:
        k = len(several.rewards[0])
        rows += [(f"sampled (temperature {temperature:g})", several.reward()), (f"best of {k}", several.best_of(k))]
    for label, x in rows:
        table.add_row(label, f"[bold]{x.mean:.3f}[/]", between(x, "{:.3f}"))
    return table


def _passes(several: Evaluation, ks: list[int]) -> Table:
    table = table_of("k", "pass@k", "95%", "majority@k", "95%")
    for k in ks:
        passed, majority = several.pass_at(k), several.majority_at(k)
        table.add_row(str(k), *(text for x in (passed, majority) for text in (f"[bold]{x.mean:.1%}[/]", range_of(x))))
    return table


def _first_tasks(evaluation: Evaluation, *, judged: bool, boxed: bool) -> Table:
    from burnish.report.final_message import marked, one_line

    samples = Table(title="The first tasks", title_justify="left", title_style="bold", expand=boxed)
    if not boxed:  # a box is for the eye, and its lines would be as long as the longest reply
        samples.box = None
    samples.add_column("prompt", ratio=1)
    samples.add_column("first reply", ratio=1)
    for sample in evaluation.shown[:SAMPLES]:
        samples.add_row(one_line(sample.prompt), marked(sample) if judged else one_line(sample.reply))
    return samples
