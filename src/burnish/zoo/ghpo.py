"""GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning (arXiv 2507.10628).

Hints for tasks that are too hard: where no sample is right, the beginning of the solution joins the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn
from burnish.core.messages import appended
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Turn
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.sample import continue_from
from burnish.score.judge import judge_traces, require_verifier, write_verdicts
from burnish.tasks.source import Source

GHPO = Paper("ghpo", "2507.10628", "GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning")


CUE = "The beginning part of the answer is:"


@supplies("score:reward")
def hinted(
    source: Source,
    n: int,
    shares: Sequence[float],
    *,
    start: int = 0,
    column: str = "demo",
    who: str = "policy",
) -> Rollout:
    """n replies per task; where all are wrong, n others after a hint, longer and longer, until one is right.

    The hint is the first round(share x length) characters of the solution in `column`, added to the prompt; the shares
    are tried in turn, and a group that stays wrong keeps its last hint. Before step `start` there are no hints.
    Right and wrong are the source's own verdicts, so this rollout also scores: scores["reward"], scores["correct"].
    A hint that does not fit in the context, with a whole reply after it, is not given. Every stage is one batch of
    samples. (GHPO, arXiv 2507.10628.)
    """
    require_verifier(source)
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")

    def attempt(tasks: list[Task], asked: list[Task], step: Step, tag: str) -> list[Group]:
        chat = step.models[who].chat
        prompts = [Turn(chat.prompt(task), "task") for task in asked]
        starts = [(task, (prompt,), i) for task, prompt in zip(tasks, prompts, strict=True) for i in range(n)]
        traces = continue_from(starts, who, step, tag=tag)
        asked_for = [(task, trace) for (task, _, _), trace in zip(starts, traces, strict=True)]
        write_verdicts(traces, judge_traces(source, asked_for, chat))
        return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = attempt(tasks, tasks, step, "sample")
        for share in shares if step.clock.step >= start else ():
            asked = {k: with_hint(tasks[k], share, column) for k in range(len(tasks)) if not _solved(groups[k])}
            fitting = [k for k, task in asked.items() if _fits(task, step, who)]
            if not fitting:
                continue
            again = attempt([tasks[k] for k in fitting], [asked[k] for k in fitting], step, f"hint {share:g}")
            for k, group in zip(fitting, again, strict=True):
                groups[k] = group
        for group in groups:
            step.notes.add("hinted", any("sample" not in trace.tags for trace in group.traces))
        return groups

    return Rollout(
        name=f"hinted({n})",
        call=call,
        reads=frozenset({"task:prompt", f"given:{column}", f"model:{who}.generate"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | frozenset({"score:reward"}),
    )


def with_hint(task: Task, share: float, column: str) -> Task:
    """The task with the first round(share x length) characters of its solution at the end of its last message."""
    solution = str(task.given[column])
    hint = f"\n\n{CUE}\n{solution[: round(share * len(solution))]}"
    if isinstance(task.prompt, str):
        return replace(task, prompt=task.prompt + hint)
    *before, last = task.prompt
    return replace(task, prompt=(*before, appended(last, hint)))


def _solved(group: Group) -> bool:
    return any(trace.scores["correct"] for trace in group.traces)


def _fits(task: Task, step: Step, who: str) -> bool:
    model = step.models[who]
    return len(model.chat.prompt(task)) + step.settings.max_new_tokens <= model.context


@register(
    GHPO,
    family="hybrid",
    summary="GRPO that adds the beginning of the solution to prompts nobody solved.",
    when="Some prompts are too hard to be solved even once, and their solutions are known.",
    trial={"n": 2, "cold_start": 0},
)
def ghpo(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies sampled for each prompt, at each stage.", at_least=2)] = 8,
    stages: Annotated[int, Option("Hints tried, one after the other.", at_least=1)] = 3,
    hint_step: Annotated[float, Option("How much of the solution each stage adds.", above=0, at_most=1)] = 0.25,
    cold_start: Annotated[int, Option("Steps without hints at the start.", at_least=0)] = 20,
    eps: opt.ClipRange = 0.2,
) -> Method:
    """GHPO: GRPO; a group in which every reply is wrong is sampled again with a hint in its prompt.

    hint = the first round(omega length) characters of the solution
    omega = 0.25, 0.5, 0.75 in turn until a reply is right;   A_i = (r_i - mean r) / (std r + 1e-4)
    L = mean over sampled tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A); no KL

    The hint belongs to the prompt, which is the one the loss sees; a group that stays wrong has advantage 0. In the
    first `cold_start` steps there are no hints. Departures: the reward is the verifier's score alone (the paper
    adds 0.5 for the format), and the words around the hint are ours.
    """
    shares = [hint_step * (k + 1) for k in range(stages)]
    return method(
        draw=draw.demos(task),
        rollout=hinted(task, n, shares, start=cold_start),
        credit=chain(credit.group_relative(eps=1e-4), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps)),
        models=roles(),
    )
