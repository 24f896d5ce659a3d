"""Exploring Expert Failures Improves LLM Agent Tuning (arXiv 2504.13145)."""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Trace, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.recorded import RECORDED, Recorded, is_file_of_episodes
from burnish.zoo.playpen import Win

EEF = Paper("eef", "2504.13145", "Exploring Expert Failures Improves LLM Agent Tuning")


@register(
    EEF,
    family="agents",
    summary="Imitate won episodes, also those that the policy took over from an expert who was failing.",
    when="An expert fails on the hard tasks, and its first steps are good all the same.",
    example="burnish train eef --expert runs/DIR/model --task guess",
    trial={"task": "guess", "n": 2, "starts": 2, "win": 2.0, "expert": "tiny"},
)
def eef(
    task: draw.Source,
    *,
    expert: Annotated[
        str,
        Option(
            "The expert: a model's name or directory, with the policy's tokenizer, which plays; or a file of its "
            "recorded episodes (.jsonl), one row each with `messages` and `task`, the number of the training task."
        ),
    ],
    n: Annotated[int, Option("Episodes of the policy's own for each task.", at_least=1)] = 4,
    starts: Annotated[int, Option("States of a failed episode that are taken over.", at_least=1)] = 4,
    win: Win = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Exploring expert failures: rejection-sampling fine-tuning with takeovers.

    An expert plays each task. Where it fails, the policy takes over from at most `starts` evenly spaced states.
    L = -(1/N) sum of log pi over the N tokens of: the policy in episodes that were won, taken over or not; the expert
    in episodes that it won; the expert's steps before a takeover that was won, but for harmful ones

    A step of the expert is harmful if it lies between a start from which the policy won and the next, from which it
    did not. What is harmful depends on the policy of now and is found anew in each step. Without failures of the expert
    it is rejection sampling on both players' episodes. Reconstructed from second-hand text: the number of starts, their
    spacing and the rule of harmful steps.

    Recorded episodes are the paper's data: their actions are played again, the environment rewards them, and only the
    tasks of the file are drawn. A model that plays gives new episodes in every step.
    """
    recorded = is_file_of_episodes(expert)
    return method(
        draw=draw.prompts(Recorded(task, expert) if recorded else task, "env"),
        rollout=rollout.takeovers(n, starts, win, temperature=temperature, recorded=RECORDED if recorded else None),
        score=score.outcomes(win),
        credit=credit.claim("sft", "policy", "expert", tag="won", where=_not_harmful, needs=("tag:takeover",)),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), logp_temperature=1.0),
        models=roles() if recorded else roles(expert=frozen(expert)),
    )


def _not_harmful(trace: Trace) -> torch.Tensor:
    """[T]: the tokens of turns that are not harmful."""
    found = torch.ones(len(trace), dtype=torch.bool)
    for i, (_, start, end) in enumerate(trace.spans()):
        found[start:end] = i not in trace.note.get("harmful", ())
    return found
