"""Decoding guided by value models, and the training of these models."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, Phase, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.weighted import weighted_models

Candidates = Annotated[int, Option("How many of the likeliest next tokens the value model scores; 0: all.", at_least=0)]
Eta = Annotated[float, Option("Temperature of the values: a smaller one follows them more.", above=0)]


@register(
    papers.VAS,
    family="decoding",
    summary="A model guided by value models: log-probs plus how much better than average the value after a token is.",
    when="You may not train the model, and have a value model of its replies (`vas_value`), or several with weights.",
    trial={"value_model": "tiny", "n": 2, "k": 3},
)
def vas(
    task: draw.Source,
    *,
    value_model: Annotated[
        str, Option("Value models (burnish train vas_value), with the tokenizer of the run's model: a, or a*0.7,b*0.3.")
    ],
    beta: Annotated[float, Option("How strongly the values count; at 0 the model is as it is.", at_least=0)] = 1.0,
    k: Candidates = 20,
    n: opt.Replies = 1,
    temperature: opt.Temperature = 1.0,
    top_p: opt.TopP = 1.0,
) -> Method:
    """Value augmented sampling.

    log p(a) = log pi(a) + beta sum_i w_i [ V_i(s + a) - mean over the k candidates of V_i(s + .) ] + const
    for the k likeliest tokens a of pi; the other tokens keep log pi(a)

    The mean is taken out because of these other tokens, as in the authors' code. beta = 0 is pi. Temperature and top_p
    act on the sum. Nothing is trained.
    """
    values = weighted_models(value_model, "value_model")
    weights = {name: beta * share for name, (_, share) in values.items() if beta * share}
    return method(
        draw=draw.prompts(task),
        rollout=rollout.by_candidates(n, rollout.by_value_models(weights, k=k), temperature=temperature, top_p=top_p),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**{name: frozen(values[name][0], outputs=1) for name in weights}),
    )


@register(
    papers.VAS,
    family="decoding",
    summary="Train a value model on replies of a model that stays as it is, to guide it (`vas`).",
    when="A reward is at hand for a model that is to be guided, not trained.",
)
def vas_value(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    lam: opt.Lam = 0.95,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """The value model of value augmented sampling: V(y_<=t), the expected reward once pi has finished y_<=t.

    G_T = r for the whole reply,  G_t = (1 - lam) V(y_<=t+1) + lam G_t+1;  gamma = 1
    L = mean over tokens of (V(y_<=t) - G_t)^2 / 2

    V is a linear head, read after token t; G are the targets GAE + V of the paper, for the states after each token.
    lam = 1 regresses the reward. Departure: the state after the last token is trained too, on the reward itself,
    because decoding asks for the value of the token that ends a reply; the clipped loss of the authors' code is left
    out. The product is saved as a sequence-classification model with one label.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.streams("value", "policy", score="value"),
            credit.token_rewards(kl=None),
            credit.lambda_returns(lam=lam),
        ),
        learn=learn.Learn(learn.value_fit("returns", output="score", trainee="value")),
        models=roles("value", value=trained(outputs=1), policy=frozen("base"), **score.rm_role(reward_model)),
        product="value",
    )


@register(
    papers.Q_SHARP,
    family="decoding",
    summary="A model guided by the soft value of its chance to succeed: the optimum of reward with a KL penalty.",
    when="Replies are right or wrong, you may not train the model, and want the KL-optimal guide at any strength.",
    trial={"value_model": "tiny", "n": 2, "k": 3},
)
def q_sharp(
    task: draw.Source,
    *,
    value_model: Annotated[
        str, Option("A model of the chance of success (burnish train q_sharp_value), with the run's tokenizer.")
    ],
    eta: Eta = 0.1,
    k: Candidates = 20,
    n: opt.Replies = 1,
    temperature: opt.Temperature = 0.8,
    top_p: opt.TopP = 0.9,
) -> Method:
    """Q#: decoding by the optimal regularised value.

    log p(a) = log pi(a) + Q(s, a) / eta + const over the k likeliest tokens;  Q = eta log( 1 - p + p e^(1/eta) )

    p is the chance that pi finishes s + a with a reward of 1. This is the optimum of E[r] - eta KL(. || pi). eta ->
    infinity is pi among its k likeliest tokens. p does not depend on eta: any eta may be used with one value model.
    Temperature and top_p act on the sum; 0.8 and 0.9 are the paper's. Departure: tokens outside of the k likeliest are
    cut (k = 0 scores the whole vocabulary). Rewards are 0 or 1; the paper's histogram for others is left out.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.by_candidates(
            n, rollout.by_chances("value_model", eta, k=k), temperature=temperature, top_p=top_p
        ),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(value_model=frozen(value_model, outputs=1)),
    )


@register(
    papers.Q_SHARP,
    family="decoding",
    summary="Train a model of the chance that a model succeeds after each token, to guide it (`q_sharp`).",
    when="A verifier is at hand for a model that is to be guided, not trained.",
    trial={"n": 2, "k": 3, "again": 1},
)
def q_sharp_value(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    eta: Eta = 0.1,
    k: Candidates = 20,
    again: Annotated[int, Option("Updates on stored replies after the one on fresh replies.", at_least=0)] = 3,
    capacity: Annotated[int, Option("Prompts whose replies are stored.", at_least=1)] = 4096,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """The value model of Q#: the distribution of the base model's reward after a token, for rewards 0 and 1.

    h uniform;  y_<h by the guided policy pi e^(Q/eta) of now,  y_>=h by the base model pi;  r of the whole
    L = mean over all tokens t >= h of -r log p(y_<=t) - (1 - r) log(1 - p(y_<=t)),   p = sigmoid(head after token t)

    Departures: instead of two rounds that each fit all data, every step samples, takes one update on its own replies
    and `again` ones on stored replies of all steps, drawn without replacement; h is uniform over the length of the
    guided reply, so that every reply has tokens to learn from. Rewards between 0 and 1 are soft labels.
    """
    data = select.Store("rolled_in", capacity)
    fit = learn.Learn(learn.step_chance("outcome", trainee="value", name="value"))
    labels = chain(credit.shared("reward", "outcome"), credit.claim("value", "policy"))
    fresh = Phase(
        draw=draw.prompts(task),
        rollout=rollout.rolled_in(n, rollout.by_chances("value", eta, k=k), temperature=temperature),
        score=score.verify(task),
        select=select.remember(data, "score:reward"),
        credit=labels,
        learn=fit,
    )
    stored = Phase(
        name="again",
        times=again,
        draw=draw.stored(data),
        rollout=rollout.recalled(others=("roll_in",)),
        credit=labels,
        learn=fit,
    )
    models = roles("value", value=trained(outputs=1), policy=frozen("base"))
    return Method(models=models, phases=(fresh, stored) if again else (fresh,), product="value")
