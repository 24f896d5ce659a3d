"""What else can be measured on a trained model, by name: `right_replies(k=64)`. Each gives named lists of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from burnish.core.call_syntax import read_call
from burnish.core.roles import Role
from burnish.evals.beside import divergence, pairs_ranked
from burnish.evals.between import interpolated
from burnish.evals.pair_steps import pair_steps
from burnish.evals.probed import Asked, Measures, answers, early_answers, right_replies
from burnish.evals.writing import written
from burnish.models.build import Models, build
from burnish.models.known_models import resolve
from burnish.run.train import Run

Probe = Callable[..., Measures]
_ALL = (answers, right_replies, early_answers, pair_steps, written, interpolated, divergence, pairs_ranked)
PROBES: dict[str, Probe] = {one.__name__: one for one in _ALL}


def probed(run: Run, probes: Sequence[str], tasks: int) -> Measures:
    """What these probes measure on the product of a run, on the first held-out tasks."""
    if not probes:
        return {}
    options = run.config.options

    @cache
    def start() -> Models:
        return build({"policy": Role("frozen", "base")}, resolve(options.model), run.settings, device=options.device)

    measures: Measures = {}
    asked = Asked(run.models, run.source, run.settings, tasks, run.method.product, start)
    for words in probes:
        name, arguments = read_probe(words)
        by_name = PROBES[name](asked, **arguments)
        measures |= {key: tuple(float(f"{x:.5g}") for x in values) for key, values in by_name.items()}
    return measures


def read_probe(words: str) -> tuple[str, dict[str, object]]:
    """The name and the arguments of a probe; raises ValueError for one that is not there."""
    call = read_call(words)
    if call is None or call.name not in PROBES or call.positional:
        raise ValueError(
            f"there is no probe {words!r}; there are {', '.join(PROBES)}, written {next(iter(PROBES))}(k=8)"
        )
    return call.name, call.named
