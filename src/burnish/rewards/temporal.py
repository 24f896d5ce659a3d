"""TimeHC-RL: rewards for a social reasoner whose answers must depend on the order of events."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from burnish import papers
from burnish.core.method import Group, Option, Part, Step, Task
from burnish.core.randomness import rng
from burnish.core.types import Turn
from burnish.rewards import MEASURED, Scorer, register_reward, register_shape
from burnish.rewards.shaped import Scored, of_batch
from burnish.rollout.sample import continue_from
from burnish.score.judge import judge, reply_text
from burnish.tasks.source import Source

_MODES = re.compile(
    r"\s*(?:<(?P<tag>think|social_context_understanding)>.+?</(?P=tag)>\s*)?<answer>(?P<answer>.+?)</answer>\s*",
    re.DOTALL,
)


def well_formed(reply: str) -> bool:
    """Whether a reply is one of the three modes: an answer, alone or after one block of understanding or of thought."""
    return reply.count("<answer>") == 1 and _MODES.fullmatch(reply) is not None


@register_reward(
    papers.TIMEHC_RL,
    summary="+1 or -1 for the format, +2 or -1.5 for the answer; the policy chooses how much to think.",
    when="Social or story questions; with --shape temporal it is TimeHC-RL.",
    example="burnish train grpo --task stories.jsonl --reward timehc --shape temporal",
)
def timehc(task: Source) -> Scorer:
    """format (+1 right, -1 wrong) + accuracy (+2 right, -1.5 wrong): HC-RL of the paper, its rewards as printed.

    Three formats are right: <answer>...</answer> alone, after <social_context_understanding>...</...>, or after
    <think>...</think>. Which replies are correct, the task's verifier says (the paper: exact match inside the tag).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models["policy"].chat
        for trace in (trace for group in groups for trace in group.traces):
            form = 1.0 if well_formed(reply_text(trace, chat)) else -1.0
            trace.scores[MEASURED + "timehc"] = form + (2.0 if trace.scores["correct"] > 0 else -1.5)
        return groups

    return Scorer(
        part=Part(
            name="timehc",
            call=call,
            reads=frozenset({"score:reward", "tokens:policy"}),
            writes=frozenset({f"score:{MEASURED}timehc"}),
        )
    )


def shuffled_text(text: str, separator: str, keep: int, *key: object) -> str | None:
    """The pieces between separators in another order, the last `keep` in their places; None if there is no other."""
    pieces = text.split(separator)
    story, rest = pieces[: len(pieces) - keep], pieces[len(pieces) - keep :]
    if len(set(story)) < 2:
        return None
    dice, found = rng(*key), list(story)
    while found == story:
        dice.shuffle(found)
    return separator.join([*found, *rest])


def shuffled_task(task: Task, separator: str, keep: int, *key: object) -> Task | None:
    """The task with the text of its last message shuffled; None where it has no order."""
    if isinstance(task.prompt, str):
        text = shuffled_text(task.prompt, separator, keep, *key, task.key)
        return None if text is None else replace(task, prompt=text, key=f"{task.key}#shuffled")
    last = task.prompt[-1] if task.prompt else {}
    content = last.get("content")
    text = shuffled_text(content, separator, keep, *key, task.key) if isinstance(content, str) else None
    if text is None:
        return None
    return replace(task, prompt=(*task.prompt[:-1], {**last, "content": text}), key=f"{task.key}#shuffled")


@register_shape(
    papers.TIMEHC_RL,
    summary="A bonus for right replies where the order of the prompt's parts helps.",
    when="Prompts tell events in order, and the policy answers without reading the order.",
    example="burnish train grpo --task stories.jsonl --reward timehc --shape temporal",
)
def temporal(
    task: Source,
    alpha: Annotated[float, Option("The bonus; 0: unchanged.", at_least=0)] = 0.4,
    mu: Annotated[float, Option("p must exceed mu times the accuracy on the shuffled copy.", at_least=0)] = 0.9,
    separator: Annotated[str, Option("What stands between the parts of a prompt.")] = "\n",
    keep: Annotated[int, Option("Last parts that stay in place (the question).", at_least=0)] = 1,
) -> Scorer:
    """r + alpha for each right reply to a prompt with p > mu p~ (strict): p the accuracy of its replies, p~ that of as
    many replies to a copy of the prompt with its parts in another order.

    The shuffled replies only measure: they are sampled by the policy at the same temperature, scored by the task's
    verifier, and thrown away. So sampling and verifying cost twice as much. With mu below 1 the ordered accuracy may
    even be a little lower. A prompt with fewer than two different parts has no order and no bonus. alpha 0 is HC-RL;
    the paper gains 0.01 in domain and 0.03 out of domain by the bonus.
    """

    def accuracies(batch: list[Scored], step: Step) -> list[float | None]:
        """The accuracy on the shuffled copy of each prompt; None where there is none."""
        clock, chat = step.clock, step.models["policy"].chat
        copies = [shuffled_task(s.group.task, separator, keep, clock.seed, "shuffled", clock.step) for s in batch]
        starts = [
            (copy, (Turn(chat.prompt(copy), "task"),), i)
            for copy, scored in zip(copies, batch, strict=True)
            if copy is not None
            for i in range(len(scored.traces))
        ]
        traces = continue_from(starts, "policy", step, tag="shuffled", temperature=_temperature(batch))
        verdicts = judge(task, [one for one, _, _ in starts], [reply_text(trace, chat) for trace in traces])
        right = iter([verdict.correct for verdict in verdicts])
        found: list[float | None] = []
        for copy, scored in zip(copies, batch, strict=True):
            n = len(scored.traces)
            found.append(None if copy is None else sum(next(right) for _ in range(n)) / n)
        return found

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        found = []
        for scored, other in zip(batch, accuracies(batch, step), strict=True):
            right = scored.right
            helps = other is not None and sum(right) / len(right) > mu * other
            found.append([r + alpha if ok and helps else r for r, ok in zip(scored.rewards, right, strict=True)])
            if other is not None:
                step.notes.add("shuffled_accuracy", other)
        return found

    return of_batch(f"temporal({alpha:g})", change, coef=alpha, reads=frozenset({"model:policy.generate"}))


def _temperature(batch: list[Scored]) -> float:
    """The temperature at which the replies were sampled."""
    settings = (turn.settings for s in batch for trace in s.traces for turn in trace.turns if turn.author == "policy")
    return next((one.temperature for one in settings if one is not None), 1.0)
