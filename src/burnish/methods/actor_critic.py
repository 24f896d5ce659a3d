"""What actor-critic methods (PPO and its relatives) share: credit parts and model roles."""

from __future__ import annotations

from burnish import credit, score
from burnish.method import Part, Role, chain, frozen, roles, trained


def anchors() -> Part:
    """What the surrogate, the KL and GAE compare with: log-probs at sampling, the reference's, the critic's values."""
    return chain(credit.behaviour(), credit.ref(), credit.streams("critic", "policy", value="value"))


def ppo_credit(
    kl: float, lam: float, *, gamma: float = 1.0, score: str = "reward", dense: tuple[Part, ...] = ()
) -> Part:
    """PPO's credit: r_t = -kl log(pi_old/ref), the score at the last token, what `dense` parts add; GAE; whitening."""
    rewards = credit.token_rewards(score=score, kl=kl)
    return chain(anchors(), rewards, *dense, credit.gae(gamma=gamma, lam=lam), credit.whiten())


def ppo_models(critic_lr: float, reward_model: str | None = None, **others: Role) -> dict[str, Role]:
    """The policy, its frozen start as the reference and a critic that starts from the same model (unless others are
    named), and a reward model if any.
    """
    usual = {"ref": frozen("policy"), "critic": trained(outputs=1, lr=critic_lr)}
    return roles(**{**usual, **others}, **score.rm_role(reward_model))
