"""Learning from comparisons of replies."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.members import member
from burnish.credit.streams import ref
from burnish.draw.tasks import pairs, prompts
from burnish.learn import terms
from burnish.learn.learn import Learn
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.sample import sample
from burnish.score.given import given_order
from burnish.score.model import rm_role, scoring
from burnish.select.compare import best_vs_worst
from burnish.tasks.source import Source


@register(
    family="preference",
    catalogue=("dpo",),
    title="Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
    arxiv="2305.18290",
    summary="Prefer the chosen reply to the rejected one, relative to a frozen reference.",
    when="You have preference pairs and want no sampling, no reward model and no critic.",
)
def dpo(task: Source, *, beta: float = 0.1, label_smoothing: float = 0.0) -> Method:
    """DPO on pairs of replies (y_w preferred to y_l).

    L = -log sigmoid( beta [ log pi(y_w|x)/ref(y_w|x) - log pi(y_l|x)/ref(y_l|x) ] ),  mean over pairs

    Log-probs are summed over the reply.
    beta: how strongly the policy is held to the reference; 0.1 is the paper's.
    label_smoothing: e > 0 is cDPO, (1 - e) L(w, l) + e L(l, w), for labels that are wrong with chance e.
    """
    return method(
        draw=pairs(task),
        rollout=given("chosen", "rejected"),
        score=given_order("chosen", "rejected"),
        select=best_vs_worst(),
        credit=chain(ref(), member("reply", "demo")),
        learn=Learn(terms.dpo(beta, label_smoothing=label_smoothing)),
        cast=stage(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    family="preference",
    catalogue=("online-dpo",),
    title="Direct Language Model Alignment from Online AI Feedback",
    arxiv="2402.04792",
    summary="DPO on fresh samples of the policy, ranked as they come.",
    when="As `dpo`, when the pairs should come from the policy as it is now.",
    trial={"n": 4},
)
def online_dpo(
    task: Source,
    *,
    n: int = 2,
    beta: float = 0.1,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """Online DPO (OAIF): n replies are sampled per prompt, ranked by the scorer, and the best is preferred to the worst.

    L = -log sigmoid( beta [ log pi(y_w|x)/ref(y_w|x) - log pi(y_l|x)/ref(y_l|x) ] ),  mean over pairs

    The paper samples 2 replies and asks an LLM which is better; here the scorer is the task's verifier or a reward model.
    Prompts whose replies all score the same give no pair.
    n: replies sampled for each prompt. beta: how strongly the policy is held to the reference.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=best_vs_worst(),
        credit=chain(ref(temperature=temperature), member("reply", "policy")),
        learn=Learn(terms.dpo(beta), temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
        lr_share=0.1,
    )
