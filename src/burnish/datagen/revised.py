"""Replies that a critic criticises and revises by principles: constitutional AI's first stage (arXiv 2212.08073).

    y_0 ~ model(x);  c_k ~ critic(x, y_{k-1}, p_k);  y_k ~ critic(x, y_{k-1}, c_k, p_k);  p_k drawn at random

Rows hold the last revision as the completion, or as the chosen reply beside the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from burnish.core import randomness
from burnish.core.messages import prompt_shown
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Sampling, Task
from burnish.datagen.preference_data import Made, Row, is_cut_off, prompt_in, task_at
from burnish.evals.measures import as_pair
from burnish.judges.master_keys import is_master_key
from burnish.judges.question import Question, question
from burnish.judges.templates import CONSIDER, CONSIDER_BRIEF, PRINCIPLE_PAIR_BRIEF, REVISE, REVISE_BRIEF
from burnish.models.build import Models
from burnish.rollout.sample import sample
from burnish.score.judge import reply_text
from burnish.score.judges import Judge
from burnish.tasks.source import Source

BATCH = 64  # prompts between two writes
WORDS = {"full": (CONSIDER, REVISE), "brief": (CONSIDER_BRIEF, REVISE_BRIEF)}


@dataclass(frozen=True)
class Constitution:
    """How replies are revised.

    principles  one is drawn for each round of a prompt
    rounds      of critique and revision
    words       of the questions: full, or brief for small models
    pairs       rows with the last revision as chosen and the first reply as rejected, in place of completions
    """

    principles: Sequence[str]
    rounds: int = 1
    words: str = "full"
    pairs: bool = False


@dataclass
class _Draft:
    """A reply on its way. why: why it could not be revised."""

    task: Task
    first: str
    reply: str
    principles: list[str]
    critiques: list[str]
    why: str = ""


def revise(
    models: Models,
    source: Source,
    settings: Settings,
    judge: Judge,
    how: Constitution,
    *,
    start: int,
    count: int,
    seed: int = 0,
) -> Iterator[list[Made]]:
    """The rows of the training prompts [start, count), a batch of prompts at a time; repeatable for a seed."""
    settings = replace(settings, sampling=Sampling(1.0))
    for first in range(start, count, BATCH):
        places = range(first, min(first + BATCH, count))
        tasks = [task_at(source, i, seed) for i in places]
        step = Step(Clock(0, 1, randomness.key_of("revise", seed)), models, settings)
        groups = sample(1, tag="revise").call(tasks, step)
        drafts = []
        for group in groups:
            text = reply_text(group.traces[0], models["policy"].chat)
            why = "cut off" if is_cut_off(group.traces[0]) else ""
            drafts.append(_Draft(group.task, text, text, [], [], why))
        for k in range(how.rounds):
            _round([one for one in drafts if not one.why], judge, how, k, step)
        made = []
        for i, one in zip(places, drafts, strict=True):
            rows = [] if one.why else [_row(one, how)]
            made.append(Made(i, rows, 1, cut_off=one.why == "cut off", failed=one.why == "unread"))
        yield made


def _round(drafts: list[_Draft], judge: Judge, how: Constitution, k: int, step: Step) -> None:
    """One critique and one revision of each reply, both by the same principle."""
    if not drafts:
        return
    consider, rewrite = WORDS[how.words]
    asked = []
    for one in drafts:
        one.principles.append(randomness.rng("principle", one.task.key, k).choice(how.principles))
        asked.append(question(consider, _shown(one), principle=one.principles[-1]))
    for one, (answer,) in zip(drafts, judge.ask(asked, step), strict=True):
        one.critiques.append(answer.text.strip())
        one.why = "unread" if answer.failed else one.why
    live = [one for one in drafts if not one.why]
    asked = [
        question(rewrite, [*_shown(one), ("critique", one.critiques[-1])], principle=one.principles[-1]) for one in live
    ]
    for one, (answer,) in zip(live, judge.ask(asked, step) if asked else [], strict=True):
        one.reply = answer.text.strip()
        one.why = "unread" if answer.failed or is_master_key(one.reply) else one.why


def _shown(one: _Draft) -> list[tuple[str, str]]:
    return [("request", prompt_shown(one.task.prompt)), ("reply", one.reply)]


def _row(one: _Draft, how: Constitution) -> Row:
    prompt = prompt_in(one.task, "conversational")
    said = {"principles": one.principles, "critiques": one.critiques}
    if how.pairs:
        return {"prompt": prompt, "chosen": _as_reply(one.reply), "rejected": _as_reply(one.first), **said}
    return {"prompt": prompt, "completion": _as_reply(one.reply), "first": one.first, **said}


def _as_reply(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


# ------------------------------------------------------------------------------------------------------------- lessons


def lessons(source: Source, principles: Sequence[str], count: int) -> Iterator[Row]:
    """Rows that teach a small model the brief questions, from tasks with a preferred and another reply.

    The critique of the other reply is "bad", that of the preferred one "good"; the revision of either is the preferred
    one; and of both by a principle the letter of the preferred one, in both orders.
    """
    for i in range(count):
        task = as_pair(source.task("train", i))
        better, worse = (str(task.given[side]) for side in ("chosen", "rejected"))
        asked, principle = prompt_shown(task.prompt), principles[i % len(principles)]
        for reply, critique in ((worse, "bad"), (better, "good")):
            shown = [("request", asked), ("reply", reply)]
            yield _lesson(question(CONSIDER_BRIEF, shown, principle=principle), critique)
            revised = question(REVISE_BRIEF, [*shown, ("critique", critique)], principle=principle)
            yield _lesson(revised, better)
        for letter, first, second in (("A", better, worse), ("B", worse, better)):
            data = (("request", asked), ("A", first), ("B", second))
            yield _lesson(question(PRINCIPLE_PAIR_BRIEF, data, principle=principle), letter)


def _lesson(asked: Question, answer: str) -> Row:
    return {"prompt": [{"role": "user", "content": asked.text}], "completion": _as_reply(answer)}
