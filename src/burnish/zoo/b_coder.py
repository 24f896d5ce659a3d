"""B-Coder: Value-Based Deep Reinforcement Learning for Program Synthesis (arXiv 2310.03173).

A language model read as a dueling Q-function (B-Coder, Yu et al., arXiv 2310.03173): its logits are advantages.

Terms of a dueling Q-function whose advantages are the policy's logits and whose value is the critic's.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from torch import Tensor
from torch.nn.functional import softplus

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import supplies
from burnish.core.schedules import Schedule, after, before
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.maths.soft_q import next_values
from burnish.learn.norms import Norm, seq_mean, seq_sum_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, Part, Phase, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

B_CODER = Paper("b-coder", "2310.03173", "B-Coder: Value-Based Deep Reinforcement Learning for Program Synthesis")


@supplies("score:spread")
def spread(low: float, high: float = 1.0, *, score: str = "reward", name: str = "spread") -> Part:
    """scores[name] = low + (high - low) score: maps [0, 1] to [low, high]."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            trace.scores[name] = low + (high - low) * trace.scores[score]
        return groups

    return Part(
        name=f"spread({low:g}, {high:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"score:{name}"}),
    )


def dueling_advantage(logits: Tensor, action: Tensor, alpha: float) -> Tensor:
    """alpha (l(s, a) - max over a' of l(s, a')), never above 0: [N, V] logits and [N] actions -> [N].

    softmax of Q / alpha with Q = this + V(s) is the language model's own distribution, whatever V is.
    """
    assert logits.ndim == 2 and action.shape == logits.shape[:1]
    return alpha * (logits.gather(-1, action[:, None])[:, 0] - logits.max(-1).values)


def soft_abs(x: Tensor) -> Tensor:
    """(softplus(x) + softplus(-x)) / 2 - ln 2: smooth, 0 at 0, about |x| / 2 far from it."""
    return (softplus(x) + softplus(-x)) / 2 - math.log(2)


def capped_value(raw: Tensor, most: float) -> Tensor:
    """V(s) = most - soft_abs(raw): a state is never worth more than the largest reward, so no Q is either."""
    return most - soft_abs(raw)


def td_error(reward: Tensor, advantage: Tensor, value: Tensor, following: Tensor, gamma: float) -> Tensor:
    """The error of one backup, per token [N]; the value that follows is held.

        r_t + gamma sg[Q(s_{t+1}, a^_{t+1})] - Q(s_t, a_t),   Q(s_t, a_t) = advantage + value

    a^ is whatever action the backup believes in: the argmax of a fixed policy for B-Coder's conservative operator, of Q
    itself for Q-learning. With gamma = 0 it is the error of a regression on the reward.
    """
    assert reward.shape == advantage.shape == value.shape == following.shape
    return reward + gamma * following.detach() - (advantage + value)


_STREAMS = ("token", "backup", "reward")


def _squared_error(live: Live, logits: Tensor, raw: Tensor, alpha: float, gamma: float, most: float) -> Tensor:
    """(r_t + gamma sg[Q(s_{t+1}, a^_{t+1})] - Q(s_t, a_t))^2 per token; a^ is stream "backup", 0
    follows a row's last.
    """
    value = capped_value(raw, most)
    advantage = dueling_advantage(logits, live.token, alpha)
    believed = dueling_advantage(logits, live.backup.long(), alpha) + value
    error = td_error(live.reward, advantage, value, next_values(believed, live.row), gamma)
    live.note("q", advantage + value)
    return error.square()


def dueling_policy(
    alpha: float,
    gamma: float,
    most: float,
    *,
    norm: Norm = seq_mean,
    critic: str = "critic",
    on: Authors = "policy",
    name: str = "q",
) -> Term:
    """The temporal-difference loss of Q, as far as it moves the policy's logits; the critic's values
    are those of now.
    """

    def loss(live: Live) -> Tensor:
        return _squared_error(live, live.logits, live.outputs[f"{critic}.value"], alpha, gamma, most)

    return Term(
        name=name, on=on, unit="token", loss=loss, live=("logits", f"{critic}.value"), streams=_STREAMS, norm=norm
    )


def dueling_value(
    alpha: float,
    gamma: float,
    most: float,
    *,
    norm: Norm = seq_mean,
    trainee: str = "critic",
    on: Authors = "policy",
    name: str = "value",
) -> Term:
    """The same loss, as far as it moves the critic; the policy's logits are those of now."""

    def loss(live: Live) -> Tensor:
        return _squared_error(live, live.outputs["policy.logits"], live.outputs["value"], alpha, gamma, most)

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("value", "policy.logits"),
        streams=_STREAMS,
        norm=norm,
        trainee=trainee,
    )


