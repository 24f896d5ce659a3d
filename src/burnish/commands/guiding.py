"""Models that guide another one outside of a run: --guide and --against of eval, chat and serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from burnish.core.roles import Role
    from burnish.engine.mixture import Blend
    from burnish.models.build import Models


@dataclass(frozen=True)
class Guides:
    """The models that guide, to be loaded beside the policy, and how all of them are mixed; None: nothing guides.

    log p(a) = log pi(a) + sum_i w_i log pi_i(a) - (sum_i w_i) log pi_against(a) + const
    """

    models: dict[str, Role]
    blend: Blend | None

    def check(self, models: Models) -> None:
        """Raise ValueError where a guide has another tokenizer than the policy."""
        from burnish.core.step import Settings, Step
        from burnish.core.types import Clock
        from burnish.score.reading import require_same_tokens

        for name in self.models:
            require_same_tokens(name, "policy", Step(Clock(0, 1), models, Settings()))


def read_guides(guide: str | None, against: str | None) -> Guides:
    """The guides of `--guide "a*0.7,b*0.3" --against BASE`: without --against as in genarm, with it as in eft."""
    from burnish.core.roles import frozen
    from burnish.engine.mixture import guided
    from burnish.methods.weighted import weighted_models

    if guide is None:
        if against is not None:
            raise ValueError("--against is what the models of --guide started from; add --guide MODEL")
        return Guides({}, None)
    found = weighted_models(guide, "guide")
    weights = {name: weight for name, (_, weight) in found.items()}
    models = {name: frozen(model) for name, (model, _) in found.items()}
    if against is not None:
        models["against"], weights["against"] = frozen(against), -sum(weights.values())
    return Guides(models, guided(weights))
