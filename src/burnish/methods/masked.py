"""Exploration around given replies, in one forward pass."""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.masked_inputs import masked_inputs
from burnish.credit.members import member
from burnish.draw.tasks import pairs
from burnish.learn.inputs import other_tokens
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean, token_mean
from burnish.learn.terms import pg_reinforce
from burnish.learn.terms.self_imitation import imitate_smoothed
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.nouns import Group, Trace
from burnish.parts import chain
from burnish.rollout.filled import filled
from burnish.rollout.given import given
from burnish.rollout.sample import join
from burnish.score.model import rm_role, scoring
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("semi-offline-rl",),
    title="Semi-Offline Reinforcement Learning for Optimized Text Generation",
    arxiv="2306.09712",
    summary="Masked tokens of a given reply are drawn anew, all at once, and the fills compared; with imitation.",
    when="Decoding is too slow, replies are at hand, and exploring around them in one pass is enough.",
    trial={"n": 4},
)
def semi_offline_rl(
    task: Source, *, n: int = 16, share: float = 0.4, weight: float = 20.0, smoothing: float = 0.1, static: str = "rejected",
    temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Semi-offline RL: explore in the neighbourhood of a reply that is there, without decoding.

    M = the masked tokens of the static reply, each with the chance `share`;   y_i, i = 1..n: every token of M drawn from
    pi( . | x, what precedes, with [mask] in the places of M), the others kept
    L_RL = mean over prompts of -sum_i (r_i - mean r) (1/|M|) sum over t in M of log pi(y_i,t | .)
    L = weight L_RL + mean over tokens of the label-smoothed -log pi(y*_t | .), y* the chosen reply, masked alike

    share = 0 is imitation alone, share = 1 draws every token blind. The released code: the static reply is the worst of the
    data's candidates (here the rejected one; the ground truth is a variant), the sum over fills is not divided by n. It has n = 64, and 16 for SQuAD; weights
    of 20, 5, 4 and 2 and smoothings of 0.1, 0, 0.15 and 0.1 for its four tasks. Its log pi is a softmax over the drawn
    tokens' logits and zeros, a quirk that is not followed.
    n: fills of each static reply. share: of its tokens that are masked. weight: of the policy gradient beside imitation.
    smoothing: label smoothing of the imitation. static: the column of the static reply, rejected or chosen.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    Departures: tokens are masked one by one, where the code masks whole words and spares what follows a comma; where the
    tokenizer has no mask token, padding stands for it; no stop token is drawn, where the code puts the static token back.
    """
    return method(
        draw=pairs(task),
        rollout=join(filled(static, n, share, temperature=temperature), given("chosen")),
        score=scoring(task, reward_model),
        credit=chain(
            group_relative(std=False, peers=_fills), masked_inputs(share), member("pg", "policy"), member("sft", "demo")
        ),
        learn=Learn(
            pg_reinforce(norm=seq_mean, coef=weight * n), imitate_smoothed(smoothing, norm=token_mean),
            temperature=temperature, embed=other_tokens(),
        ),
        cast=stage(**rm_role(reward_model)),
    )  # fmt: skip


def _fills(trace: Trace, group: Group) -> bool:
    """Fills are compared with fills."""
    return "fill" in trace.tags
