"""Semi-Offline Reinforcement Learning for Optimized Text Generation (arXiv 2306.09712)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Group, Method, Option, Trace, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SEMI_OFFLINE_RL = Paper(
    "semi-offline-rl", "2306.09712", "Semi-Offline Reinforcement Learning for Optimized Text Generation"
)


@register(
    SEMI_OFFLINE_RL,
    family="policy",
    summary="Masked tokens of a given reply are drawn anew, all at once, and the fills compared; with imitation.",
    when="Decoding is too slow, replies are at hand, and exploring around them in one pass is enough.",
)
def semi_offline_rl(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Fills of each static reply.", at_least=2)] = 16,
    share: Annotated[float, Option("Share of the static reply's tokens that are masked.", at_least=0, at_most=1)] = 0.4,
    weight: Annotated[float, Option("Weight of the policy gradient beside imitation.", at_least=0)] = 20.0,
    smoothing: Annotated[float, Option("Label smoothing of the imitation.", at_least=0, below=1)] = 0.1,
    static: Annotated[str, Option("The column of the static reply.", choices=("rejected", "chosen"))] = "rejected",
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Semi-offline RL: explore in the neighbourhood of a reply that is there, without decoding.

    M = the masked tokens of the static reply, each with the chance `share`
    y_i, i = 1..n: every token of M drawn from pi( . | x, what precedes, with [mask] in M's places), the others kept
    L_RL = mean over prompts of -sum_i (r_i - mean r) (1/|M|) sum over t in M of log pi(y_i,t | .)
    L = weight L_RL + mean over tokens of the label-smoothed -log pi(y*_t | .), y* the chosen reply, masked alike

    share = 0 is imitation alone, share = 1 draws every token blind. The released code: the static reply is the
    worst of the data's candidates (here the rejected one; the ground truth is a variant), the sum over fills is not
    divided by n. It has n = 64, and 16 for SQuAD; weights of 20, 5, 4 and 2 and smoothings of 0.1, 0, 0.15 and 0.1
    for its four tasks. Its log pi is a softmax over the drawn tokens' logits and zeros, a quirk that is not
    followed. Departures: tokens are masked one by one, where the code masks whole words and spares what follows a
    comma; where the tokenizer has no mask token, padding stands for it; no stop token is drawn, where the code puts
    the static token back.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.filled(static, n, share, temperature=temperature), rollout.given("chosen")),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(std=False, peers=_fills), credit.masked_inputs(share)),
        learn=learn.Learn(
            learn.pg_reinforce(norm=learn.seq_mean, coef=weight * n),
            learn.imitate_smoothed(smoothing, norm=learn.token_mean, on="demo"),
            embed=learn.other_tokens(),
            logp_temperature=temperature,
        ),
        models=roles(**score.rm_role(reward_model)),
    )


def _fills(trace: Trace, group: Group) -> bool:
    """Fills are compared with fills."""
    return "fill" in trace.tags
