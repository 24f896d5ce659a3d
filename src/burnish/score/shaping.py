"""Reward shaping: partial credit for stating an answer, and for correcting or breaking an earlier reply."""

from __future__ import annotations

import re

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.judge import reply_text
from burnish.score.reading import end_scores, require_same_tokens
from burnish.score.shape import Moments

_STATED = re.compile(r"answer\s*:\s*\S|####\s*\S|\\boxed\s*\{", re.IGNORECASE)


@supplies("score:shaped")
def partial_for_answering(partial: float, *, reader: str = "policy") -> Part:
    """shaped = the reward, or `partial` if that is 0 and the reply states an answer (R3, arXiv 2402.05808).

    An answer is stated by `answer: ...`, `#### ...` or `\\boxed{...}`.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        stated = _STATED.search(reply_text(trace, step.models[reader].chat)) is not None
        reward = trace.scores["reward"]
        trace.scores["shaped"] = partial if reward == 0 and stated else reward
        step.notes.add("answered", stated)

    return per_trace(
        write,
        name=f"partial_for_answering({partial:g})",
        reads=frozenset({"score:reward"}),
        writes=frozenset({"score:shaped"}),
    )


@supplies("score:preference")
def squashed_model(moments: Moments, model: str = "rm") -> Part:
    """preference = sigmoid of the model's score, standardised (Satori, arXiv 2502.02508).

    Mean and deviation are running moments of the model's scores, this batch's included.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        require_same_tokens(model, "policy", step)
        found = end_scores(traces, step.models[model], step.settings.token_budget)
        raw = [float(score.flatten()[0]) for score in found]
        moments.see(raw)
        standard = torch.tensor([(value - moments.mean) / moments.std for value in raw])
        for trace, value in zip(traces, torch.sigmoid(standard).tolist(), strict=True):
            trace.scores["preference"] = value
        return groups

    return Part(
        name=f"squashed_model({model})",
        call=call,
        reads=frozenset({"tokens:policy", f"model:{model}.score"}),
        writes=frozenset({"score:preference"}),
        state=(moments,),
    )


@supplies("score:shaped")
def reflection_reward(bonus: float, *adds: str) -> Part:
    """Satori's reward (arXiv 2502.02508): shaped = (1[correct] - 1) + the scores in `adds` + reflection bonus.

    Reflection bonus: +bonus if a restart from a wrong reply ends correct, -bonus if one from a correct reply ends
    wrong.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        right = bool(trace.scores["correct"])
        mended = "from wrong" in trace.tags and right
        broken = "from right" in trace.tags and not right
        trace.scores["shaped"] = float(right) - 1 + bonus * (mended - broken) + sum(trace.scores[name] for name in adds)
        if "from wrong" in trace.tags:
            step.notes.add("mended", mended)
        if "from right" in trace.tags:
            step.notes.add("broken", broken)

    return per_trace(
        write,
        name=f"reflection_reward({bonus:g})",
        reads=frozenset({"score:reward", "tag:from right", "tag:from wrong", *(f"score:{name}" for name in adds)}),
        writes=frozenset({"score:shaped"}),
    )
