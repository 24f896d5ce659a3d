"""Offline Reinforcement Learning for LLM Multi-Step Reasoning (arXiv 2412.16145).

What counts as one action: a token, a step of reasoning, or the whole reply.

Soft Bellman path consistency (OREO, Wang et al., arXiv 2412.16145). Symbols: lr_t = log pi(a_t|s_t) - log
ref(a_t|s_t).

Terms of soft Bellman consistency, on whole paths.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.maths.distillation import kl
from burnish.learn.norms import Norm, seq_mean, unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.branch import Cuts, lines

OREO = Paper("oreo", "2412.16145", "Offline Reinforcement Learning for LLM Multi-Step Reasoning")


LEVELS: dict[str, Cuts] = {
    "token": lambda turn, chat: list(range(len(turn))),
    "step": lines,
    "response": lambda turn, chat: [0],
}


@supplies("stream:action")
def actions(level: str, *, author: str = "policy", reader: str = "policy") -> Part:
    """The number of the action that each of the author's tokens belongs to, as stream "action".

    level  token: every token is one; step: every line of a turn is one; response: the whole turn is one
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; choose one of {', '.join(LEVELS)}")

    starts_of = LEVELS[level]

    def write(trace: Trace, group: Group, step: Step) -> None:
        found = torch.zeros(len(trace), dtype=torch.long)
        count = 0
        for turn, start, end in trace.spans():
            if turn.author == author:
                starts = starts_of(turn, step.models[reader].chat)
                begins = torch.zeros(end - start, dtype=torch.long)
                begins[starts] = 1
                found[start:end] = count + begins.cumsum(0)
                count += len(starts)
        trace.streams["action"] = found
        step.notes.add("actions", count)

    return per_trace(
        write, name=f"actions({level})", reads=frozenset({f"tokens:{author}"}), writes=frozenset({"stream:action"})
    )


def to_go(x: Tensor, lengths: list[int]) -> Tensor:
    """sum over i >= t of x_i within each of the consecutive rows of these lengths: [N] -> [N]."""
    assert sum(lengths) == len(x)
    return torch.cat([part.flip(0).cumsum(0).flip(0) for part in x.split(lengths)])


def path_value_error(value: Tensor, returns: Tensor, log_ratio_to_go: Tensor, beta: float) -> Tensor:
    """The value's loss, per token [N]; gradient through V alone.

        (V(s_t) - R_t + beta sum_{i>=t} lr_i)^2

    With beta = 0 it is the squared error against the return.
    """
    assert value.shape == returns.shape == log_ratio_to_go.shape
    return (value - returns + beta * log_ratio_to_go.detach()).square()


def path_policy_error(
    log_ratio: Tensor, log_ratio_to_go: Tensor, value: Tensor, returns: Tensor, beta: float
) -> Tensor:
    """The policy's loss, per token [N]; gradient through lr_t alone.

        (V(s_t) - R_t + beta lr_t + sg[beta sum_{i>t} lr_i])^2

    It is 0 along every path of the optimal policy of the KL-regularised problem, of which V is the soft value. At
    pi = ref its gradient is -2 beta (R_t - V(s_t)) grad log pi: a policy gradient with advantage R - V.
    """
    assert log_ratio.shape == log_ratio_to_go.shape == value.shape == returns.shape
    later = (log_ratio_to_go - log_ratio).detach()
    return (value.detach() - returns + beta * (log_ratio + later)).square()


class _Actions:
    """The claimed tokens as actions: runs of one row with one number in stream "action"."""

    def __init__(self, live: Live) -> None:
        changes = (live.row[1:] != live.row[:-1]) | (live.action[1:] != live.action[:-1])
        begins = torch.cat([changes.new_ones(min(1, len(live.row))), changes])
        self.first = begins.nonzero()[:, 0]
        self._of = begins.cumsum(0) - 1
        self._row, self._rows = live.row[self.first], live.rows

    def sums(self, x: Tensor) -> Tensor:
        """[N] -> [A]: the sum over each action's tokens."""
        return x.new_zeros(len(self.first)).index_add(0, self._of, x)

    def to_go(self, x: Tensor) -> Tensor:
        """[A] -> [A]: the sum over this and all later actions of the reply."""
        return to_go(x, torch.bincount(self._row, minlength=self._rows).tolist())

    def row_means(self, x: Tensor) -> Tensor:
        """[A] -> [R]: the mean over each reply's actions; 0 for a row that has none."""
        count = torch.bincount(self._row, minlength=self._rows).clamp(min=1)
        return x.new_zeros(self._rows).index_add(0, self._row, x) / count


