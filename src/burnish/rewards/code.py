"""Rewards of programs that need more than their text: RLTF's penalty on the tokens of the line that failed."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from burnish.core.method import Group, Option, Part, Step, Trace
from burnish.models.chat import Chat
from burnish.papers import rewards as papers
from burnish.rewards import DENSE, Scorer, mark_failed, register_reward
from burnish.score.judge import reply_text
from burnish.score.segments import tokens_of
from burnish.tasks.source import Source
from burnish.tasks.task_set import sandboxed
from burnish.verifiers.code.grader import code_grader
from burnish.verifiers.code.outcome import Class, Outcome

_NAME = "rltf_lines"
_ERRORS = (Class.SYNTAX, Class.RUNTIME)


@register_reward(
    papers.RLTF,
    summary="RLTF's fine-grained part: a penalty on the tokens of the line at which a program failed.",
    when="Programs raise errors, and the method has token rewards (ppo).",
    example="burnish train ppo --task code:3 --reward 'rltf,rltf_lines'",
)
def rltf_lines(
    task: Source,
    penalty: Annotated[float, Option("What the tokens of the line get together.", at_most=0)] = -0.3,
) -> Scorer:
    """r_t = penalty / |line| at the tokens of the line that raised the first error, so that they sum to the penalty.

    A syntax or runtime error without a known line puts it on all tokens of the reply; other outcomes get none.
    penalty = 0 is RLTF without its fine-grained part. The paper multiplies the log-probs of the line by its reward and
    scales by (all tokens / tokens of the line); here the mean over the line's tokens is taken. Departure: the paper
    decides by the class of an exception whether its line is to blame; here it is whenever the line is the program's.
    """
    source = sandboxed(task)
    if source is not None and source.scorer()["kind"] != "code":
        source = None  # refused when it is used: a scorer is built for any task

    def call(groups: list[Group], step: Step) -> list[Group]:
        if source is None:
            raise ValueError(
                f"{_NAME} needs a task with tests of programs, which {task.name!r} is not; try --task code:3"
            )
        chat = step.models["policy"].chat
        asked = [(group.task, trace) for group in groups for trace in group.traces]
        problems = [source.facts(one) for one, _ in asked]
        replies = [reply_text(trace, chat) for _, trace in asked]
        outcomes = code_grader(isolated=source.scorer()["isolated"]).outcomes(problems, replies)
        for (_, trace), outcome in zip(asked, outcomes, strict=True):
            if outcome.failed:
                mark_failed(trace, outcome.reason)
            trace.streams[DENSE + _NAME] = token_penalties(trace, outcome, chat, penalty)
        return groups

    part = Part(name=_NAME, call=call, reads=frozenset({"tokens:policy"}), writes=frozenset({f"stream:{DENSE}{_NAME}"}))
    return Scorer(part=part, dense=True)


def token_penalties(trace: Trace, outcome: Outcome, chat: Chat, penalty: float) -> Tensor:
    """[T]: penalty / |line| at the tokens of the failed line, 0 at the policy's other tokens, NaN elsewhere."""
    own = trace.by("policy")
    stream = torch.where(own, 0.0, math.nan)
    if outcome.kind not in _ERRORS:
        return stream
    places = torch.nonzero(own).flatten()
    if outcome.place is not None:
        tokens = torch.cat([turn.tokens for turn in trace.turns[1:]])
        first, last = tokens_of(tokens, chat, outcome.place)
        offset = len(own) - len(tokens)
        inside = (places >= offset + first) & (places < offset + last)
        places = places[inside] if bool(inside.any()) else places
    if len(places):
        stream[places] = penalty / len(places)
    return stream
