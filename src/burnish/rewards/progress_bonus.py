"""Progress of a reply: how much each part of it raises the chance that an answer at once would be right."""

from __future__ import annotations

from typing import Annotated

from burnish import papers
from burnish.core.method import Group, Option, Part, Step, Task, Trace
from burnish.rewards import DENSE, Scorer, mark_failed, register_reward
from burnish.rewards.process import Steps
from burnish.rollout.completions import completions as forced
from burnish.score.judge import judge
from burnish.score.segments import Segmentation, segmentation
from burnish.score.step_rewards import place
from burnish.tasks.source import Source

_Prefix = tuple[str, tuple[int, ...]]  # the key of a task and the tokens of a prefix


@register_reward(
    papers.MRT,
    summary="How much each part of a reply raises the share of right answers when thinking is stopped after it.",
    when="Replies think at length, and you train with token rewards (ppo); costly: it samples answers.",
    example="burnish train ppo --reward 'success,progress_bonus*0.2'",
)
def progress_bonus(
    task: Source,
    completions: Annotated[int, Option("Forced answers after each prefix.", at_least=1)] = 4,
    *,
    most: Annotated[
        int, Option("Prefixes of a reply at most, evenly chosen among the ends of its steps.", at_least=1)
    ] = 4,
    closing: Annotated[str, Option("The words that stop the thought; thinking models: </think>\\n.")] = "\nanswer:",
    steps: Steps = "lines",
) -> Scorer:
    """r_j = J(z_0..j) - J(z_0..j-1) at the end of episode j, J the share of right forced answers (arXiv 2503.07572).

    J of nothing is the share of right answers without a thought, once for each prompt; J of the whole reply is 1 if it
    is correct, else 0. The objective is success + alpha progress, alpha the weight. The sum is correct - J(nothing): a
    method without token rewards (grpo) is left with the outcome, because J(nothing) is the same for a group. The method
    mrt compares continuations with the forced answers of their prefix instead, as the released code does.
    Cost: a reply needs up to most x completions further answers of up to max_new_tokens tokens; prefixes that replies
    have in common are answered once. J from few answers is noisy: keep alpha small. With weight 0 nothing changes.
    """
    words = closing.replace("\\n", "\n")
    cuts, source = segmentation(steps), task

    def call(groups: list[Group], step: Step) -> list[Group]:
        asked: list[tuple[Task, Trace, list[int]]] = []
        for task, trace in ((group.task, trace) for group in groups for trace in group.traces):
            if len(trace.turns) == 2:
                asked.append((task, trace, _prefixes(trace, cuts, most, step)))
            else:
                mark_failed(trace, "progress_bonus scores replies of one turn, and this one has several")
        values = _values(source, asked, completions, words, step)
        for task, trace, lengths in asked:
            reached = [values[_key(task, trace, length)] for length in (0, *lengths)]
            ends = [*(len(trace.turns[0]) + length - 1 for length in lengths), len(trace) - 1]
            rewards = progress([*reached, trace.scores["correct"]])
            trace.streams[f"{DENSE}progress_bonus"] = place(len(trace), ends, rewards)
        return groups

    part = Part(
        name=f"progress_bonus({completions})",
        call=call,
        reads=frozenset({"score:reward", "tokens:policy", "model:policy.generate"}),
        writes=frozenset({f"stream:{DENSE}progress_bonus"}),
    )
    return Scorer(part=part, dense=True)


def progress(values: list[float]) -> list[float]:
    """J_1 - J_0, J_2 - J_1, ...: the progress of each episode."""
    return [later - before for before, later in zip(values, values[1:], strict=False)]


def _prefixes(trace: Trace, cuts: Segmentation, most: int, step: Step) -> list[int]:
    """The lengths, in tokens of the reply, of at most `most` prefixes that end with a step."""
    ends = [end + 1 for end in cuts(trace.turns[1].tokens, step.models["policy"].chat)[:-1]]
    if len(ends) <= most:
        return ends
    return [ends[(k + 1) * len(ends) // (most + 1)] for k in range(most)]


def _key(task: Task, trace: Trace, length: int) -> _Prefix:
    return task.key, tuple(trace.turns[1].tokens[:length].tolist())


def _values(
    source: Source, traces: list[tuple[Task, Trace, list[int]]], many: int, closing: str, step: Step
) -> dict[_Prefix, float]:
    """J of every prefix: the share of right answers among `many` that are forced after it."""
    asked = {}
    for task, trace, lengths in traces:
        for length in (0, *lengths):
            key = _key(task, trace, length)
            asked[key] = (task, trace.turns[0], trace.turns[1].tokens[:length], f"progress {key[1]}")
    texts = forced(list(asked.values()), many, step, closing=closing)
    tasks = [task for task, *_ in asked.values() for _ in range(many)]
    verdicts = judge(source, tasks, [text for some in texts for text in some])
    right = [float(verdict.correct) for verdict in verdicts]
    return {key: sum(right[i * many : (i + 1) * many]) / many for i, key in enumerate(asked)}
