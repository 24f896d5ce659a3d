"""Rewards from a judge that writes principles and a critique before it scores all replies of a group (SPCT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from burnish import papers
from burnish.core import randomness
from burnish.core.method import Group, Option, Part, Step, frozen
from burnish.core.types import Task, Trace, Turn
from burnish.judges import read, vote
from burnish.judges.question import Question, question
from burnish.judges.templates import PRINCIPLES, PRINCIPLES_BRIEF
from burnish.rewards import Scorer, register_reward
from burnish.rewards.compared import Words
from burnish.rewards.judged import JudgeText, Unparsed
from burnish.score.judges import Answer, read_judge
from burnish.score.judges.asked import Item, Writer, by_group, items_of, note_unread, reason
from burnish.score.reading import end_scores
from burnish.tasks.source import Source

META = "meta_judge"  # the model that scores critiques
_TEMPLATES = {"full": PRINCIPLES, "brief": PRINCIPLES_BRIEF}


@register_reward(
    papers.SPCT,
    summary="A judge writes principles, a critique and scores for all replies to a prompt; k samples vote.",
    when="A generative reward model (burnish train spct) and compute for several samples of it.",
    example="burnish train grpo --task prompts.jsonl --reward 'principles(runs/DIR/model, samples=8)'",
    trial={"judge": "tiny", "words": "brief", "samples": 2},
)
def principles(
    task: Source,
    judge: JudgeText,
    *,
    samples: Annotated[
        int, Option("Votes: samples of the judge, each with the replies in another order.", at_least=1)
    ] = 4,
    low: Annotated[int, Option("The lowest score.", at_least=0)] = 1,
    high: Annotated[int, Option("The highest score.", at_least=1)] = 10,
    words: Words = "full",
    meta: Annotated[str | None, Option("A reward model that scores critiques; only the best of them vote.")] = None,
    best: Annotated[int, Option("How many critiques vote, with `meta`.", at_least=1)] = 2,
    unparsed: Unparsed = None,
) -> Scorer:
    """S_i = sum over the voting samples of score_i;  r_i = (S_i / votes - low) / (high - low)

    All replies to a prompt stand in one question, in another order in each sample; scores are put back in the order of
    the replies before they are summed. A sample with a missing score does not vote; if none votes, the replies have
    failed. S / votes orders the replies as the paper's sum S does, and is comparable between prompts. samples=1 is a
    plain judge; without `meta` all samples vote. The meta reward model is a scalar model that reads question and
    answer; the paper trains it by BCE on whether the verdict is right.
    """
    if high <= low:
        raise ValueError(f"principles: high is {high}, which is not above low, {low}")
    who, writer, template = read_judge(judge), Writer("principles", unparsed), _TEMPLATES[words]

    def asked_for(own: list[Item]) -> list[tuple[list[int], Question]]:
        found = []
        for k in range(samples):
            order = randomness.shuffled(len(own), "vote", own[0].prompt, *(item.reply for item in own), k)
            data = [("request", own[0].prompt), *((f"reply {p + 1}", own[i].reply) for p, i in enumerate(order))]
            asked = question(template, data, count=str(len(own)), low=str(low), high=str(high))
            found.append((order, replace(asked, number=k)))  # another answer even where two samples have one order
        return found

    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        for item in (item for item in items if item.empty):
            writer.write(item, 0.0, "")
        parties = by_group([item for item in items if not item.empty])
        asked = [asked_for(own) for own in parties]
        flat = [one for own in asked for _, one in own]
        answers = [one[0] for one in who.ask(flat, step)]
        trusted = _trusted(flat, answers, samples, best, step) if meta else [True] * len(flat)
        unread = 0
        for k, own in enumerate(parties):
            votes: list[Sequence[float] | None] = []
            for m, (order, _) in enumerate(asked[k]):
                answer = answers[k * samples + m]
                scores = None if answer.failed else read.brief_scores(answer.text, len(own), low, high)
                unread += scores is None
                if trusted[k * samples + m]:
                    votes.append(None if scores is None else vote.unshuffled(scores, order))
            total, count = vote.voted(votes), sum(one is not None for one in votes)
            for i, item in enumerate(own):
                value = None if total is None else (total[i] / count - low) / (high - low)
                writer.write(item, value, reason(answers[k * samples : (k + 1) * samples]))
        note_unread(step, unread, len(flat))
        return groups

    roles = {**who.models, **({META: frozen(meta, outputs=1)} if meta else {})}
    reads = who.reads | {"tokens:policy"} | ({f"model:{META}.score"} if meta else set())
    return Scorer(part=Part(name=f"principles({who.name})", call=call, reads=reads, writes=writer.writes), models=roles)


def _trusted(asked: list[Question], answers: list[Answer], samples: int, best: int, step: Step) -> list[bool]:
    """Of each `samples` answers, whether it is among the `best` by the meta reward model; failed ones never are."""
    model = step.models[META]
    chat = model.chat
    traces = [
        Trace(
            (
                Turn(chat.prompt(Task("question", ({"role": "user", "content": one.text},), {}, one.key)), "task"),
                Turn(chat.reply(answer.text), "judge"),
            )
        )
        for one, answer in zip(asked, answers, strict=True)
    ]
    worth = [float(score) for score in end_scores(traces, model, step.settings.token_budget)]
    trusted = [False] * len(asked)
    for start in range(0, len(asked), samples):
        known = [i for i in range(start, start + samples) if not answers[i].failed]
        for i in sorted(known, key=lambda i: -worth[i])[:best]:
            trusted[i] = True
    return trusted
