"""What a reply is worth to another model that answers after reading it."""

from __future__ import annotations

from burnish import papers
from burnish.core.method import Group, Part, Step
from burnish.judges.question import question
from burnish.judges.templates import ANSWER, ANSWER_BRIEF
from burnish.rewards import Scorer, register_reward
from burnish.rewards.compared import Words
from burnish.rewards.judged import JudgeText, Unparsed
from burnish.score.judge import judge as verdicts_of
from burnish.score.judges import read_judge
from burnish.score.judges.asked import Writer, items_of, note_unread
from burnish.tasks.source import Source

TEMPLATES = {"full": ANSWER, "brief": ANSWER_BRIEF}


@register_reward(
    papers.HAWKEYE,
    summary="1 where another model, which reads the reply as thoughts, answers the task correctly.",
    when="A large model shall think in few words, so that a small one can answer after it.",
    example="burnish train grpo --reward 'answered_by(runs/DIR/model)' --shape 'hawkeye(1)'",
    trial={"judge": "tiny", "words": "brief"},
)
def answered_by(task: Source, judge: JudgeText, *, words: Words = "full", unparsed: Unparsed = 0.0) -> Scorer:
    """r(y) = 1 if z ~ other(. | x, y) is correct by the task's verifier, else 0  (HAWKEYE, arXiv 2504.00424)

    The policy's reply is the chain, `judge` the small model that writes the reply after it; with the shape `hawkeye` it
    is the paper's reward. Nothing keeps the answer out of the chain: a chain that only states the answer is the
    shortest one that helps, which is what the paper's compression is about. An answer that does not come scores
    `unparsed`. An other model that ignores the chain gives every reply the same reward, and nothing is learned.
    """
    other, writer, template = read_judge(judge), Writer("answered_by", unparsed), TEMPLATES[words]

    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        asked = [question(template, (("request", item.prompt), ("thoughts", item.reply))) for item in items]
        answers = [own[0] for own in other.ask(asked, step)]
        came = [(item, answer.text) for item, answer in zip(items, answers, strict=True) if not answer.failed]
        found = iter(verdicts_of(task, [item.task for item, _ in came], [text for _, text in came]) if came else [])
        for item, answer in zip(items, answers, strict=True):
            value = None if answer.failed else float(next(found).correct)
            writer.write(item, value, answer.why)
        note_unread(step, sum(answer.failed for answer in answers), len(answers))
        return groups

    reads = other.reads | {"tokens:policy"}
    part = Part(name=f"answered_by({other.name})", call=call, reads=reads, writes=writer.writes)
    return Scorer(part=part, models=other.models)