def path_value(
    beta: float, *, norm: Norm = unit_mean, trainee: str = "critic", on: Authors = "policy", name: str = "value"
) -> Term:
    """OREO's value loss, where actions begin: V against "returns" minus beta times the policy's log-ratio to go."""

    def loss(live: Live) -> Tensor:
        each = _Actions(live)
        ahead = each.to_go(each.sums(live.outputs["policy.logp"] - live.ref))
        value, returns = live.outputs["value"][each.first], live.returns[each.first]
        return each.row_means(path_value_error(value, returns, ahead, beta))

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("value", "policy.logp"),
        streams=("ref", "returns", "action"),
        norm=norm,
        trainee=trainee,
    )


def path_policy(
    beta: float, *, norm: Norm = unit_mean, critic: str = "critic", on: Authors = "policy", name: str = "path"
) -> Term:
    """OREO's policy loss, with the critic's values as they are now; an action's log-ratio is the sum
    over its tokens.
    """

    def loss(live: Live) -> Tensor:
        each = _Actions(live)
        log_ratio = each.sums(live.logp - live.ref)
        value, returns = live.outputs[f"{critic}.value"][each.first], live.returns[each.first]
        live.note("entropy", row_mean(live, live.entropy))
        live.note("value", each.row_means(value))
        errors = path_policy_error(log_ratio, each.to_go(log_ratio.detach()), value, returns, beta)
        return each.row_means(errors)

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("logp", "entropy", f"{critic}.value"),
        streams=("ref", "returns", "action"),
        norm=norm,
    )


def kl_exact(
    *, coef: Schedule, norm: Norm = seq_mean, ref: str = "ref", on: Authors = "policy", name: str = "kl"
) -> Term:
    """KL(pi || ref) over the whole vocabulary at every claimed token, not an estimate at the sampled one."""

    def loss(live: Live) -> Tensor:
        return kl(torch.log_softmax(live.logits, -1), torch.log_softmax(live.outputs[f"{ref}.logits"], -1))

    return Term(name=name, on=on, unit="token", loss=loss, live=("logits", f"{ref}.logits"), norm=norm, coef=coef)


_HOLD = {"token": 0.01, "step": 0.1, "response": 0.3}  # OREO's weights of the KL


@register(
    OREO,
    family="policy",
    summary="Policy and value fitted to the soft Bellman equation on replies of the starting policy.",
    when="You have right and wrong replies, offline, and want credit for single steps; its value model guides search.",
)
def oreo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    level: Annotated[
        Literal["token", "step", "response"],
        Option("What an action is: a token, a step (a line) or the response."),
    ] = "token",
    beta: Annotated[float, Option("Strength of the entropy-regularised objective.", above=0)] = 0.03,
    alpha: Annotated[float | None, Option("Weight of the KL; by default that of the level.", at_least=0)] = None,
    critic_lr: Annotated[
        float, Option("Multiplies the learning rate for the value model.", at_least=0.01, reason=opt.A_FACTOR)
    ] = 1.0,
) -> Method:
    """OREO: offline, on right and wrong replies of the starting policy. Actions t are tokens, steps or the reply.

    lr_t = log pi(y_t)/ref(y_t), summed over the action's tokens,  R the reply's score,  V_t before the action
    L_V  = mean over replies of mean over actions of (V_t - R + beta sum_{i>=t} lr_i)^2                      (lr held)
    L_pi = the same mean of (V_t - R + beta lr_t + sg[beta sum_{i>t} lr_i])^2 + alpha KL(pi || ref)(s_t)     (V held)

    The KL is over the whole vocabulary, at every token. V and lr are those of the moment, in every update.
    Departure: replies are drawn afresh from the starting policy as they are needed, where the paper collects them
    beforehand. The paper's alpha is 0.01 for tokens, 0.1 for steps and 0.3 for responses.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="ref"),
        score=score.verify(task, author="ref"),
        credit=chain(
            credit.ref(),
            credit.token_rewards(kl=None, author="ref"),
            credit.monte_carlo(author="ref"),
            actions(level, author="ref"),
        ),
        learn=learn.Learn(
            path_policy(beta, on="ref"),
            path_value(beta, on="ref"),
            kl_exact(coef=_HOLD[level] if alpha is None else alpha, on="ref"),
        ),
        models=roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)),
    )
