"""What methods in the manner of PPO share: their credit and their cast."""

from __future__ import annotations

from burnish.cast.roles import Role, frozen, stage, trained
from burnish.credit.gae import gae, token_rewards, whiten
from burnish.credit.members import member
from burnish.credit.streams import behaviour, ref, streams
from burnish.parts import Part, chain
from burnish.score.model import rm_role


def anchors(temperature: float) -> Part:
    """What the clipped surrogate, the KL and GAE compare with: log-probs at sampling, the reference's, the critic's values."""
    return chain(behaviour(), ref(temperature=temperature), streams("critic", "policy", value="value"))


def claims(tag: str | None = None) -> Part:
    """The policy's and the critic's term claim what the policy wrote (on traces with that tag, where one is named)."""
    return chain(member("pg", "policy", tag=tag), member("value", "policy", tag=tag))


def ppo_credit(
    kl: float,
    lam: float,
    *,
    gamma: float = 1.0,
    score: str = "reward",
    temperature: float = 1.0,
    dense: tuple[Part, ...] = (),
    tag: str | None = None,
) -> Part:
    """PPO's credit: r_t = -kl log(pi_old/ref), plus the score at the last token and what `dense` parts add; GAE; whitening."""
    rewards = token_rewards(score=score, kl=kl)
    return chain(anchors(temperature), rewards, *dense, gae(gamma=gamma, lam=lam), whiten(), claims(tag))


def ppo_cast(critic_lr: float, reward_model: str | None = None, **others: Role) -> dict[str, Role]:
    """The policy, its frozen start as the reference (unless another is named), a critic, and a reward model where there is one."""
    return stage(
        **{"ref": frozen("policy"), **others}, critic=trained(outputs=1, lr=critic_lr), **rm_role(reward_model)
    )