def no_advantage_lost(
    alpha: float, *, coef: Schedule, norm: Norm = seq_sum_mean, on: Authors = "policy", name: str = "best"
) -> Term:
    """|A(s, a)| of demonstrated tokens: none of them may be worse than the best."""

    def loss(live: Live) -> Tensor:
        return -dueling_advantage(live.logits, live.token, alpha)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logits",), streams=("token",), norm=norm, coef=coef)


MOST = 1.0  # the largest reward, and so the largest value
BOTH = ("demo", "ref")


@register(
    B_CODER,
    family="policy",
    summary="The logits are read as advantages of a dueling Q, backed up along the start's greedy choice.",
    when="You have demonstrations and many scored replies of an older model: value-based learning reuses them all.",
    trial={"value_steps": 1},
)
def b_coder(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies of the starting policy for each demonstration.", at_least=1)] = 1,
    alpha: Annotated[float, Option("The temperature that ties logits to advantages.", at_least=0)] = 1.0,
    gamma: opt.Gamma = 0.999,
    wrong: Annotated[float, Option("Reward of a wrong reply.", below=1)] = -0.3,
    adv: Annotated[float, Option("Weight of the demonstrations' lost advantage.", at_least=0)] = 0.1,
    ce: Annotated[float, Option("Weight of imitating the demonstrations.", at_least=0)] = 0.5,
    value_steps: Annotated[int, Option("Steps in which V learns; the policy begins in the last.", at_least=1)] = 20,
    critic_lr: Annotated[
        float, Option("Multiplies the learning rate for V.", at_least=0.01, reason=opt.A_FACTOR)
    ] = 1.0,
) -> Method:
    """B-Coder: off-policy Q-learning on demonstrations and on replies of the starting policy.

    Q(s, a) = alpha (l(s, a) - max_a' l(s, a')) + V(s),   l the policy's logits, V = 1 - softabs(critic) <= 1
    L_Q = mean over replies of mean over tokens of ( r_t + gamma sg[Q(s_{t+1}, a^_{t+1})] - Q(s_t, y_t) )^2
    a^ = the starting policy's likeliest token, a fixed greedy backup
    r is 1 for a right reply, `wrong` for a wrong one, at its end
    First V alone learns L_Q. Then pi = softmax(Q / alpha) = softmax(l) and V learn
    L_Q + adv (mean over demonstrations of sum |A(s_t, y*_t)|) + ce (mean over demonstrations of -log pi(y*))

    The constants are the paper's (its section 3.1 and appendix H): half of a batch are demonstrations, rewards 1
    and -0.3. It prints softabs with + ln 2, which would keep V below -0.38; here it is 0 at 0, as an absolute value
    is. Scores between 0 and 1 are spread from `wrong` to 1; the paper's -0.6 and -1 for programs that do not run or
    compile have no counterpart. Departures: V is a copy of the model with a linear head that goes on learning,
    where the paper freezes it after its own stage and adds a residual head to the policy (it names both ways);
    replies are drawn as they are needed, where the paper collects 256 a problem beforehand. Ranking replies by the
    reward that Q implies is left out. The paper's value steps are 18k of 28k.
    """
    stages: dict[str, Any] = {
        "draw": draw.demos(task),
        "rollout": rollout.join(rollout.given("demo"), rollout.sample(n, who="ref")),
        "score": chain(score.verify(task, author="ref"), spread(wrong, MOST)),
    }
    learn_value = Phase(
        name="value",
        times=before(value_steps),
        credit=_backups(),
        learn=learn.Learn(dueling_value(alpha, gamma, MOST, on=BOTH), logp_temperature=1.0),
        **stages,
    )
    main = Phase(
        times=after(value_steps - 1),
        credit=_backups(),
        learn=learn.Learn(
            dueling_policy(alpha, gamma, MOST, on=BOTH),
            dueling_value(alpha, gamma, MOST, on=BOTH),
            no_advantage_lost(alpha, coef=adv, on="demo"),
            learn.imitate(coef=ce, norm=learn.seq_sum_mean, on="demo"),
            logp_temperature=1.0,
        ),
        **stages,
    )
    return Method(
        models=roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)), phases=(learn_value, main)
    )


def _backups() -> Part:
    """Rewards, tokens, and the token that the starting policy would have chosen: what a backup reads."""
    return chain(
        credit.token_ids(),
        credit.streams("ref", greedy="backup"),
        credit.token_rewards(score="spread", kl=None, author=("demo", "ref")),
    )
