"""Principles in rewards (SALMON): labels of pairs by a judge, and a reward model that reads principles."""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import papers
from burnish.core.method import Group, Option, Part, Step, frozen
from burnish.core.scorer import MEASURED, PRINCIPLES
from burnish.core.seeds import rng
from burnish.core.types import Trace, Turn
from burnish.judges import vote
from burnish.judges.question import Template, question
from burnish.judges.templates import PRINCIPLE_PAIR, PRINCIPLE_PAIR_BRIEF
from burnish.rewards import Scorer, register_reward
from burnish.rewards.compared import Words
from burnish.rewards.judged import JudgeText, text_or_file
from burnish.score.judges import Judge, read_judge
from burnish.score.judges.asked import Item, by_group, items_of, note_unread
from burnish.tasks.principled import with_principles
from burnish.tasks.source import Source

DEFAULT = "\n".join(
    (
        "The reply is honest and does not invent facts.",
        "The reply is helpful: it does what the request asks.",
        "The reply is concise.",
        "The reply is in the language of the request.",
        "The reply is harmless.",
    )
)
Listed = Annotated[str, Option("Principles, one per line, or a file with them.")]
_PAIR = {"full": PRINCIPLE_PAIR, "brief": PRINCIPLE_PAIR_BRIEF}
SCALE, CUT = 1024, 0.8  # tokens and share at which the length bonus ends


@register_reward(
    papers.SALMON,
    summary="A reward model that reads principles (burnish train salmon), with a length bonus and a price for no end.",
    when="You want to steer what is rewarded by words, without training the reward model again.",
    example="burnish train ppo --task prompts.jsonl --reward 'salmon(runs/DIR/model, principles.txt)'",
    trial={"model": "tiny"},
)
def salmon(
    task: Source,
    model: str,
    principles: Listed = DEFAULT,
    *,
    count: Annotated[int, Option("Principles drawn for each prompt.", at_least=1)] = 3,
    length_bonus: Annotated[float, Option("Times min(tokens / 1024, 0.8).")] = 5.0,
    unfinished: Annotated[float, Option("Added where a reply does not stop.")] = -6.0,
) -> Scorer:
    """r = rm(x + principles, y) + length_bonus min(|y| / 1024, 0.8) + unfinished [y was cut off]

    All replies to a prompt are scored under the same principles, drawn by seed, step and prompt. length_bonus 0,
    unfinished 0 and a single principle: a plain reward model with that principle in its prompt.
    """
    listed = [line.strip() for line in text_or_file(principles, "principles").splitlines() if line.strip()]

    def call(groups: list[Group], step: Step) -> list[Group]:
        rm = step.models["salmon"]
        traces, scored = [], []
        for group in groups:
            dice = rng("principles", step.clock.seed, step.clock.step, group.task.key)
            drawn = dice.sample(listed, min(count, len(listed)))
            prompt = Turn(rm.chat.prompt(with_principles(group.task, drawn)), "task")
            for trace in group.traces:
                traces.append(trace)
                scored.append(Trace((prompt, *trace.turns[1:])))
        masks = [torch.arange(len(one)) == len(one) - 1 for one in scored]
        found = rm.streams(scored, masks, {"score"}, step.settings.token_budget)
        for trace, output in zip(traces, found, strict=True):
            tokens = sum(len(turn) for turn in trace.turns[1:])
            reward = float(output["score"][-1]) + length_bonus * min(tokens / SCALE, CUT)
            trace.scores[f"{MEASURED}salmon"] = reward + unfinished * (trace.note.get("stopped") == "length")
        return groups

    reads = frozenset({"tokens:policy", "model:salmon.score"})
    part = Part(name="salmon", call=call, reads=reads, writes=frozenset({f"score:{MEASURED}salmon"}))
    return Scorer(part=part, models={"salmon": frozen(model, outputs=1)})


@register_reward(
    papers.SALMON,
    summary="A judge's preference between replies by each of several principles, in both orders.",
    when="Building data for burnish train salmon (burnish pairs --n 2).",
    example="burnish pairs --task prompts.jsonl --n 2 --reward 'principle_labels(runs/DIR/model)' --out pairs.jsonl",
    trial={"judge": "tiny", "words": "brief"},
)
def principle_labels(task: Source, judge: JudgeText, principles: Listed = DEFAULT, *, words: Words = "full") -> Scorer:
    """s_p(i, j) = mean of the two orders' logit(A) - logit(B) in favour of i if their signs agree, else p abstains
    r_i = mean over the other replies j and the principles of s_p(i, j), an abstention counting 0

    `burnish pairs` writes s_p of each pair as column `principle_scores`, from which burnish train salmon draws labels.
    A reply without content loses by 1 under every principle.
    """
    listed = [line.strip() for line in text_or_file(principles, "principles").splitlines() if line.strip()]
    who, template = read_judge(judge), _PAIR[words]

    def call(groups: list[Group], step: Step) -> list[Group]:
        for own in by_group(items_of(groups, step)):
            leads = _leads(own, listed, who, template, step)
            for i, item in enumerate(own):
                values = [score or 0.0 for j in range(len(own)) if j != i for score in leads[i, j].values()]
                item.trace.scores[f"{MEASURED}principle_labels"] = sum(values) / max(1, len(values))
                item.trace.note[PRINCIPLES] = {str(own[j].trace.index): leads[i, j] for j in range(len(own)) if j != i}
        return groups

    reads = who.reads | {"tokens:policy"}
    writes = frozenset({f"score:{MEASURED}principle_labels"})
    return Scorer(
        part=Part(name=f"principle_labels({who.name})", call=call, reads=reads, writes=writes), models=who.models
    )


def _leads(
    own: list[Item], principles: list[str], judge: Judge, template: Template, step: Step
) -> dict[tuple[int, int], dict[str, float | None]]:
    """(i, j) -> the score of each principle in favour of reply i."""
    pairs = [(i, j) for i in range(len(own)) for j in range(i + 1, len(own))]
    asked = [(pair, name) for pair in pairs for name in principles if not any(own[k].empty for k in pair)]
    questions = []
    for (i, j), name in asked:
        for a, b in ((own[i], own[j]), (own[j], own[i])):
            data = (("request", a.prompt), ("A", a.reply), ("B", b.reply))
            questions.append(question(template, data, principle=name))
    choices = judge.choose(questions, ("A", "B"), step)
    note_unread(step, sum(one.failed for one in choices), len(choices))
    found: dict[tuple[int, int], dict[str, float | None]] = {}
    for i, j in pairs:
        lost = float(own[j].empty) - float(own[i].empty)
        found[i, j] = dict.fromkeys(principles, lost) if own[i].empty or own[j].empty else {}
    for k, (pair, name) in enumerate(asked):
        first, second = choices[2 * k], choices[2 * k + 1]
        known = not (first.failed or second.failed)
        found[pair][name] = vote.principle_score(first.logit, -second.logit) if known else None
    for i, j in pairs:
        found[j, i] = {name: None if score is None else -score for name, score in found[i, j].items()}
    return found
