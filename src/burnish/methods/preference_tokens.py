"""Given pairs with weights: of tokens, of whole pairs, of the reference."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import ema
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register

REFERENCES = {"whole": pairs.desensitised, "weighted": pairs.weighted_tokens}


@register(
    papers.WPO,
    family="preference",
    summary="DPO in which pairs count the more, the likelier the policy would write them.",
    when="The pairs were written by other models.",
)
def wpo(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """WPO.

    w(y) = exp( mean over t of log[ pi(y_t) / sum_v pi(v)^2 ] ), held
    L = min(1, w(y_w) w(y_l)) x -log s( beta [lr_w - lr_l] ),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)

    sum_v pi(v)^2 is the probability that a sampled token has on average, so a reply of the policy's own weighs about 1.
    The bound of 1 is that of the authors' code. It needs the whole distribution at every token.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.weighted_pairs(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.LD_DPO,
    family="preference",
    summary="DPO in which tokens past the shorter reply's length count less.",
    when="DPO makes replies longer and longer.",
)
def ld_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of tokens past the shorter reply; 1 is DPO.", at_least=0, at_most=1)] = 0.5,
    reference: Annotated[
        str, Option("Whether the reference's log-probs are weighted too.", choices=tuple(REFERENCES))
    ] = "whole",
) -> Method:
    """LD-DPO.

    log pi^(y) = sum over t <= lp of log pi(y_t) + alpha sum over t > lp of log pi(y_t),  lp = min(|y_w|, |y_l|)
    L = -log s( beta [log pi^(y_w) - log ref(y_w)] - beta [log pi^(y_l) - log ref(y_l)] ),  mean over pairs

    alpha = 1 is DPO. Implementations differ in whether the reference is weighted; most do not (`whole`). alpha is tuned
    per model in the paper.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.beyond_the_shorter(alpha)),
        learn=learn.Learn(REFERENCES[reference](beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.TGDPO,
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
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.streams("dpo", logp="judge"), credit.guided_weights(alpha, beta)),
        learn=learn.Learn(pairs.weighted_tokens(beta, on="demo")),
        models=roles(ref=frozen("policy"), dpo=frozen(dpo_model)),
        lr_share=0.1,
    )


@register(
    papers.T_REG,
    family="preference",
    summary="DPO with token rewards that the reference gives itself under a good and a bad instruction.",
    when="You want token-level credit without another model.",
)
def t_reg(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the token regulariser; 0 is DPO.", at_least=0)] = 0.25,
    better: Annotated[str, Option("Words before the prompt that ask for a good reply.")] = (
        "Give a correct and helpful answer."
    ),
    worse: Annotated[str, Option("Words before the prompt that ask for a bad reply.")] = (
        "Give a wrong and unhelpful answer."
    ),
) -> Method:
    """T-REG.

    rhat_t = s( log ref(y_t | better, x) - log ref(y_t | worse, x) ) - 1/2
    L = -log s(m) + alpha sg[s(-m)] [R(y_w) + R(y_l)],  R(y) = -sum_t beta rhat_t log pi(y_t),  mean over pairs

    m = beta [lr_w - lr_l] is DPO's margin. alpha = 0 is DPO. The paper searches alpha in 0.1, 0.25, 0.5 and has longer
    instructions; its text was not available, so that the held weight s(-m) is the reading of two agreeing summaries.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.contrasted_rewards(better, worse)),
        learn=learn.Learn(pairs.token_regularised(beta, alpha, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.TR_DPO,
    family="preference",
    summary="DPO whose reference follows the policy.",
    when="DPO over-optimises against a fixed reference in a long run.",
    trial={"sync": 1},
)
def tr_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[
        float, Option("Share of the policy in an update of the reference; 1 copies it.", above=0, at_most=1)
    ] = 0.6,
    sync: Annotated[int, Option("Steps between two updates of the reference.", at_least=1)] = 512,
) -> Method:
    """TR-DPO.

    L = -log s( beta [lr_w - lr_l] ),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)
    every `sync` steps: w_ref <- alpha w + (1 - alpha) w_ref

    alpha = 1 is the paper's hard update; alpha below 1 its soft one. The defaults are the values that implementations
    name as the paper's. A reference that never moves (sync beyond the run) is DPO.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="demo")),
        models=roles(ref=ema("policy", 1 - alpha, every=sync)),
        lr_share=0.1,
    )


@register(
    papers.AOT,
    family="preference",
    summary="Make the policy's margins larger than the reference's as a distribution, not pair by pair.",
    when="As `dpo`, where single labels are noisy and the whole distribution of margins matters.",
)
def aot(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """AOT on pairs: alignment by optimal transport in one dimension.

    u_i = log pi(y_w) - log pi(y_l),  v_i = log ref(y_w) - log ref(y_l), both sorted over the batch
    L = mean over i of -log s( beta (u_(i) - v_(i)) )

    Ranks come from the policy before the update. A batch of one pair is DPO. `aot_unpaired` compares single replies.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.streams("policy", logp="now"), credit.matched_margins()),
        learn=learn.Learn(pairs.transported(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
