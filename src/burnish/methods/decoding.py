"""Alignment at decoding time: choosing among samples, and models that guide each other token by token."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.weighted import weighted_models


@register(
    papers.BEST_OF_N,
    family="decoding",
    summary="Sample n replies and keep the best-scored: no training.",
    when="You may not train, and can spend n times the compute on every answer.",
)
def best_of_n(
    task: draw.Source, *, n: opt.Replies = 16, temperature: opt.Temperature = 1.0, reward_model: opt.RewardModel = None
) -> Method:
    """Best-of-n decoding: y = argmax over n samples of the score.

    KL(best-of-n || policy) <= log n - (n - 1)/n (arXiv 2401.01879). There is no loss; the run records what was
    chosen and the score before and after choosing. Scored by the verifier itself, the chosen score is pass@n.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.keep_best(1),
        learn=learn.Learn(),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.BEST_OF_N,
    family="decoding",
    summary="Imitate the best of n samples.",
    when="Best-of-n works for you and you want its answers at the price of one.",
)
def best_of_n_distill(
    task: draw.Source, *, n: opt.Replies = 16, temperature: opt.Temperature = 1.0, reward_model: opt.RewardModel = None
) -> Method:
    """Best-of-n distillation: SFT on the best-scored of n fresh samples (rejection-sampling fine-tuning).

    L = -(1/N) sum over the N tokens of the chosen replies of log pi
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.keep_best(1),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.PARTICLE_FILTERING,
    family="decoding",
    summary="Grow n replies step by step; a process reward model decides which are copied and which are dropped.",
    when="You have a process reward model, and best-of-n spends most of its replies on beginnings that went wrong.",
    trial={"prm": "tiny", "n": 2},
)
def particle_filter(
    task: draw.Source,
    *,
    prm: Annotated[str, Option("A process reward model (burnish train process_reward_model).")],
    n: Annotated[int, Option("Particles: replies that grow together.", at_least=1)] = 8,
    step_by: Annotated[
        str, Option("What a step is, as the model was trained: lines, paragraphs, after:TEXT.")
    ] = "lines",
    spread: Annotated[float, Option("Divides the scores before the softmax: larger copies less.", above=0)] = 1.0,
    most_steps: Annotated[int, Option("Steps of a reply, at most; the last goes to its end.", at_least=1)] = 40,
    temperature: opt.Temperature = 0.8,
) -> Method:
    """Particle filtering with a process reward model.

    s_i = sigmoid(h_i), the chance that particle i's last step is right
    w_i = softmax_i( logit(s_i) / spread ) = softmax_i( h_i / spread );  n are drawn anew by w, with replacement

    Each particle is extended by one step, all are weighed, drawn anew, and so on; finished ones stay in the pool and
    take part. The answer is the particle with the highest last score. At spread 1 the weight is s / (1 - s); spread ->
    infinity draws uniformly; n = 1 is plain sampling. Weights come from the present score alone, as in the authors'
    code. Departures: particle Gibbs, tempering and a threshold of the effective sample size are left out; lines are
    steps by default, where the authors' are paragraphs; the temperature is that of all steps.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.particles(n, steps=step_by, spread=spread, most=most_steps, temperature=temperature),
        score=score.scoring(task, None),
        select=chain(select.keep_best(1, "prm"), select.keep_best(1)),  # the answer; its own score is noted
        learn=learn.Learn(),
        models=roles(prm=frozen(prm, outputs=1)),
    )


Weight = Annotated[float, Option("How strongly the guides count; at 0 the model is as it is.", at_least=0)]
Guides = Annotated[
    str, Option("Models that guide, by name or directory, with the tokenizer of the run's model: a, or a*0.7,b*0.3.")
]


@register(
    papers.EFT,
    family="decoding",
    summary="A large model sampled as if it were fine-tuned: plus what fine-tuning changed in a small one.",
    when="You have a fine-tuned small model and its base, and may not or cannot train the large one.",
    trial={"tuned": "tiny", "untuned": "tiny", "n": 2},
)
def eft(
    task: draw.Source,
    *,
    tuned: Guides,
    untuned: Annotated[str, Option("The model that the tuned ones started from.")],
    weight: Weight = 1.0,
    n: opt.Replies = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Emulated fine-tuning (up-scaling), also known as proxy tuning.

    log p(a) = log pi(a) + weight sum_i w_i [ log pi_i(a) - log pi_untuned(a) ] + const, token by token

    pi is the run's model, pi_i are the tuned ones. weight = 0 is pi; if pi is the untuned model, weight = 1 with one
    tuned model is that model. Several tuned models with weights that add up to 1 interpolate between them. Nothing is
    trained. Departures: all tuned models have one base; the paper's speculative decoding and its filter of the
    change (only inside the base's top-p) are left out. Negative weights, which undo alignment, are refused.
    """
    deltas = {name: (model, share * weight) for name, (model, share) in weighted_models(tuned, "tuned").items()}
    weights = {name: share for name, (_, share) in deltas.items()}
    models = {name: frozen(model) for name, (model, _) in deltas.items()}
    blend = rollout.guided({**weights, "untuned": -sum(weights.values())})
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature, blend=blend),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**models, untuned=frozen(untuned)),
    )


@register(
    papers.GENARM,
    family="decoding",
    summary="A model guided by language models that were trained as token-level reward models (`genarm_rm`).",
    when="Preferences are to steer a model that you do not train, or several of them with weights chosen at use.",
    trial={"reward_lm": "tiny", "n": 2},
)
def genarm(
    task: draw.Source,
    *,
    reward_lm: Guides,
    alpha: Weight = 1.0,
    n: opt.Replies = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """GenARM: decoding guided by autoregressive reward models.

    log p(a) = log pi(a) + alpha sum_i w_i log pi_r,i(a) + const, token by token;  alpha = 1 / beta of the paper

    alpha = 0 is the model itself. Nothing is trained; `genarm_rm` trains the reward models. The released code divides
    the sum by its total weight, so that its temperature is T / (1 + alpha); here it is the formula's own.
    """
    guides = weighted_models(reward_lm, "reward_lm")
    blend = rollout.guided({name: alpha * share for name, (_, share) in guides.items()})
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature, blend=blend),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**{name: frozen(model) for name, (model, _) in guides.items()}),
    )


@register(
    papers.GENARM,
    family="decoding",
    summary="Train a language model as a token-level reward model of pairs, to guide another one (`genarm`).",
    when="Preference pairs are at hand for a model that is to be guided, not trained.",
)
def genarm_rm(
    task: draw.Source, *, beta: Annotated[float, Option("Scale of the reward beta_r.", above=0)] = 0.1
) -> Method:
    """The autoregressive reward model of GenARM: its reward of a reply is its log-prob.

    L = mean over pairs of -log s( beta [ sum_t log pi_r(y_w,t) - sum_t log pi_r(y_l,t) ] ), no reference

    It is `cpo` without its SFT loss. beta = 0.1 is the authors' Tulu recipe.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        learn=learn.Learn(pairs.uniform_reference(beta, on="demo")),
        models=roles(),
        lr_share=0.1,
    )
