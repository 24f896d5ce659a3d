"""Preference methods with more than pairs: an auxiliary task, features of hidden states, a second stage of PPO."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot, trained
from burnish.core.schedules import after, before
from burnish.learn.terms.preference_features import feature_constrained, jump_relu
from burnish.method import Method, Option, Phase, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit

ONCE = 10**9  # the period of a snapshot that is taken a single time


@register(
    papers.SELF_SUPERVISED_PO,
    family="preference",
    summary="DPO, and an auxiliary task: to say how many key words are missing from a reply.",
    when="Pairs alone leave the policy blind to degrees of quality.",
)
def self_supervised_po(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    gamma: Annotated[float, Option("Weight of the auxiliary task; 0 is DPO.", at_least=0)] = 0.1,
    levels: Annotated[int, Option("Degrees besides the whole reply.", at_least=1, at_most=9)] = 3,
) -> Method:
    """SPO: self-supervised preference optimisation, around DPO.

    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + gamma mean over graded copies of -log pi(degree | x, copy)

    A copy of degree k lacks the k / levels most important key words (RAKE) of the chosen or the rejected reply. The
    paper has a classifier on the policy's hidden states; here the policy itself answers how much is missing, so that
    the head is the language model's. The paper's text was not available: gamma and levels are ours. gamma = 0 is DPO.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.given("chosen", "rejected"), rollout.graded("chosen", "rejected", levels=levels)),
        select=select.given_pairs(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(learn.dpo(beta, on="demo"), learn.imitate(coef=gamma, on="degree", name="degree")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.FPO,
    family="preference",
    summary="DPO by mean log-ratios that holds sparse features of the hidden states to the reference's.",
    when="A sparse autoencoder of the model is at hand, and constraints should be on features.",
)
def fpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the drift of features; 0 leaves it out.", at_least=0)] = 0.5,
    k: Annotated[int, Option("Features of a reply that are held, the largest of the policy's.", at_least=1)] = 50,
    sae: Annotated[str | None, Option("A sparse autoencoder: a safetensors file with W_enc, b_enc, threshold.")] = None,
) -> Method:
    """FPO: feature-level constrained preference optimisation.

    m(y) = mean over tokens of log pi - log ref;  F(y) = mean over tokens of the features of the last hidden state
    D(y) = mean over the k largest features of the policy's F of (F - F_ref)^2
    L = -log s( beta [m(y_w) - m(y_l)] - beta alpha [D(y_l) - sg D(y_w)] ),  mean over pairs

    As in the authors' code, whose constants are the defaults; it reads features at the last layer. Without `sae` the
    features are the hidden states themselves, which is not the paper's method but needs nothing. The reference is
    run along; the paper caches its features.
    """
    encode = (lambda states: states) if sae is None else jump_relu(sae)
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(feature_constrained(beta, alpha, k, encode, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.MIXED_PO,
    family="preference",
    summary="DPO on easy pairs first, then PPO on the prompts of difficult ones, held to the DPO policy.",
    when="Pairs of which many are hard to tell apart, and compute for PPO on the rest.",
    trial={"n": 2, "updates": 1, "switch": 1},
)
def mixed_po(
    task: draw.Source,
    *,
    switch: Annotated[int, Option("Steps of DPO before PPO begins.", at_least=1)] = 100,
    share: Annotated[float, Option("Share of the pairs that counts as easy.", above=0, at_most=1)] = 0.5,
    beta: opt.Beta = 0.1,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """MPO: mixed preference optimisation.

    the first `switch` steps: L = -log s( beta [lr_w - lr_l] ) on pairs whose reward gap is among the largest `share`
    from then on:             PPO on prompts of the other pairs, KL and start relative to the DPO policy

    The gap is |r(y_w) - r(y_l)| of the reward model; without one it is that of the reference's mean log-probs, and PPO
    is rewarded by the verifier. The paper has a threshold per data set in place of a share.
    """
    difficult = select.Store("difficult", 2048)
    gap = chain(score.reward_model(author="demo"), score.as_gap()) if reward_model else score.mean_logp_of("ref")
    easy = Phase(
        name="dpo",
        times=before(switch),
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=gap,
        select=chain(select.given_pairs(), select.easy_pairs(select.Gaps(share), difficult)),
        credit=chain(credit.ref(), credit.claim("reply", "demo", tag="easy")),
        learn=learn.Learn(learn.dpo(beta, on=learn.CLAIMED)),
    )
    hard = Phase(
        name="ppo",
        times=after(switch),
        draw=draw.stored_prompts(difficult),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=ppo_credit(kl, lam),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(eps, coef=0.5), updates=updates),
    )
    models = roles(
        ref=snapshot("policy", ONCE, offset=switch), critic=trained(outputs=1), **score.rm_role(reward_model)
    )
    return Method(models=models, phases=(easy, hard), lr_share=0.1)
