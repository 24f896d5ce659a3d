"""Learning from comparisons of replies."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.given_pairs import from_pairs_and_ref


@register(
    papers.DPO,
    family="preference",
    summary="Prefer the chosen reply to the rejected one, relative to a frozen reference.",
    when="You have preference pairs and want no sampling, no reward model and no critic.",
)
def dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    label_smoothing: Annotated[
        float,
        Option("Chance e that a label is wrong; e > 0 is cDPO, (1 - e) L(w, l) + e L(l, w).", at_least=0, below=0.5),
    ] = 0.0,
) -> Method:
    """DPO on pairs of replies (y_w preferred to y_l).

    L = -log sigmoid( beta [ log pi(y_w|x)/ref(y_w|x) - log pi(y_l|x)/ref(y_l|x) ] ),  mean over pairs

    Log-probs are summed over the reply. beta = 0.1 is the paper's.
    """
    return from_pairs_and_ref(task, learn.dpo(beta, label_smoothing=label_smoothing, on="demo"))


@register(
    papers.ONLINE_DPO,
    family="preference",
    summary="DPO on fresh samples of the policy, ranked as they come.",
    when="As `dpo`, when the pairs should come from the policy as it is now.",
)
def online_dpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online DPO (OAIF): n replies are sampled per prompt; the one that scores best is preferred to the worst.

    L = -log sigmoid( beta [ log pi(y_w|x)/ref(y_w|x) - log pi(y_l|x)/ref(y_l|x) ] ),  mean over pairs

    The paper samples 2 replies and asks an LLM which is better; here the scorer is the task's verifier or a reward
    model. Prompts whose replies all score the same give no pair.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
