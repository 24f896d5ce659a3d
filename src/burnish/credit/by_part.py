"""Credit to two parts of a reply apart: each has its own reward at its end, and its own advantages."""

from __future__ import annotations

from functools import partial

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.gae import advantages_and_returns


@supplies("stream:adv", "stream:returns")
def gae_of_parts(
    first: str,
    second: str,
    split: str,
    *,
    kl: float | None = 0.0,
    gamma: float = 1.0,
    lam: float = 0.95,
    author: str = "policy",
) -> Part:
    """Advantages and returns by GAE on the tokens before note[split] and on those from it on, each as its own sequence.

    r_t = -kl (log pi_old - log ref)(t), plus scores[first] at the first part's last token, scores[second] at the
    second's. So no reward reaches the tokens of the other part. An empty first part gives PPO's credit with the second
    score. With kl None there is no penalty and no reference is asked for.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask, place = trace.by(author), torch.arange(len(trace))
        for name in ("adv", "returns"):
            trace.streams[name] = torch.full((len(trace),), float("nan"))
        at = int(trace.note[split])
        for score, part in ((first, mask & (place < at)), (second, mask & (place >= at))):
            if not bool(part.any()):
                continue
            rewards = torch.zeros(int(part.sum()))
            if kl is not None:
                gap = trace.streams["old"][part] - trace.streams["ref"][part]
                rewards = -kl * gap
                step.notes.add("kl", float(gap.sum()), int(part.sum()))
            rewards[-1] += trace.scores[score]
            adv, returns = advantages_and_returns(rewards, trace.streams["value"][part], gamma, lam)
            trace.streams["adv"][part], trace.streams["returns"][part] = adv, returns

    compared = frozenset({"stream:old", "stream:ref"}) if kl is not None else frozenset()
    unpenalised = partial(gae_of_parts, first, second, split, gamma=gamma, lam=lam, author=author)
    return per_trace(
        write,
        name=f"gae_of_parts({first}, {second})",
        reads=frozenset({f"tokens:{author}", "stream:value", f"score:{first}", f"score:{second}"}) | compared,
        writes=frozenset({"stream:adv", "stream:returns"}),
        idle=unpenalised(kl=None) if is_zero(kl) else None,
    )
