"""The roles of a method's models, before any weights are loaded: where weights come from and how they change."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.core.schedules import steps_of
from burnish.core.types import Clock

LM = frozenset({"generate", "mix", "logp", "logits", "entropy", "greedy", "hidden", "state", "drift", "std"})
SCALAR = frozenset({"value", "score", "state"})


@dataclass(frozen=True)
class Role:
    """The role of one model.

    liveness  trained: updated by learn; frozen: never changes; ema, snapshot: follow another model at each publish
    source    its initial weights: "base" (the model of the run), or a model's name or directory
    follows   the model whose weights it copies (ema, snapshot, or a frozen copy of the start)
    outputs   0 for a language model; k for a model with k numbers per token instead of logits (critic, reward model)
    """

    liveness: str
    source: str = "base"
    follows: str | None = None
    outputs: int = 0
    decay: float = 0.0  # ema: weight of the old value at each publish
    every: float = 1  # ema, snapshot: steps between two copies; below 1 a share of all steps
    offset: float = 0  # ema, snapshot: the copies are taken after offset, offset + every, ... steps; likewise
    lr: float = 1.0  # trained: multiplies the run's learning rate
    mixed_with: str | None = None  # a second source, averaged into the first weights
    share: float = 0.0  # the second source's share of the average
    view: str = ""  # of a model that fills in hidden tokens, unless the run says otherwise (forward/masked.py)
    only: str = ""  # trained: the parts of a model that draws which learn (models/only.py); "": all
    sampler: str = ""  # of a model that draws, unless the run says otherwise (forward/gaussian.py)

    @property
    def can(self) -> frozenset[str]:
        """Its capabilities."""
        return SCALAR if self.outputs else LM

    def speaks(self) -> bool:
        """Whether it is a trained language model: then a subprocess engine may sample for it."""
        return self.liveness == "trained" and not self.outputs

    def due(self, clock: Clock) -> bool:
        """Whether a copy is taken after this step."""
        past = clock.step + 1 - steps_of(self.offset, clock.of)
        return past >= 0 and past % steps_of(self.every, clock.of) == 0


def trained(source: str = "base", *, outputs: int = 0, lr: float = 1.0) -> Role:
    """A model that is trained, starting from `source`."""
    return Role("trained", source, outputs=outputs, lr=lr)


def frozen(source: str = "policy", *, outputs: int = 0) -> Role:
    """A model that never changes: "policy" is the policy at the start; anything else is a model's name or directory."""
    if source == "policy":
        return Role("frozen", "base", follows="policy", outputs=outputs)
    return Role("frozen", source, outputs=outputs)


def soup(first: str, second: str, share: float = 0.5) -> Role:
    """A frozen model with the weights (1 - share) first + share second; "base" is the model of the run."""
    if not 0 <= share <= 1:
        raise ValueError(f"a soup's share of {share} is not between 0 and 1")
    return Role("frozen", first, mixed_with=second, share=share)


def ema(follows: str, decay: float, *, every: float = 1, outputs: int = 0) -> Role:
    """A moving average of another model: w <- decay w + (1 - decay) w_followed, every `every` steps."""
    return Role("ema", "base", follows=follows, outputs=outputs, decay=decay, every=every)


def snapshot(follows: str, every: float = 1, *, offset: float = 0, outputs: int = 0) -> Role:
    """A copy of another model, renewed every `every` steps, the first time after `offset` steps (or `every`).

    Below 1 both are shares of all steps.
    """
    return Role("snapshot", "base", follows=follows, outputs=outputs, every=every, offset=offset)


def roles(product: str = "policy", /, **roles: Role) -> dict[str, Role]:
    """The models of a method by name: the product is trained from the run's model unless a role says otherwise."""
    return {product: roles.pop(product, trained()), **roles}
