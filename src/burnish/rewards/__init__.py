"""Rewards and reward shaping by name, for any method: `--reward NAME(options)`, `--shape NAME(options)`.

A scorer is a function that returns a `Scorer` (core/scorer.py), registered by one decorator; its signature is its
configuration, as with methods:

    @register_shape(papers.ALP, summary="...", when="...")
    def alp(task: Source, *, beta: Annotated[float, Option("...", at_least=0)] = 1e-7) -> Scorer:
        ...
        return Scorer(part=Part(name=..., call=..., reads=..., updates=frozenset({"score:reward"})))

    @register_reward(papers.ARMORM, summary="...")
    def armorm(task: Source, model: str, *, ...) -> Scorer:
        return Scorer(part=Part(..., writes=frozenset({"score:reward/armorm"})), models={"armorm": frozen(model, ...)})

Checks that read the text of one reply and the columns of its row are verifiers (burnish/verifiers), which run in the
sandbox; scorers see groups, tokens and models, and run in the process of the run: they never evaluate a reply.
"""

from burnish.core.scorer import DENSE, MEASURED, Scorer, is_failed, mark_failed
from burnish.rewards.table import register_reward, register_shape

__all__ = ["DENSE", "MEASURED", "Scorer", "is_failed", "mark_failed", "register_reward", "register_shape"]
