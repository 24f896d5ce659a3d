"""Rewards from a judge that compares the replies of a group, or a reply with an anchor."""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import papers
from burnish.core.method import Group, Option, Part, Step
from burnish.judges import vote
from burnish.judges.templates import GRADED_PAIR, GRADED_PAIR_BRIEF, PAIRWISE, PAIRWISE_BRIEF
from burnish.rewards import Scorer, register_reward
from burnish.rewards.judged import JudgeText, Unparsed
from burnish.score.judges import read_judge
from burnish.score.judges.asked import Writer, items_of
from burnish.score.judges.pairs import ROW, differences, win_chances
from burnish.tasks.source import Source

_GRADED = {"full": GRADED_PAIR, "brief": GRADED_PAIR_BRIEF}
_PAIRWISE = {"full": PAIRWISE, "brief": PAIRWISE_BRIEF}
Words = Annotated[Literal["full", "brief"], Option("How much is said in a question; brief is for small models.")]


@register_reward(
    papers.THINK_RM,
    summary="A judge compares each pair of a group on a scale of -3 to 3; a reply's reward is its mean lead.",
    when="A judge compares better than it grades; costs n (n - 1) / 2 questions for n replies.",
    example="burnish train grpo --task prompts.jsonl --reward 'pairwise(runs/DIR/model)'",
    trial={"judge": "tiny", "words": "brief"},
)
def pairwise(
    task: Source,
    judge: JudgeText,
    *,
    words: Words = "full",
    orders: Annotated[int, Option("Orders in which a pair is shown: 1 or both.", at_least=1, at_most=2)] = 1,
    unparsed: Unparsed = None,
) -> Scorer:
    """r_i = (1/G) sum over j of d_ij, with d_ij in {-3, ..., 3} the judge's verdict on the pair, d_ji = -d_ij, d_ii = 0

    Each pair is asked about once, in an order that depends on a hash of the two texts, and the sign is turned back, so
    a preference of the judge for a position cancels on average; orders=2 asks both ways and takes the mean. A verdict
    that cannot be read is 0, as in the paper; a reply of which none could be read has failed. Their share is the metric
    judge_unread. GRPO's advantage of r is that of the paper if d_ij = r_i - r_j (burnish train pairwise_grpo has the
    paper's own divisor).
    """
    who, writer = read_judge(judge), Writer("pairwise", unparsed)
    template = _GRADED[words]

    def call(groups: list[Group], step: Step) -> list[Group]:
        for party in differences(groups, who, template, orders, step):
            strengths = vote.pair_strengths(party.matrix)
            for place, (item, row, strength) in enumerate(zip(party.own, party.matrix, strengths, strict=True)):
                item.trace.note[ROW] = row
                writer.write(item, None if party.why.get(place) else strength, party.why.get(place, ""))
        return groups

    reads = who.reads | {"tokens:policy"}
    part = Part(name=f"pairwise({who.name})", call=call, reads=reads, writes=writer.writes)
    return Scorer(part=part, models=who.models)


@register_reward(
    papers.PAIRWISE_RL,
    summary="The probability that a generative judge prefers a reply to the row's anchor answer, in both orders.",
    when="Each row has a good answer, and a judge that was trained to compare (burnish train pairwise_rl).",
    example="burnish train ppo --task data.jsonl --reward 'anchor(runs/DIR/model, column=answer)'",
    trial={"judge": "tiny", "words": "brief"},
)
def anchor(
    task: Source,
    judge: JudgeText,
    *,
    column: Annotated[str, Option("The column with the anchor answer.")] = "demo",
    words: Words = "full",
    unparsed: Unparsed = None,
) -> Scorer:
    """r(y) = ( p(A | y, anchor) + 1 - p(A | anchor, y) ) / 2,  p(A | a, b) = P(A) / (P(A) + P(B)) of the first token

    RECONSTRUCTED from the abstract and a review (arXiv 2504.04950): the anchor is the prompt's given answer. A reply
    that is the anchor gets exactly 1/2; a judge that ignores the anchor gives a pointwise reward.
    """
    if column not in task.gives:
        raise ValueError(
            f"task {task.name!r} has no column {column!r} to compare replies with; name one with anchor(column=...)"
        )
    who, writer, template = read_judge(judge), Writer("anchor", unparsed), _PAIRWISE[words]

    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        live = [item for item in items if not item.empty]
        for item in (item for item in items if item.empty):
            writer.write(item, 0.0, "")
        values = win_chances([(i.prompt, i.reply, str(i.task.given[column])) for i in live], who, template, step)
        for item, (value, why) in zip(live, values, strict=True):
            writer.write(item, value, why)
        return groups

    reads = who.reads | {"tokens:policy", f"given:{column}"}
    part = Part(name=f"anchor({who.name})", call=call, reads=reads, writes=writer.writes)
    return Scorer(part=part, models=who.models)
