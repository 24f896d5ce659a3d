"""Rewards from encoders: a classifier of prompt and reply, and one that compares two replies."""

from __future__ import annotations

import re
from typing import Annotated

from burnish.core.messages import prompt_shown
from burnish.core.option import Option
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.score.encoders import Encoder, first_wins, only
from burnish.score.judge import reply_text
from burnish.tasks.source import Source

PAIRRM = "<|source|>{prompt}<|candidate1|>{first}<|candidate2|>{second}"


@register_reward(
    summary="The output of an encoder (BERT, DeBERTa) for a prompt and a reply.",
    when="The reward model is a sequence classifier that is no language model.",
    example="burnish train grpo --task prompts.jsonl --reward 'encoder(models/deberta-reward)'",
    trial={"model": "tiny"},
)
def encoder(task: Source, model: str) -> Scorer:
    """r(x, y): the one output of a sequence classifier whose first segment is the prompt and whose second is the reply.

    The model has a tokenizer of its own; prompt and reply are given as texts, the longer one cut to what it can read.
    """
    reader, name = Encoder(model), f"{MEASURED}encoder"

    def call(groups: list[Group], step: Step) -> list[Group]:
        policy = step.models["policy"]
        said = [
            (prompt_shown(group.task.prompt), reply_text(trace, policy.chat))
            for group in groups
            for trace in group.traces
        ]
        found = only(reader(said, policy.device), model).tolist()
        for trace, score in zip((trace for group in groups for trace in group.traces), found, strict=True):
            trace.scores[name] = score
        return groups

    part = Part(name="encoder", call=call, reads=frozenset({"tokens:policy"}), writes=frozenset({f"score:{name}"}))
    return Scorer(part=part)


@register_reward(
    summary="How often an encoder of two replies, as PairRM is, prefers a reply to the others of its group.",
    when="The preference model reads two replies at once.",
    example="burnish train grpo --task prompts.jsonl --reward 'pair_encoder(models/pair)'",
    trial={"model": "tiny"},
)
def pair_encoder(
    task: Source,
    model: str,
    *,
    form: Annotated[str, Option("The text that it reads, with {prompt}, {first} and {second}.")] = PAIRRM,
) -> Scorer:
    """r_i = mean over j != i of P_ij,  P_ij = ( p(y_i, y_j) + 1 - p(y_j, y_i) ) / 2;  1/2 for a reply alone

    p: the chance that the first reply is better, the sigmoid of the one output or of the gap of the two. Each pair is
    read in both orders, so that a preference for a position cancels.
    """
    for word in ("{prompt}", "{first}", "{second}"):
        if word not in form:
            raise ValueError(f"pair_encoder: form is {form[:60]!r}, which has no {word}")
    reader, name = Encoder(model), f"{MEASURED}pair_encoder"

    def call(groups: list[Group], step: Step) -> list[Group]:
        policy = step.models["policy"]
        for group in groups:
            prompt, said = prompt_shown(group.task.prompt), [reply_text(trace, policy.chat) for trace in group.traces]
            pairs = [(i, j) for i in range(len(said)) for j in range(len(said)) if i != j]
            texts = [filled(form, prompt=prompt, first=said[i], second=said[j]) for i, j in pairs]
            found = first_wins(reader(texts, policy.device), model).tolist()
            chances = dict(zip(pairs, found, strict=True))
            for i, trace in enumerate(group.traces):
                wins = [(chances[i, j] + 1 - chances[j, i]) / 2 for j in range(len(said)) if j != i]
                trace.scores[name] = sum(wins) / len(wins) if wins else 0.5
        return groups

    part = Part(name="pair_encoder", call=call, reads=frozenset({"tokens:policy"}), writes=frozenset({f"score:{name}"}))
    return Scorer(part=part)


def filled(form: str, **parts: str) -> str:
    """The form with its {words} replaced, all at once: a reply that spells one of them stays as it is."""
    return re.sub(r"\{(" + "|".join(parts) + r")\}", lambda match: parts[match[1]], form)
