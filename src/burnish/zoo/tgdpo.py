"""TGDPO: Harnessing Token-Level Reward Guidance for Enhancing Direct Preference Optimization (arXiv 2506.14574)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw
from burnish.core.parts import Part, chain, per_trace, supplies
from burnish.core.schedules import is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs
from burnish.papers import Paper

TGDPO = Paper(
    "tgdpo", "2506.14574", "TGDPO: Harnessing Token-Level Reward Guidance for Enhancing Direct Preference Optimization"
)


@supplies("stream:weight")
def guided_weights(alpha: float, beta: float, *, judge: str = "judge", author: str = "demo") -> Part:
    """TGDPO's token weights (arXiv 2506.14574), as stream "weight": 1 + alpha r_t in w and 1 - alpha r_t in l.

    r_t = beta (log pi_judge - log ref)(y_t), from streams `judge` and "ref".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            sides = {i: sign for a, b in group.pairs or () for i, sign in ((a, 1.0), (b, -1.0))}
            for i, trace in enumerate(group.traces):
                fill(trace, "weight", 1.0)
                mask = trace.by(author)
                reward = beta * (trace.streams[judge] - trace.streams["ref"])[mask]
                trace.streams["weight"][mask] = 1 + sides.get(i, 0.0) * alpha * reward
                step.notes.add("token_reward", float(reward.sum()), len(reward))
        return groups

    return Part(
        name="guided_weights",
        call=call,
        reads=frozenset({"pairs", f"stream:{judge}", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
        idle=_equal_weights() if is_zero(alpha) else None,
    )


def _equal_weights() -> Part:
    """Stream "weight": 1 on every token."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "weight", 1.0)

    return per_trace(write, name="equal_weights", reads=frozenset(), writes=frozenset({"stream:weight"}))


@register(
    TGDPO,
    family="preference",
    summary="DPO in which each token's weight comes from a DPO model trained before.",
    when="You have a DPO policy already, and want token-level guidance from it.",
    trial={"dpo_model": "tiny"},
)
def tgdpo(
    task: draw.Source,
    *,
    dpo_model: Annotated[str, Option("A policy trained by DPO from the same start: its name or directory.")],
    alpha: Annotated[float, Option("How much a token's reward changes its weight; 0 is DPO.", at_least=0)] = 0.5,
    beta: opt.Beta = 0.1,
) -> Method:
    """TGDPO.

    r_t = beta log[ pi_dpo(y_t) / ref(y_t) ], held
    L = -log s( sum_t beta (1 + alpha r_t) lr_t(y_w) - sum_t beta (1 - alpha r_t) lr_t(y_l) ),  mean over pairs

    lr_t = log pi(y_t) - log ref(y_t). alpha = 0 is DPO. The constants are the authors'.
    """
    return from_pairs(
        task,
        pairs.weighted_tokens(beta, on="demo"),
        credit=chain(credit.cached_ref(task), credit.streams("dpo", logp="judge"), guided_weights(alpha, beta)),
        ref=frozen("policy"),
        dpo=frozen(dpo_model),
    )
