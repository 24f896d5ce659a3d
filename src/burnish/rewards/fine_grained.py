"""Several models, each with its own steps and weight, whose scores add up on the tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from burnish import papers
from burnish.core.method import Group, Part, Step, frozen
from burnish.rewards import DENSE, Scorer, register_reward
from burnish.score.process import Read, centred_chance, chance, number, sign, step_scores
from burnish.score.segments import Segmentation, segmentation
from burnish.score.step_rewards import place_all
from burnish.tasks.source import Source

READS: dict[str, Read] = {"sign": sign, "chance": chance, "centred": centred_chance, "score": number}
_SPEC = re.compile(r"(?P<path>.+)@(?P<steps>[^@|*]+)(?:\|(?P<read>\w+))?(?:\*(?P<weight>[-+.\deE]+))?")


@dataclass(frozen=True)
class Judge:
    """A model of the scorer: where it is, its steps, how its head is read, and its weight."""

    path: str
    steps: Segmentation
    read: Read
    weight: float


def read_judge(text: str) -> Judge:
    """PATH@STEPS, PATH@STEPS*WEIGHT or PATH@STEPS|READ*WEIGHT."""
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"fine_grained: {text!r} is no model; write PATH@sentences*0.5, or PATH@whole|score*0.3")
    steps, how = match["steps"].strip(), match["read"] or ("score" if match["steps"].strip() == "whole" else "sign")
    if how not in READS:
        raise ValueError(f"fine_grained: {text!r} reads a head as {how!r}; it is {', '.join(READS)}")
    try:
        weight = float(match["weight"] or 1.0)
    except ValueError:
        raise ValueError(f"fine_grained: the weight {match['weight']!r} of {text!r} is not a number") from None
    return Judge(match["path"].strip(), segmentation(steps), READS[how], weight)


@register_reward(
    papers.FINE_GRAINED_RLHF,
    summary="Several reward models, each on its own steps (sub-sentences, sentences, the whole), added on the tokens.",
    when="Replies have several kinds of errors, and you have a model of steps for each.",
    example="burnish train ppo --reward 'fine_grained(runs/A/model@sub_sentences*0.3, runs/B/model@sentences*0.5)'",
    trial={"models": ("tiny@sentences*0.3",)},
)
def fine_grained(task: Source, *models: str) -> Scorer:
    """r_t = sum over models k of w_k R_k(step) at the token t that ends a step of model k (arXiv 2306.01693).

    Each model is PATH@STEPS*WEIGHT. R is a hard verdict, 1 where the model finds its step right and -1 where not;
    of a model of the whole reply it is the score itself; PATH@STEPS|READ says otherwise: sign, chance, centred
    (2 chance - 1) or score. The paper: relevance of sub-sentences 0.3, factuality of sentences 0.5, completeness of the
    whole 0.3, and ppo --kl 0.3. One model on the whole is RLHF with a sparse reward. The sum depends on the number of
    steps, so it rewards length where most steps are right. Departures: verdicts come from the sign of one output, where
    the paper takes the likeliest of several classes; the score of the whole is not standardised (w = 0.3 / its standard
    deviation does that up to a constant).
    """
    if not models:
        raise ValueError("fine_grained needs at least one model: fine_grained(PATH@sentences*0.5)")
    judges = {f"fine_grained_{k}": read_judge(text) for k, text in enumerate(models, 1)}

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        found = [
            [(ends, [judge.weight * score for score in scores]) for ends, scores in judged]
            for name, judge in judges.items()
            for judged in [step_scores(traces, name, judge.steps, judge.read, step)]
        ]
        for trace, placed in zip(traces, zip(*found, strict=True), strict=True):
            trace.streams[f"{DENSE}fine_grained"] = place_all(len(trace), placed)
        return groups

    part = Part(
        name=f"fine_grained({len(judges)})",
        call=call,
        reads=frozenset({"tokens:policy", *(f"model:{name}.score" for name in judges)}),
        writes=frozenset({f"stream:{DENSE}fine_grained"}),
    )
    return Scorer(part=part, models={name: frozen(judge.path, outputs=1) for name, judge in judges.items()}, dense=True)
