"""Q#: Provably Optimal Distributional RL for LLM Post-Training (arXiv 2502.20548).

Replies that begin under a guide and are finished by the model alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Sampling, Task
from burnish.method import Method, Option, Phase, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.candidates import Guide, started, write_guided
from burnish.rollout.guides import heads_after
from burnish.rollout.starts import Reply, sample_key, write_on

Q_SHARP = Paper("q-sharp", "2502.20548", "Q#: Provably Optimal Distributional RL for LLM Post-Training")


TAG = "rolled_in"
AUTHOR = "roll_in"


def soft_value(head: Tensor, eta: float) -> Tensor:
    """Q / eta = log( 1 - p + p e^(1/eta) ) with p = sigmoid(head): the soft value of a reward of 1 with chance p.

    eta -> infinity gives p / eta, eta -> 0 gives 1 / eta wherever p > 0.
    """
    return torch.logaddexp(F.logsigmoid(-head), F.logsigmoid(head) + 1 / eta)


def by_chances(model: str, eta: float, *, k: int = 20) -> Guide:
    """Q(s, a) / eta of a model whose head after a is the logit of the chance that the base goes on to a reward of 1
    (Q#, arXiv 2502.20548). Tokens outside of the k likeliest are cut.
    """

    def scores(replies: Sequence[Reply], candidates: Tensor, step: Step) -> Tensor:
        return soft_value(heads_after(replies, candidates, model, step), eta)

    return Guide(f"by_chances({model}, eta {eta:g})", scores, k, cut=True, reads=frozenset({f"model:{model}.score"}))


@supplies("tokens:*", "mu:*", "tag:rolled_in")
def rolled_in(n: int, guide: Guide, *, who: str = "policy", author: str = AUTHOR) -> Rollout:
    """n replies per task: h - 1 tokens by `author`, who is `who` under the guide, and the rest by `who` alone.

    h is uniform over 1 to the length of the reply under the guide, so that every reply has tokens by `who`.
    """

    def finished(reply: Reply, task: Task, step: Step) -> Reply:
        clock, index = step.clock, reply.start.index
        dice = randomness.rng(clock.seed, TAG, clock.step, clock.tick, task.key, index)
        kept = dice.randrange(len(reply))
        assert reply.said is not None
        turns = reply.start.turns
        if kept:
            turns = (*turns, replace(reply.said.first(kept), author=author))
        key = sample_key(clock, task, index, f"{TAG} end")  # other noise: the old one would often write the same again
        start = replace(reply.start, turns=turns, key=key)
        return Reply(start, most=step.settings.max_new_tokens - kept)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        begun = [started(task, n, step, step.sampling(), who, TAG) for task in tasks]
        write_guided([reply for some in begun for reply in some], guide, step)
        ends = [[finished(reply, task, step) for reply in some] for task, some in zip(tasks, begun, strict=True)]
        write_on([reply for some in ends for reply in some], step)
        for reply in (reply for some in ends for reply in some):
            reply.stopped = reply.stopped or "length"
        return [Group(task, [reply.trace() for reply in some]) for task, some in zip(tasks, ends, strict=True)]

    return Rollout(
        name=f"rolled_in({n}) under {guide.name}",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate", f"model:{who}.logits"}) | guide.reads,
        writes=names("tokens", ("task", who, author)) | names("mu", (who, author)) | names("tag", TAG),
    )


Candidates = Annotated[int, Option("How many of the likeliest next tokens the value model scores; 0: all.", at_least=0)]
Eta = Annotated[float, Option("Temperature of the values: a smaller one follows them more.", above=0)]


@register(
    Q_SHARP,
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
        rollout=rollout.by_candidates(n, by_chances("value_model", eta, k=k)),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(value_model=frozen(value_model, outputs=1)),
        sampling=Sampling(0.8, top_p=0.9),
    )


@register(
    Q_SHARP,
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
        rollout=rolled_in(n, by_chances("value", eta, k=k)),
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
