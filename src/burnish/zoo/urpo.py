"""URPO: A Unified Reward & Policy Optimization Framework for Large Language Models (arXiv 2507.17515).

Scores that the policy gives to its own replies, as referee (URPO).

Tasks of three kinds from one source, for a model that is player and referee (URPO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from burnish import draw
from burnish.core import randomness
from burnish.core.parts import Part
from burnish.core.seeds import key_of
from burnish.core.step import Step
from burnish.core.task import NoVerifier, Task, Verdict
from burnish.core.types import Group
from burnish.judges import read, templates, vote
from burnish.judges.question import Template, question
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.judges.asked import Item, by_group, items_of, note_unread
from burnish.score.judges.judge import Judge
from burnish.score.judges.of_model import ModelJudge
from burnish.tasks.judged import RankedReplies, has_preferences
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

URPO = Paper("urpo", "2507.17515", "URPO: A Unified Reward & Policy Optimization Framework for Large Language Models")


KIND = "urpo_kind"


VERIFIED, REFEREE, OPEN = "verified", "referee", "open"


class Refereed(MadeTasks):
    """Each row becomes one kind of task, by a hash of its key and the shares, among the kinds that it can be:

    verified  the row has an answer: the source's verifier scores the reply
    referee   the row has preferences: the model scores the replies of the row; reward = rank agreement
    open      any row: the policy's own scores of the replies are the reward, which `self_scores` writes
    """

    eager = None

    def __init__(self, source: Source, template: Template, shares: dict[str, float]) -> None:
        super().__init__(source)
        self.shares = shares
        self.referee = RankedReplies(source, template) if has_preferences(source) else None
        self.gives = source.gives | {KIND}

    def task(self, split: str, index: int) -> Task:
        row = self.source.task(split, index)
        kind = self.kind(row)
        made = self.referee.question_about(row) if kind == REFEREE and self.referee is not None else row
        return replace(made, given={**made.given, KIND: kind})

    def kind(self, row: Task) -> str:
        """The kind of a row's task."""
        able = {VERIFIED: row.given.get("answer") is not None, REFEREE: self.referee is not None, OPEN: True}
        weights = {kind: share for kind, share in self.shares.items() if able[kind] and share > 0}
        if not weights:
            return VERIFIED if able[VERIFIED] else OPEN
        at = (key_of("urpo", row.key) % 2**32) / 2**32 * sum(weights.values())
        for kind, share in weights.items():
            at -= share
            if at < 0:
                return kind
        return next(reversed(weights))

    def require_verifier(self, split: str) -> None:
        """Held-out replies are judged by the source's own verifier; training needs none for every kind."""
        if split != "train":
            self.source.require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        """Verified tasks by the source, referee tasks by rank agreement; 0 for open ones."""
        found: dict[int, Verdict] = {i: Verdict(0.0, False) for i in range(len(tasks))}
        for kind, judge in ((VERIFIED, self.source), (REFEREE, self.referee)):
            own = [i for i, task in enumerate(tasks) if task.given.get(KIND) == kind]
            if own and judge is not None:
                try:
                    verdicts = judge.verdicts([tasks[i] for i in own], [replies[i] for i in own])
                except NoVerifier:
                    continue
                found |= dict(zip(own, verdicts, strict=True))
        return [found[i] for i in range(len(tasks))]


