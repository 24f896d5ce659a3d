"""Labelled steps from a model, a task and its verifier: replies are sampled, cut into steps, and completed from each.

Rows are those of TRL's stepwise supervision and of our own datasets (docs/data.md): prompt, completions, labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from burnish.core import randomness
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Task, Trace
from burnish.datagen.preference_data import Made, Row, is_cut_off, prompt_in, task_at
from burnish.models.build import Models
from burnish.rollout.completions import completions
from burnish.rollout.sample import sample
from burnish.score.judge import judge, judge_traces, reply_text
from burnish.score.prefix_labels import FirstBad, Rule, any_right, share_right, soft_value
from burnish.score.segments import Segmentation, is_comment, segmentation
from burnish.tasks.source import Source

AT_ONCE = 64  # replies that are sampled and labelled between two writes
NEUTRAL = 0.5  # the label of a step that says nothing: the middle between wrong and right
CLOSED = {"lines": "\n", "paragraphs": "\n\n"}  # what is left out of a step's text, and written again between steps


@dataclass(frozen=True)
class StepRecipe:
    """How labelled steps are made.

    rule         of RULES, or of LINE_RULES (datagen/line_data.py)
    n            replies sampled for each prompt
    completions  of each prefix
    steps        what a step is (score/segments.py)
    eta          of the rule "entropy"
    closing      words that end a thought and ask for the answer, of the rule "forced"
    neutral      whether comments and blank lines have the label 0.5
    style        conversational: prompts are chat messages; standard: texts
    """

    rule: str = "soft"
    n: int = 4
    completions: int = 8
    steps: str = "lines"
    eta: float = 1.0
    closing: str = "\nanswer:"
    neutral: bool = False
    temperature: float = 1.0
    style: str = "conversational"

    def __post_init__(self) -> None:
        segmentation(self.steps)


@dataclass(frozen=True)
class Reply:
    """A sampled reply with the places in its tokens at which its steps end."""

    task: Task
    trace: Trace
    ends: list[int]
    right: bool
    score: float

    def prefixes(self) -> list[int]:
        """The numbers of tokens of its prefixes that end with a step, without the whole reply."""
        return [end + 1 for end in self.ends[:-1]]


Labels = list[bool | float]


@dataclass(frozen=True)
class Labeller:
    """What a rule needs to complete prefixes and judge the result."""

    source: Source
    step: Step
    recipe: StepRecipe

    def outcomes(self, asked: Sequence[tuple[Reply, int]], closing: str | None = None) -> list[list[float]]:
        """For each (reply, tokens of the prefix): the outcomes, 0 or 1, of its completions.

        A prefix that several replies to a prompt have in common is completed once.
        """
        keys = [(reply.task.key, tuple(reply.trace.turns[1].tokens[:length].tolist())) for reply, length in asked]
        prefixes = {}
        for key, (reply, length) in zip(keys, asked, strict=True):
            prompt, said = reply.trace.turns
            prefixes[key] = (reply.task, prompt, said.tokens[:length], f"steps {key[1]}")
        many, each = self.recipe.completions, list(prefixes.values())
        texts = completions(each, many, self.step, closing=closing, temperature=self.recipe.temperature)
        tasks = [task for task, *_ in each for _ in range(many)]
        verdicts = judge(self.source, tasks, [text for some in texts for text in some])
        flat = [float(verdict.correct) for verdict in verdicts]
        outcomes_of = {key: flat[i * many : (i + 1) * many] for i, key in enumerate(prefixes)}
        return [outcomes_of[key] for key in keys]


def _each_prefix(replies: list[Reply], labeller: Labeller, rule: Rule, closing: str | None = None) -> list[Labels]:
    """The label of each prefix by its own completions; the whole reply has its own outcome."""
    asked = [(reply, length) for reply in replies for length in reply.prefixes()]
    rates = iter(labeller.outcomes(asked, closing))
    return [[*(round(rule(next(rates)), 6) for _ in reply.prefixes()), float(reply.right)] for reply in replies]


def _hard(replies: list[Reply], labeller: Labeller) -> list[Labels]:
    return [[bool(label) for label in labels] for labels in _each_prefix(replies, labeller, any_right)]


def _soft(replies: list[Reply], labeller: Labeller) -> list[Labels]:
    return _each_prefix(replies, labeller, share_right)


def _entropy(replies: list[Reply], labeller: Labeller) -> list[Labels]:
    return _each_prefix(replies, labeller, soft_value(labeller.recipe.eta))


def _forced(replies: list[Reply], labeller: Labeller) -> list[Labels]:
    return _each_prefix(replies, labeller, share_right, labeller.recipe.closing)


def _outcome(replies: list[Reply], labeller: Labeller) -> list[Labels]:
    """Every step has the score of the whole reply: what an evaluator of prefixes learns to foresee (IRCoCo)."""
    return [[reply.score] * len(reply.ends) for reply in replies]


def _first_error(replies: list[Reply], labeller: Labeller) -> list[Labels]:
    """Right before the first step after which no completion is right, wrong from there on; found by binary search.

    All replies are searched at once: a round completes one prefix of each.
    """
    searches = [FirstBad(len(reply.ends), reply.right) for reply in replies]
    while open_ones := [(reply, one, one.ask) for reply, one in zip(replies, searches, strict=True) if one.ask]:
        asked = [(reply, reply.ends[steps - 1] + 1) for reply, _, steps in open_ones if steps]
        for (_, search, _), outcomes in zip(open_ones, labeller.outcomes(asked), strict=True):
            search.answer(bool(any_right(outcomes)))
    return [[k < s.good for k in range(len(reply.ends))] for reply, s in zip(replies, searches, strict=True)]


RULES: dict[str, Callable[[list[Reply], Labeller], list[Labels]]] = {
    "soft": _soft,
    "hard": _hard,
    "entropy": _entropy,
    "first_error": _first_error,
    "forced": _forced,
    "outcome": _outcome,
}


def make_steps(
    models: Models,
    source: Source,
    settings: Settings,
    recipe: StepRecipe,
    *,
    model: str,
    start: int,
    count: int,
    seed: int = 0,
) -> Iterator[list[Made]]:
    """The rows of the training prompts [start, count), a batch of prompts at a time.

    Repeatable for a seed; what a prompt gives depends neither on the batch nor on `start`. model: the name in the rows.
    """
    cuts = segmentation(recipe.steps)
    rollout = sample(recipe.n, temperature=recipe.temperature, tag="steps")
    seen = {task_at(source, i, seed).key for i in range(start)}
    batch = max(1, AT_ONCE // recipe.n)
    for first in range(start, count, batch):
        made = {i: Made(i) for i in range(first, min(first + batch, count))}
        tasks = {i: task_at(source, i, seed) for i in made}
        for i, task in tasks.items():
            made[i].repeated = task.key in seen
            seen.add(task.key)
        fresh = [i for i in made if not made[i].repeated]
        step = Step(Clock(0, 1, randomness.key_of("steps", seed)), models, settings)
        groups = rollout.call([tasks[i] for i in fresh], step) if fresh else []
        replies: list[tuple[int, Reply]] = []
        for i, group in zip(fresh, groups, strict=True):
            made[i].replies = len(group.traces)
            made[i].cut_off = sum(is_cut_off(trace) for trace in group.traces)
            kept = [(group.task, trace) for trace in group.traces if not is_cut_off(trace)]
            replies += [(i, reply) for reply in _judged(source, kept, cuts, step)]
        labels = RULES[recipe.rule]([reply for _, reply in replies], Labeller(source, step, recipe))
        for (i, reply), own in zip(replies, labels, strict=True):
            made[i].rows.append({**_row(reply, own, recipe, models), "model": model})
        yield list(made.values())


def _judged(source: Source, kept: list[tuple[Task, Trace]], cuts: Segmentation, step: Step) -> list[Reply]:
    """The replies that differ, with their steps and outcomes; a repeated reply would only repeat its labels."""
    chat = step.models["policy"].chat
    different = {tuple(trace.turns[1].tokens.tolist()): (task, trace) for task, trace in reversed(kept)}
    ones = sorted(different.values(), key=lambda one: one[1].index)
    verdicts = judge_traces(source, ones, chat)
    return [
        Reply(task, trace, cuts(trace.turns[1].tokens, chat), verdict.correct, float(verdict.score))
        for (task, trace), verdict in zip(ones, verdicts, strict=True)
    ]


def unclosed(steps: list[str], kind: str) -> tuple[list[str], str]:
    """The steps of a text without what closes them (the end of a line), and that, to be written between them again."""
    separator = CLOSED.get(kind, "")
    if not separator or not all(text.endswith(separator) for text in steps[:-1]):
        return steps, ""
    return [*(text.removesuffix(separator) for text in steps[:-1]), *steps[-1:]], separator


def _row(reply: Reply, labels: Labels, recipe: StepRecipe, models: Models) -> Row:
    chat = models["policy"].chat
    tokens = reply.trace.turns[1].tokens
    texts = [chat.text(tokens[: end + 1]) for end in reply.ends[:-1]] + [reply_text(reply.trace, chat)]
    steps = [text[len(before) :] for before, text in zip(["", *texts], texts, strict=False)]
    if recipe.neutral:
        labels = [NEUTRAL if is_comment(text) else label for text, label in zip(steps, labels, strict=True)]
    steps, separator = unclosed(steps, recipe.steps)
    return {
        "prompt": prompt_in(reply.task, recipe.style),
        "completions": steps,
        "labels": labels,
        "separator": separator,
        "correct": reply.right,
    }
