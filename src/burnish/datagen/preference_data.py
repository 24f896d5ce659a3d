"""Preference data from a model, a task and a scorer: replies are sampled, scored, and compared by a rule of select.

Rows are those of TRL and of our own datasets (docs/data.md): pairs, ranked lists, or single labelled replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from burnish import select
from burnish.core import randomness
from burnish.core.messages import as_messages, text_of
from burnish.core.parts import Part, Rollout, chain
from burnish.core.scorer import FEEDBACK, PRINCIPLES, RATINGS, SPAN, is_failed
from burnish.core.step import Settings, Step
from burnish.core.task import Task
from burnish.core.types import Clock, Group, Sampling, Trace
from burnish.datagen.writers import ASKED_UNDER, WRITTEN_BY
from burnish.judges import vote
from burnish.models.build import Models
from burnish.models.chat import Chat
from burnish.rollout.sample import sample
from burnish.score.judge import reply_text
from burnish.score.model import scoring
from burnish.select.lists import by_probability
from burnish.select.shorter import shortest_vs_longer
from burnish.tasks.source import Source
from burnish.verifiers.code.pairs import share_pairs

Row = dict[str, Any]
AT_ONCE = 256  # replies that are sampled between two writes

PAIR_RULES: dict[str, Callable[[], Part]] = {
    "best_vs_worst": select.best_vs_worst,
    "every_pair": select.every_pair,
    "acecoder": lambda: select.scored_pairs(share_pairs, name="acecoder"),
    "first_round": select.first_round,
    "longest_vs_any": select.longest_vs_any,
    "shortest_vs_longer": shortest_vs_longer,
    "diverse_vs_usual": lambda: select.diverse_vs_usual(0.3, by_probability),
    "rejection_sampled": lambda: chain(select.keep_accepted(0.5, 8), select.first_round("accepted")),
}
LIST_RULES: dict[str, Callable[[], Part]] = {"unequal_lists": select.unequal_lists, "ranked": select.ranked}
EACH = "each"  # labels: every reply by its own score


@dataclass(frozen=True)
class Recipe:
    """How preference data are made.

    n           replies sampled for each prompt
    rule        of PAIR_RULES, LIST_RULES or EACH; empty: the first that makes the format
    kind        pairs, lists or labels
    style       conversational: prompts and replies are chat messages; standard: texts
    threshold   labels by the rule "each": a reply is good if it scores more
    min_margin  pairs whose scores differ by less are left out
    cut_off     whether replies that ran into max_new_tokens are compared; trained on, they teach to stop in a sentence
    """

    n: int = 8
    rule: str = ""
    kind: str = "pairs"
    style: str = "conversational"
    temperature: float = 1.0
    top_p: float = 1.0
    threshold: float = 0.5
    min_margin: float = 0.0
    cut_off: bool = False

    def __post_init__(self) -> None:
        fits = {"pairs": tuple(PAIR_RULES), "lists": tuple(LIST_RULES), "labels": (EACH, *PAIR_RULES)}[self.kind]
        if not self.rule:
            object.__setattr__(self, "rule", fits[0])
        if self.rule not in fits:
            raise ValueError(f"--rule {self.rule} makes no {self.kind}; the rules that do are {', '.join(fits)}")
        if self.rule != EACH and self.n < 2:
            raise ValueError(f"--n is {self.n}, but a comparison needs at least 2 replies for each prompt")

    def part(self) -> Part | None:
        """The rule as a part of select; None where replies are not compared."""
        return None if self.rule == EACH else {**PAIR_RULES, **LIST_RULES}[self.rule]()


@dataclass
class Made:
    """What came of one prompt: its rows, and counts for the summary."""

    index: int
    rows: list[Row] = field(default_factory=list)
    replies: int = 0
    cut_off: int = 0
    repeated: bool = False  # an earlier prompt of the data is the same
    failed: int = 0  # replies that could not be scored


def make(
    models: Models,
    source: Source,
    settings: Settings,
    recipe: Recipe,
    *,
    model: str,
    start: int,
    count: int,
    seed: int = 0,
    reward_model: str | None = None,
    scorer: Part | None = None,
    rollout: Rollout | None = None,
) -> Iterator[list[Made]]:
    """The rows of the training prompts [start, count), a batch of prompts at a time.

    Repeatable for a seed; what a prompt gives depends neither on the batch nor on `start`. model: the name in the rows;
    scorer: what scores the replies, in place of the source or the reward model; rollout: what samples them, in place of
    the policy.
    """
    scorer, rule = scorer or scoring(source, reward_model), recipe.part()
    rollout = rollout or sample(recipe.n, tag="pairs")
    settings = replace(settings, sampling=Sampling(recipe.temperature, top_p=recipe.top_p))
    seen = {task_at(source, i, seed).key for i in range(start)}
    batch = max(1, AT_ONCE // recipe.n)
    for first in range(start, count, batch):
        made = {i: Made(i) for i in range(first, min(first + batch, count))}
        tasks = {i: task_at(source, i, seed) for i in made}
        for i, task in tasks.items():
            made[i].repeated = task.key in seen
            seen.add(task.key)
        fresh = [i for i in made if not made[i].repeated]
        step = Step(Clock(0, 1, randomness.key_of("pairs", seed)), models, settings)
        groups = scorer.call(rollout.call([tasks[i] for i in fresh], step), step) if fresh else []
        for i, group in zip(fresh, groups, strict=True):
            made[i].replies = len(group.traces)
            made[i].cut_off = sum(is_cut_off(trace) for trace in group.traces)
            made[i].failed = recipe.n - len(group.traces) + sum(is_failed(trace) for trace in group.traces)
            group.traces = [trace for trace in group.traces if not is_failed(trace)]
            if not recipe.cut_off:
                group.traces = [trace for trace in group.traces if not is_cut_off(trace)]
            if group.traces:
                kept = [group] if rule is None else rule.call([group], step)
                made[i].rows = [
                    {**row, "model": row.get("model", model)} for one in kept for row in _rows(one, recipe, models)
                ]
        yield list(made.values())


def task_at(source: Source, index: int, seed: int) -> Task:
    """The training task at an index; of a source without an end, other ones for every seed."""
    return source.task("train", index if source.size("train") is not None else index + (seed << 32))


def is_cut_off(trace: Trace) -> bool:
    return trace.note.get("stopped") == "length"


def _rows(group: Group, recipe: Recipe, models: Models) -> Iterator[Row]:
    chat = models["policy"].chat
    asked = {"prompt": prompt_in(group.task, recipe.style)}
    if recipe.kind == "lists":
        for ranking in group.lists or ():
            listed = [group.traces[i] for i in ranking]
            yield {
                **asked,
                "responses": [reply_text(trace, chat) for trace in listed],
                "scores": [trace.scores["reward"] for trace in listed],
                **_ratings({"ratings": listed}),
                **_notes({"s": listed}),
                "lengths": [_length(trace) for trace in listed],
                "margin": listed[0].scores["reward"] - listed[-1].scores["reward"],
            }
        return
    pairs = [(group.traces[a], group.traces[b]) for a, b in group.pairs or ()]
    pairs = [(w, r) for w, r in pairs if w.scores["reward"] - r.scores["reward"] >= recipe.min_margin]
    if recipe.kind == "pairs":
        for better, worse in pairs:
            both = (("chosen", better), ("rejected", worse))
            yield {
                **asked,
                **{side: _reply(trace, chat, recipe.style) for side, trace in both},
                **{f"score_{side}": trace.scores["reward"] for side, trace in both},
                "margin": better.scores["reward"] - worse.scores["reward"],
                **_graded(better, worse),
                **_notes({f"_{side}": trace for side, trace in both}),
                **{f"length_{side}": _length(trace) for side, trace in both},
            }
        return
    for trace, good in _labelled(group, pairs, recipe):
        yield {
            **asked,
            "completion": _reply(trace, chat, recipe.style),
            "label": good,
            "score": trace.scores["reward"],
            **_notes({"": trace}),
            "length": _length(trace),
        }


def _graded(better: Trace, worse: Trace) -> Row:
    """Of replies with ratings: these, the largest difference of one rating, and the margin as a share of the scale."""
    if PRINCIPLES in better.note:
        ratings = better.note[PRINCIPLES].get(str(worse.index), {})
        return {"principle_scores": [{"name": name, "rating": score} for name, score in ratings.items()]}
    mine, other = better.note.get(RATINGS), worse.note.get(RATINGS)
    if not mine or not other:
        return {}
    gap = max((abs(mine[name] - other[name]) for name in mine if name in other), default=0.0)
    span = better.note.get(SPAN) or 1.0
    grade = vote.margin(better.scores["reward"], worse.scores["reward"], span)
    return {"ratings_chosen": _stored(mine), "ratings_rejected": _stored(other), "gap": gap, "grade": grade}


def _ratings(columns: dict[str, list[Trace]]) -> Row:
    """The ratings of listed replies, where all have some."""
    rated = {name: [trace.note.get(RATINGS) for trace in traces] for name, traces in columns.items()}
    return {name: [_stored(one) for one in ratings if one] for name, ratings in rated.items() if all(ratings)}


def _notes(columns: dict[str, Trace | list[Trace]]) -> Row:
    """Who wrote a reply, under which principle, and what a judge said about it, where there are several writers,
    principles or critiques: a column for each suffix of a name.
    """
    noted: Row = {}
    for suffix, said in columns.items():
        traces = said if isinstance(said, list) else [said]
        for note, name in ((WRITTEN_BY, "model"), (ASKED_UNDER, "principle"), (FEEDBACK, "critique")):
            values = [trace.note.get(note) for trace in traces]
            if any(values):
                noted[name + suffix] = values if isinstance(said, list) else values[0]
    return noted


def _stored(ratings: Mapping[str, float]) -> list[Row]:
    """Ratings as rows of one shape: names differ from prompt to prompt, and a column of Parquet has one type."""
    return [{"name": name, "rating": float(value)} for name, value in ratings.items()]


def _labelled(group: Group, pairs: list[tuple[Trace, Trace]], recipe: Recipe) -> list[tuple[Trace, bool]]:
    """Each reply with its label; by a rule on pairs, the better of a pair is good and the worse bad.

    A reply that is better in one pair and worse in another has no label.
    """
    if recipe.rule == EACH:
        return [(trace, trace.scores["reward"] > recipe.threshold) for trace in group.traces]
    good, bad = {pair[0].id for pair in pairs}, {pair[1].id for pair in pairs}
    return [(trace, trace.id in good) for trace in group.traces if (trace.id in good) != (trace.id in bad)]


def prompt_in(task: Task, style: str) -> object:
    """A task's prompt as a row has it: chat messages (conversational), or one text (standard)."""
    if style == "conversational":
        return list(as_messages(task.prompt))
    if isinstance(task.prompt, str):
        return task.prompt
    if len(task.prompt) > 1:
        raise ValueError(
            f"the prompt {task.key[:60]!r} is a conversation of {len(task.prompt)} messages, which --style standard "
            "cannot hold; use --style conversational"
        )
    return text_of(task.prompt[0])


def _reply(trace: Trace, chat: Chat, style: str) -> object:
    text = reply_text(trace, chat)
    return [{"role": "assistant", "content": text}] if style == "conversational" else text


def _length(trace: Trace) -> int:
    """Tokens of the reply, with its end-of-turn token."""
    return sum(len(turn) for turn in trace.turns[1:])
