"""Learning from demonstrations."""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.members import member
from burnish.credit.sequence import class_weights
from burnish.draw.tasks import demos, pairs
from burnish.learn.learn import Learn
from burnish.learn.maths.token_weights import probability_weight
from burnish.learn.terms import imitate
from burnish.learn.terms.self_imitation import imitate_weighted, soft_q_penalty
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.conditioned import under
from burnish.rollout.given import given
from burnish.rollout.injected import injected
from burnish.rollout.sample import join
from burnish.tasks.source import Source


@register(
    family="imitation",
    catalogue=("sft",),
    title="Supervised fine-tuning",
    summary="Raise the likelihood of demonstrated replies.",
    when="You have demonstrations: nearly everything else starts from here.",
)
def sft(task: Source, *, epochs: int = 1) -> Method:
    """Supervised fine-tuning on demonstrations.

    L = -(1 / N) sum over the N demonstrated reply tokens of log pi(y_t | x, y_<t)

    The mean is over all reply tokens of the batch; prompt tokens are not trained.
    epochs: updates on each batch.
    """
    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=member("sft", "demo"),
        learn=Learn(imitate(), epochs=epochs),
        cast=stage(),
    )


@register(
    family="imitation",
    catalogue=("dft",),
    title="On the Generalization of SFT: A Reinforcement Learning Perspective with Reward Rectification",
    arxiv="2508.05629",
    summary="SFT in which every token counts by its own probability.",
    when="SFT forgets or overfits, and the demonstrations contain tokens that the model rightly finds improbable.",
)
def dft(task: Source, *, epochs: int = 1) -> Method:
    """Dynamic fine-tuning: SFT without the hidden reward 1/p.

    L = -(1 / N) sum over the N demonstrated reply tokens of sg[p_t] log p_t,  p_t = pi(y_t | x, y_<t)

    The gradient is that of the mean of -p_t. The mean is over all reply tokens of the batch, as in the released code.
    epochs: updates on each batch.
    """
    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=member("sft", "demo"),
        learn=Learn(imitate(weight=probability_weight), epochs=epochs),
        cast=stage(),
    )


@register(
    family="imitation",
    catalogue=("c-rlft",),
    title="OpenChat: Advancing Open-source Language Models with Mixed-Quality Data",
    arxiv="2309.11235",
    summary="SFT on expert and other replies, told apart by a condition and weighed by class.",
    when="Your data are of mixed quality and you know which part is which, but have no preference pairs.",
)
def c_rlft(
    task: Source, *, expert_weight: float = 1.0, other_weight: float = 0.1, expert: str = "", other: str = "[other]"
) -> Method:
    """Conditioned RL fine-tuning on data of mixed quality: the chosen replies are the expert class, the rejected the other.

    L = sum over reply tokens of w_c (-log pi(y_t | x, c, y_<t)) / sum over reply tokens of w_c,  c the class of the reply

    The weights are those of the released training, 1 : 0.1; the paper derives exp(r_c / beta) from a KL-regularised
    objective, which gives the same ratio for beta = 0.39. Departure: the expert's condition is the bare prompt unless words
    are given, so that the product is asked like any other model; the paper marks both classes ("GPT4 User:", "GPT3 User:").
    expert_weight: what a token of a chosen reply counts. other_weight: what a token of a rejected reply counts.
    expert: words before the prompt of a chosen reply, and of every question later. other: words before that of a rejected one.
    """
    return method(
        draw=pairs(task),
        rollout=join(under(expert, given("chosen")), under(other, given("rejected"))),
        credit=chain(class_weights({"chosen": expert_weight, "rejected": other_weight}), member("sft", "demo")),
        learn=Learn(imitate_weighted()),
        cast=stage(),
    )


@register(
    family="imitation",
    catalogue=("iqlearn-lm",),
    title="Imitating Language via Scalable Inverse Reinforcement Learning",
    arxiv="2409.01369",
    summary="SFT plus a temporal-difference penalty that reads the logits as soft Q-values.",
    when="Demonstrations are few and replies must stay diverse; it also leaves you a reward that the policy implies.",
)
def iqlearn(task: Source, *, lam: float = 0.01, gamma: float = 1.0, epochs: int = 1) -> Method:
    """Offline inverse soft Q-learning (IQLearn) on demonstrations.

    Q_t = the logit of y_t,  V_t = logsumexp of the logits,  log pi = Q - V,  V after the last token = 0
    L = mean over demonstrated reply tokens of -log pi(y_t) + lam (Q_t - gamma V_{t+1})^2

    The gradient goes through Q and V alike (the paper's equation 14). The penalty is the square of the reward that the policy
    implies; lam = 0 is SFT. The paper sweeps lam. A pre-trained model's logits have no level of their own, so the penalty first
    moves that of V: with lam = 0.1 it outweighs the demonstrations at first (on `tiny`, reversal, 38% falls to 15% in 12 steps and
    stands at 26% after 30), with 0.01 it does not.
    lam: weight of the penalty. gamma: discount per token. epochs: updates on each batch.
    """
    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=chain(member("sft", "demo"), member("td", "demo")),
        learn=Learn(imitate(), soft_q_penalty(gamma, coef=lam), epochs=epochs),
        cast=stage(),
    )


@register(
    family="imitation",
    catalogue=("behavior-injection",),
    title="Behavior Injection: Preparing Language Models for Reinforcement Learning",
    arxiv="2505.18917",
    summary="SFT on demonstrations in which looking ahead, going back and gathering are injected.",
    when="You are about to run RL and the model neither looks ahead nor goes back: prepare it first.",
    example="burnish train behavior_injection --task add",
    trial={"task": "add"},
)
def behavior_injection(task: Source, *, chance: float = 0.2, epochs: int = 1) -> Method:
    """BRIDGE: SFT on demonstrations with exploratory and exploitative behaviours injected, as a start for RL.

    L = -(1 / N) sum over the N reply tokens of log pi(y'_t),  y' = the demonstration with, before a step and with the chance,
      "let's solve LATER, wait, LATER cannot be solved yet, let's go back"   (exploration: a locked step)
      "let's solve STEP, since KNOWN"                                        (exploitation: an unlocked step)

    Train the product further with `grpo` or another policy gradient. Departures: the paper takes the graph of dependences from
    its synthetic problems; here the lines of a demonstration are read as a chain, each line needing those before it. Its
    chance of injection could not be read; 0 is SFT.
    chance: of each behaviour, before each line. epochs: updates on each batch.
    """
    return method(
        draw=demos(task),
        rollout=injected(chance),
        credit=member("sft", "demo"),
        learn=Learn(imitate(), epochs=epochs),
        cast=stage(),
    )
