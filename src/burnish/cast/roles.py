"""The roles a cast can have, before any weights are loaded: where a member's weights come from and how they live."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.nouns import Clock

LM = frozenset({"generate", "mix", "logp", "logits", "entropy", "greedy"})
SCALAR = frozenset({"value", "score"})


@dataclass(frozen=True)
class Role:
    """One member of a cast.

    liveness  trained: learn moves it; frozen: never changes; ema, snapshot: follow another member at each publish
    source    where its first weights come from: "base" (the model of the run) or a model's name or directory
    follows   the member whose weights it takes over (ema, snapshot, or a frozen copy of the start)
    outputs   0 for a language model; k for a model with k numbers per token instead of logits (critic, reward model)
    """

    liveness: str
    source: str = "base"
    follows: str | None = None
    outputs: int = 0
    decay: float = 0.0  # ema: the share of its old self that it keeps at each publish
    every: int = 1  # snapshot: publishes between two copies
    lr: float = 1.0  # trained: multiplies the run's learning rate
    mixed_with: str | None = None  # a second source, averaged into the first weights
    share: float = 0.0  # the second source's share of the average

    @property
    def can(self) -> frozenset[str]:
        return SCALAR if self.outputs else LM

    def speaks(self) -> bool:
        """Whether it learns and gives replies: then an engine in another process may sample for it."""
        return self.liveness == "trained" and not self.outputs

    def due(self, clock: Clock) -> bool:
        """Whether a snapshot is taken after this step."""
        return (clock.step + 1) % self.every == 0


def trained(source: str = "base", *, outputs: int = 0, lr: float = 1.0) -> Role:
    """A member that learns, starting from `source`."""
    return Role("trained", source, outputs=outputs, lr=lr)


def frozen(source: str = "policy", *, outputs: int = 0) -> Role:
    """A member that never changes: "policy" is the policy as it starts; anything else is a model's name or directory."""
    if source == "policy":
        return Role("frozen", "base", follows="policy", outputs=outputs)
    return Role("frozen", source, outputs=outputs)


def soup(first: str, second: str, share: float = 0.5) -> Role:
    """A frozen member whose weights are (1 - share) first + share second; "base" is the model of the run."""
    if not 0 <= share <= 1:
        raise ValueError(f"a soup's share of {share} is not between 0 and 1")
    return Role("frozen", first, mixed_with=second, share=share)


def ema(follows: str, decay: float, *, outputs: int = 0) -> Role:
    """A member that follows another: w <- decay w + (1 - decay) w_followed, at each publish."""
    return Role("ema", "base", follows=follows, outputs=outputs, decay=decay)


def snapshot(follows: str, every: int = 1, *, outputs: int = 0) -> Role:
    """A copy of another member, renewed after every `every` steps."""
    return Role("snapshot", "base", follows=follows, outputs=outputs, every=every)


def stage(product: str = "policy", /, **roles: Role) -> dict[str, Role]:
    """The cast of a method: the product is trained from the run's model unless a role says otherwise."""
    return {product: roles.pop(product, trained()), **roles}
