"""Rewards from a judge that grades one reply at a time: by a rubric, or by criteria made for the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from burnish import papers
from burnish.core.method import Group, Option, Part, Step
from burnish.judges import read, vote
from burnish.judges.question import Question, question
from burnish.judges.templates import BY_CRITERIA, MAKE_CRITERIA, RUBRIC
from burnish.rewards import Scorer, register_reward
from burnish.score.judges import Judge, read_judge
from burnish.score.judges.asked import Item, Writer, items_of, note_unread, reason
from burnish.score.judges.pointwise import pointwise
from burnish.tasks.source import Source
from burnish.util.paths import expanded

JudgeText = Annotated[str, Option("Who judges: a model's name or directory, policy, or endpoint(URL, MODEL).")]
Samples = Annotated[int, Option("Answers sampled for each question, of which the mean counts.", at_least=1)]
Unparsed = Annotated[
    float | None, Option("The score where no answer can be read; without one the reply counts as failed.")
]
GENERAL = "Does the reply do what the request asks, correctly and completely, without anything that it does not need?"


def text_or_file(given: str, what: str) -> str:
    """The text, or the content of the file that it names; raises ValueError for an empty one."""
    is_file = len(given) < 200 and "\n" not in given and expanded(given).is_file()
    text = expanded(given).read_text() if is_file else given
    if not text.strip():
        raise ValueError(f"{what} is empty; write the text, or the path of a file with it")
    return text.strip()


@register_reward(
    summary="A judge grades each reply by a rubric, on a scale that becomes 0 to 1.",
    when="Quality that no program can check, and a model that can judge it.",
    example="burnish train grpo --task prompts.jsonl --reward 'rubric(runs/DIR/model, rubric.txt)'",
    trial={"judge": "tiny"},
)
def rubric(
    task: Source,
    judge: JudgeText,
    rubric: Annotated[str, Option("The rubric, or a file with it.")] = GENERAL,
    *,
    low: Annotated[int, Option("The lowest grade.", at_least=0)] = 1,
    high: Annotated[int, Option("The highest grade.", at_least=1)] = 10,
    samples: Samples = 1,
    unparsed: Unparsed = None,
) -> Scorer:
    """r = (mean over samples of the grade - low) / (high - low), in [0, 1].

    Answers that cannot be read do not count in the mean; a reply without any readable answer has failed, or scores
    `unparsed`. A reply without content (docs/judges.md) scores 0 and is not asked about.
    """
    words = text_or_file(rubric, "rubric")
    if high <= low:
        raise ValueError(f"rubric: high is {high}, which is not above low, {low}")
    who = read_judge(judge)

    def asking(item: Item) -> Question:
        data = (("request", item.prompt), ("reply", item.reply))
        return question(RUBRIC, data, rubric=words, low=str(low), high=str(high))

    def reading(text: str) -> float | None:
        grade = read.score(text, low, high)
        return None if grade is None else (grade - low) / (high - low)

    part = pointwise("rubric", who, asking, reading, samples=samples, unparsed=unparsed)
    return Scorer(part=part, models=who.models)


@register_reward(
    papers.CARMO,
    summary="The judge first writes criteria for the request, then grades each reply by them.",
    when="Requests so different that no rubric fits all.",
    example="burnish train grpo --task prompts.jsonl --reward 'carmo(runs/DIR/model)'",
    trial={"judge": "tiny"},
)
def carmo(
    task: Source,
    judge: JudgeText,
    *,
    criteria: Annotated[str, Option("Fixed criteria, one per line, or a file: the judge writes none.")] = "",
    most: Annotated[int, Option("Criteria for a request.", at_least=1, at_most=20)] = 6,
    low: Annotated[int, Option("The lowest grade.", at_least=0)] = 1,
    high: Annotated[int, Option("The highest grade.", at_least=1)] = 5,
    samples: Samples = 1,
    unparsed: Unparsed = None,
) -> Scorer:
    """c(x) = criteria from the request alone;  r = mean over criteria and samples of (grade - low) / (high - low)

    The criteria are asked for once per request, so all replies to it are graded by the same ones, and the question
    contains no reply. With fixed criteria it is a rubric judge. The abstract of the paper gives the two calls; prompts,
    scale and the mean over criteria are RECONSTRUCTED. Criteria that cannot be read fail the replies to the request.
    """
    if high <= low:
        raise ValueError(f"carmo: high is {high}, which is not above low, {low}")
    who, writer = read_judge(judge), Writer("carmo", unparsed)
    fixed = text_or_file(criteria, "criteria").splitlines() if criteria else []

    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        for item in (item for item in items if item.empty):
            writer.write(item, 0.0, "")
        live = [item for item in items if not item.empty]
        made = (
            {item.prompt: fixed for item in live} if fixed else criteria_for([i.prompt for i in live], who, step, most)
        )
        for item in (item for item in live if not made[item.prompt]):
            writer.write(item, None, "the judge wrote no criteria that could be read")
        live = [item for item in live if made[item.prompt]]
        asked = [_by_criteria(item, made[item.prompt], low, high) for item in live]
        answers = who.ask(asked, step, samples)
        unread = 0
        for item, own in zip(live, answers, strict=True):
            read_ = [None if a.failed else read.scores(a.text, len(made[item.prompt]), low, high) for a in own]
            unread += sum(grades is None for grades in read_)
            means = [None if grades is None else sum(grades) / len(grades) for grades in read_]
            value = vote.mean(means)
            writer.write(item, None if value is None else (value - low) / (high - low), reason(own))
        note_unread(step, unread, samples * len(live))
        return groups

    reads = who.reads | {"tokens:policy"}
    part = Part(name=f"carmo({who.name})", call=call, reads=reads, writes=writer.writes)
    return Scorer(part=part, models=who.models)


def criteria_for(prompts: Sequence[str], judge: Judge, step: Step, most: int) -> dict[str, list[str]]:
    """Request -> the criteria that the judge writes for it, from the request alone; none where it wrote none."""
    different = list(dict.fromkeys(prompts))
    asked = [question(MAKE_CRITERIA, (("request", prompt),), most=str(most)) for prompt in different]
    answers = judge.ask(asked, step)
    return {
        prompt: [] if own[0].failed else read.dashed_lines(own[0].text, most)
        for prompt, own in zip(different, answers, strict=True)
    }


def _by_criteria(item: Item, criteria: Sequence[str], low: int, high: int) -> Question:
    listed = "\n".join(f"{i}. {one}" for i, one in enumerate(criteria, 1))
    data = (("criteria", listed), ("request", item.prompt), ("reply", item.reply))
    return question(BY_CRITERIA, data, count=str(len(criteria)), low=str(low), high=str(high))