def self_scores(judge: Judge, template: Template, kind: tuple[str, str], *, low: int = 1, high: int = 10) -> Part:
    """scores["reward"] of the groups whose task is of a kind (column, value) = (score - low) / (high - low).

    The judge scores all replies of a group in one question, in a shuffled order. A reply without content gets 0. An
    answer that cannot be read leaves the group at reward 0, so nothing is learned from it. No gradient goes through
    these scores. Notes self_score, their mean.
    """
    column, value = kind

    def call(groups: list[Group], step: Step) -> list[Group]:
        chosen = [group for group in groups if group.task.given.get(column) == value]
        parties = [own for own in by_group(_shown(chosen, step)) if own]
        orders = [randomness.shuffled(len(own), "self", own[0].prompt, *(i.reply for i in own)) for own in parties]
        asked = []
        for own, order in zip(parties, orders, strict=True):
            data = [("request", own[0].prompt), *((f"reply {p + 1}", own[i].reply) for p, i in enumerate(order))]
            asked.append(question(template, data, count=str(len(own)), low=str(low), high=str(high)))
        unread = 0
        for own, order, (answer,) in zip(parties, orders, judge.ask(asked, step), strict=True):
            scores = None if answer.failed else read.brief_scores(answer.text, len(own), low, high)
            unread += scores is None
            for item, score in zip(own, vote.unshuffled(scores, order) if scores else [], strict=bool(scores)):
                item.trace.scores["reward"] = (score - low) / (high - low)
                step.notes.add("self_score", item.trace.scores["reward"])
        note_unread(step, unread, len(parties))
        return groups

    return Part(
        name=f"self_scores({judge.name})",
        call=call,
        reads=judge.reads | {"tokens:policy", "score:reward", f"given:{column}"},
        updates=frozenset({"score:reward"}),
    )


def note_agreement(kind: tuple[str, str]) -> Part:
    """Notes referee_agreement: the mean reward of the tasks of a kind, next to which self-scores must be read."""
    column, value = kind

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            if group.task.given.get(column) == value and group.traces:
                step.notes.add("referee_agreement", sum(t.scores["reward"] for t in group.traces), len(group.traces))
        return groups

    reads = frozenset({"score:reward", f"given:{column}"})
    return Part(name="note_agreement", call=call, reads=reads, updates=frozenset({"score:reward"}))


def _shown(groups: list[Group], step: Step) -> list[Item]:
    return [item for item in items_of(groups, step) if not item.empty]


Words = Annotated[Literal["full", "brief"], Option("How much a question says; brief is for small models.")]
_SCORES = {"full": templates.PRINCIPLES, "brief": templates.PRINCIPLES_BRIEF}
_SMALL = {"task": "sort:1", "words": "brief"}


@register(
    URPO,
    family="reward",
    summary="One model is player and referee: verifiable, preference and open-ended tasks in one GRPO run.",
    when="Some rows have answers, some preferences, some neither, and there is no reward model.",
    example="burnish train urpo --words brief",
    trial={"n": 4, **_SMALL},
)
def urpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.0,
    verified: Annotated[float, Option("Share of tasks with a verifier.", at_least=0)] = 1.0,
    referee: Annotated[float, Option("Share of preference tasks.", at_least=0)] = 1.0,
    open_ended: Annotated[float, Option("Share of open-ended tasks.", at_least=0)] = 1.0,
    max_tokens: Annotated[int, Option("The longest answer of the policy as referee.", at_least=1)] = 512,
    words: Words = "full",
) -> Method:
    """Unified reward and policy optimisation.

    R = verifier's 0 or 1 (verified), Kendall's tau-a of the written scores and the given order (referee),
        the policy's own score of the reply, (s - 1) / 9 (open);  GRPO within each group, one loss for all kinds

    Each row becomes one of the kinds that it can be: verified with an answer, referee with preferences, open always; by
    a hash of its key and the shares. The self-scores are those of the present weights, in one question per group, and
    no gradient goes through them. RECONSTRUCTED from the abstract and a review: tau-a with ties counting 0, -1 for
    scores that cannot be read. Only verified tasks: GRPO. Watch self_score next to referee_agreement: without
    preference tasks in each batch self-scores drift up.
    """
    source = Refereed(task, _SCORES[words], {VERIFIED: verified, REFEREE: referee, OPEN: open_ended})
    judge = ModelJudge("policy", "policy", max_tokens=max_tokens, moves=True)
    return judge_grpo(
        draw.prompts(source),
        source,
        n,
        eps,
        beta,
        note_agreement((KIND, REFEREE)),
        self_scores(judge, _SCORES[words], (KIND, OPEN)),
    )
