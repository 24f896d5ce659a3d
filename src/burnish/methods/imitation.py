"""Learning from demonstrations."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.learn.maths.token_weights import probability_weight
from burnish.method import Method, Option, everything, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.SFT,
    family="imitation",
    summary="Raise the likelihood of demonstrated replies.",
    when="You have demonstrations: nearly everything else starts from here.",
)
def sft(task: draw.Source, *, updates: opt.Updates = 1) -> Method:
    """Supervised fine-tuning on demonstrations.

    L = -(1 / N) sum over the N demonstrated reply tokens of log pi(y_t | x, y_<t)

    The mean is over all reply tokens of the batch; prompt tokens are not trained. In a conversation all replies are
    trained (--train-on says otherwise). Messages with a weight w count in part: sum w (-log pi) / sum w.
    """
    weighs = draw.WEIGHTS in task.gives
    return method(
        draw=draw.demos(task, weighs=True),
        rollout=rollout.demonstrated(),
        credit=credit.message_weights() if weighs else everything,
        learn=learn.Learn(learn.imitate_weighted(on="demo") if weighs else learn.imitate(on="demo"), updates=updates),
        models=roles(),
    )


@register(
    papers.DFT,
    family="imitation",
    summary="SFT in which every token counts by its own probability.",
    when="SFT forgets or overfits, and the demonstrations contain tokens that the model rightly finds improbable.",
)
def dft(task: draw.Source, *, updates: opt.Updates = 1) -> Method:
    """Dynamic fine-tuning: SFT without the hidden reward 1/p.

    L = -(1 / N) sum over the N demonstrated reply tokens of sg[p_t] log p_t,  p_t = pi(y_t | x, y_<t)

    The gradient is that of the mean of -p_t. The mean is over all reply tokens of the batch, as in the released
    code.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(weight=probability_weight, on="demo"), updates=updates),
        models=roles(),
    )


@register(
    papers.C_RLFT,
    family="imitation",
    summary="SFT on expert and other replies, told apart by a condition and weighed by class.",
    when="Your data are of mixed quality and you know which part is which, but have no preference pairs.",
)
def c_rlft(
    task: draw.Source,
    *,
    expert_weight: Annotated[float, Option("What a token of a chosen reply counts.", at_least=0)] = 1.0,
    other_weight: Annotated[float, Option("What a token of a rejected reply counts.", at_least=0)] = 0.1,
    expert: Annotated[str, Option("Words before the prompt of a chosen reply, and of every question later.")] = "",
    other: Annotated[str, Option("Words before the prompt of a rejected reply.")] = "[other]",
) -> Method:
    """Conditioned RL fine-tuning on data of mixed quality: chosen replies are one class, rejected ones the other.

    L = sum over reply tokens of w_c (-log pi(y_t | x, c, y_<t)) / sum over reply tokens of w_c,  c the reply's class

    The weights are those of the released training, 1 : 0.1; the paper derives exp(r_c / beta) from a KL-regularised
    objective, which gives the same ratio for beta = 0.39. Departure: the expert's condition is the bare prompt
    unless words are given, so that the product is asked like any other model; the paper marks both classes ("GPT4
    User:", "GPT3 User:").
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(
            rollout.under(expert, rollout.given("chosen")), rollout.under(other, rollout.given("rejected"))
        ),
        credit=credit.class_weights({"chosen": expert_weight, "rejected": other_weight}),
        learn=learn.Learn(learn.imitate_weighted(on="demo")),
        models=roles(),
    )


@register(
    papers.IQLEARN_LM,
    family="imitation",
    summary="SFT plus a temporal-difference penalty that reads the logits as soft Q-values.",
    when="Demonstrations are few and replies must stay diverse; it also leaves you a reward that the policy implies.",
)
def iqlearn(
    task: draw.Source,
    *,
    lam: Annotated[float, Option("Weight of the penalty.", at_least=0)] = 0.01,
    gamma: opt.Gamma = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """Offline inverse soft Q-learning (IQLearn) on demonstrations.

    Q_t = the logit of y_t,  V_t = logsumexp of the logits,  log pi = Q - V,  V after the last token = 0
    L = mean over demonstrated reply tokens of -log pi(y_t) + lam (Q_t - gamma V_{t+1})^2

    The gradient goes through Q and V alike (the paper's equation 14). The penalty is the square of the reward that
    the policy implies; lam = 0 is SFT. The paper sweeps lam. A pre-trained model's logits have no level of their
    own, so the penalty first moves that of V: with lam = 0.1 it outweighs the demonstrations at first (on `tiny`,
    reversal, 38% falls to 15% in 12 steps and stands at 26% after 30), with 0.01 it does not.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(on="demo"), learn.soft_q_penalty(gamma, coef=lam, on="demo"), updates=updates),
        models=roles(),
    )


@register(
    papers.BEHAVIOR_INJECTION,
    family="imitation",
    summary="SFT on demonstrations in which looking ahead, going back and gathering are injected.",
    when="You are about to run RL and the model neither looks ahead nor goes back: prepare it first.",
    example="burnish train behavior_injection --task add",
    trial={"task": "add"},
)
def behavior_injection(
    task: draw.Source,
    *,
    chance: Annotated[float, Option("Chance of each behaviour, before each line.", at_least=0, at_most=1)] = 0.2,
    updates: opt.Updates = 1,
) -> Method:
    """BRIDGE: SFT on demonstrations with exploratory and exploitative behaviours injected, as a start for RL.

    L = -(1 / N) sum over the N reply tokens of log pi(y'_t),  y' = the demonstration with, by chance before a step,
      "let's solve LATER, wait, LATER cannot be solved yet, let's go back"   (exploration: a locked step)
      "let's solve STEP, since KNOWN"                                        (exploitation: an unlocked step)

    Train the product further with `grpo` or another policy gradient. Departures: the paper takes the graph of
    dependences from its synthetic problems; here the lines of a demonstration are read as a chain, each line
    needing those before it. Its chance of injection could not be read; 0 is SFT.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.injected(chance),
        learn=learn.Learn(learn.imitate(on="demo"), updates=updates),
        models=roles(),
    )
