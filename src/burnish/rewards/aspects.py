"""Ratings of replies by aspects: the data engines of UltraFeedback and CodeUltraFeedback, also as rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from burnish import papers
from burnish.core import randomness
from burnish.core.method import Group, Option, Part, Step
from burnish.core.scorer import FEEDBACK, RATINGS, SPAN
from burnish.core.seeds import key_of
from burnish.judges import read, vote
from burnish.judges.question import Question, question
from burnish.judges.templates import ASPECT, OPINION
from burnish.rewards import Scorer, register_reward
from burnish.rewards.judged import JudgeText, Unparsed, text_or_file
from burnish.score.judges import Judge, read_judge
from burnish.score.judges.asked import Item, Writer, by_group, items_of, note_unread, reason
from burnish.tasks.source import Source

GENERAL = {
    "instruction following": "does the reply do what the request asks, within its constraints?",
    "truthfulness": "is what the reply says true, consistent with the request and with itself?",
    "honesty": "does the reply say how sure it is, and is it as sure as it may be?",
    "helpfulness": "is the reply useful: correct, complete and to the point?",
}
CODE = {
    "instruction following": "does the reply do what the request asks, within its constraints?",
    "explanation": "does the reply explain its code clearly, at the right length?",
    "complexity": "is the solution as simple and efficient as the problem allows?",
    "readability": "is the code easy to read: names, structure, comments where they help?",
    "style": "does the code follow the idioms and conventions of its language?",
}
LOW, HIGH = 1, 5
Critique = Annotated[bool, Option("Ask for feedback on each reply, too; burnish pairs writes it into the rows.")]
AspectsOf = Callable[[Item], Mapping[str, str]]
Aspects = Annotated[str, Option("Aspects, one `name: meaning` per line, or a file with them; by default the paper's.")]


@register_reward(
    papers.ULTRAFEEDBACK,
    summary="A judge rates all replies to a prompt from 1 to 5, aspect by aspect; the reward is the mean.",
    when="Building preference data (burnish pairs), for a reward model or DPO.",
    example="burnish pairs --task prompts.jsonl --n 4 --reward 'ultrafeedback(runs/DIR/model)' --out pairs.jsonl",
    trial={"judge": "tiny"},
)
def ultrafeedback(
    task: Source, judge: JudgeText, *, aspects: Aspects = "", critique: Critique = False, unparsed: Unparsed = None
) -> Scorer:
    """r_i = mean over aspects of the rating (1 to 5) of reply i;  margin of a pair = |r_w - r_l| / 4, in (0, 1]

    One question per aspect shows all replies in an order of its own, which is undone. An aspect that cannot be read
    is left out of the mean of all replies. The paper has four completions, each by one of 17 models under one of its
    principles: burnish pairs --n 4 --model A+B+C --principles FILE. critique=True asks for feedback on each reply, too,
    which `burnish pairs` keeps as columns; its overall score is not the reward: reward models from it were worse, and
    it has a known defect (10 written as 1). With keep=FILE of the judge, this feedback trains a critic (UltraCM). The
    normalisation of the margin is RECONSTRUCTED; `burnish pairs` writes it as column `grade`, for burnish train
    reward_model --grades grade. Without it, the margin is 0. Departure: the paper's principles fit the kind of prompt;
    here any line of the file is drawn.
    """
    listed, who = read_aspects(aspects, GENERAL), read_judge(judge)
    return _rated("ultrafeedback", who, lambda item: listed, Writer("ultrafeedback", unparsed), critique)


@register_reward(
    papers.CODEULTRAFEEDBACK,
    summary="A judge rates the replies to a code request by one of five coding preferences, from 1 to 5.",
    when="Building preference data for code (burnish pairs).",
    example="burnish pairs --task code.jsonl --n 4 --reward 'codeultrafeedback(runs/DIR/model)' --out pairs.jsonl",
    trial={"judge": "tiny"},
)
def codeultrafeedback(
    task: Source, judge: JudgeText, *, aspects: Aspects = "", critique: Critique = False, unparsed: Unparsed = None
) -> Scorer:
    """r_i = the rating (1 to 5) of reply i by the row's preference; one question for all replies of a row

    The preference is the row's column `preference`, or one of the five by a hash of the prompt. The question shows the
    replies in an order by a hash, which is undone (the published files keep the shuffled one). `burnish pairs` then
    pairs the best with the worst; rows whose best and worst are equal are dropped. The paper has replies of 14 models
    (--model A+B+C) and written feedback (critique=True), which the rows keep.
    """
    listed, who = read_aspects(aspects, CODE), read_judge(judge)

    def of(item: Item) -> Mapping[str, str]:
        names = list(listed)
        name = str(item.task.given.get("preference") or names[key_of("preference", item.prompt) % len(names)])
        if name not in listed:
            raise ValueError(
                f"task {item.task.key[:60]!r} has the preference {name!r}; the preferences are {', '.join(names)}"
            )
        return {name: listed[name]}

    return _rated("codeultrafeedback", who, of, Writer("codeultrafeedback", unparsed), critique)


def read_aspects(given: str, default: Mapping[str, str]) -> dict[str, str]:
    """Name -> meaning, from lines `name: meaning`; the default where nothing is given."""
    if not given:
        return dict(default)
    found = {}
    for line in filter(str.strip, text_or_file(given, "aspects").splitlines()):
        name, colon, meaning = line.partition(":")
        if not colon or not name.strip() or not meaning.strip():
            raise ValueError(f"the aspect {line[:60]!r} is not written as `name: meaning`")
        found[name.strip()] = meaning.strip()
    return found


def _rated(name: str, judge: Judge, aspects_of: AspectsOf, writer: Writer, critique: bool) -> Scorer:
    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        for item in (item for item in items if item.empty):
            writer.write(item, float(LOW), "")
        parties = by_group([item for item in items if not item.empty])
        asked = [(own, aspect, *_question(own, aspect, words)) for own in parties for aspect, words in _of(own)]
        answers = judge.ask([one[-1] for one in asked], step)
        ratings: dict[int, dict[str, float]] = {id(item): {} for item in items}
        why: dict[int, str] = {}
        for (own, aspect, order, _), found in zip(asked, answers, strict=True):
            scores = None if found[0].failed else read.scores(found[0].text, len(own), LOW, HIGH)
            for item, score in zip(own, vote.unshuffled(scores, order) if scores else [None] * len(own), strict=True):
                if score is None:
                    why[id(item)] = reason(found)
                else:
                    ratings[id(item)][aspect] = score
        unread = sum(len(_of(own)) - len(ratings[id(own[0])]) for own in parties)
        note_unread(step, unread, len(asked))
        for item in (item for own in parties for item in own):
            item.trace.note[RATINGS], item.trace.note[SPAN] = ratings[id(item)], float(HIGH - LOW)
            writer.write(item, vote.mean(list(ratings[id(item)].values())), why.get(id(item), ""))
        if critique:
            _note_feedback([item for own in parties for item in own], judge, step)
        return groups

    def _of(own: list[Item]) -> list[tuple[str, str]]:
        return list(aspects_of(own[0]).items())

    part = Part(name=f"{name}({judge.name})", call=call, reads=judge.reads | {"tokens:policy"}, writes=writer.writes)
    return Scorer(part=part, models=judge.models)


def _note_feedback(items: list[Item], judge: Judge, step: Step) -> None:
    """What the judge writes about each reply, in its note; nothing where it gave no answer."""
    asked = [question(OPINION, [("request", item.prompt), ("reply", item.reply)]) for item in items]
    for item, (answer,) in zip(items, judge.ask(asked, step), strict=True):
        if not answer.failed:
            item.trace.note[FEEDBACK] = answer.text


def _question(own: list[Item], aspect: str, meaning: str) -> tuple[list[int], Question]:
    """The replies in an order by a hash, and the question that shows them in it."""
    order = randomness.shuffled(len(own), "aspect", aspect, own[0].prompt, *(item.reply for item in own))
    data = [("request", own[0].prompt), *((f"reply {p + 1}", own[i].reply) for p, i in enumerate(order))]
    words = {"aspect": aspect, "meaning": meaning, "low": str(LOW), "high": str(HIGH), "count": str(len(own))}
    return order, question(ASPECT, data, **words)
