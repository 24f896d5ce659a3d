"""`burnish simulate`: what steps would take on a cluster that is not at hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.simulator.shapes import Costs


@dataclass(frozen=True)
class SimulateOptions:
    """burnish simulate MODEL --cluster 8xH100 [--nodes 8] [--lags 0,1,4]: simulate training steps on a cluster.

    MODEL is a directory or name of a model, of which only config.json is read, or one of the published models of
    docs/simulator.md, such as Qwen3-30B-A3B. For each lag the best division of the GPUs into samplers and learners is
    searched for. --scale shows clusters of 1 to 4,096 GPUs instead of one. Nothing is loaded and no GPU is needed."""

    cluster: str = "8xH100"
    """The GPUs of a node and their kind: 8xH100; A100, H100, H800, H200, H20, B200, GB200, L40S, 4090."""
    nodes: Annotated[int, Option(at_least=1)] = 1
    """How many such nodes."""
    scale: bool = False
    """Clusters of 1, 2, 4, ... 4,096 of these GPUs."""
    lags: str = "0,1,4"
    """Weight versions that replies may be behind: 0 is synchronous."""
    replies: Annotated[int, Option(at_least=1)] = 2048
    """Replies of one step: prompts times samples."""
    mean_reply: Annotated[float, Option(above=0)] = 1000.0
    """Tokens of a reply, on average."""
    longest: Annotated[float, Option(above=0)] = 4096.0
    """Tokens of the longest reply."""
    spread: Annotated[float, Option(at_least=0)] = 0.6
    """The standard deviation of the logarithm of lengths: 0 makes all equal."""
    prompt: Annotated[float, Option(at_least=1)] = 150.0
    """Tokens of a prompt."""
    updates: Annotated[int, Option(at_least=1)] = 1
    """Updates of the weights in a step."""
    passes: Annotated[float, Option(at_least=0)] = 1.0
    """Forward passes beside training: log-probs of the policy, of a reference."""
    scoring: Annotated[float, Option(at_least=0)] = 0.0
    """Seconds from the end of a reply to its score."""
    uneven: Annotated[float, Option(at_least=0)] = 0.0
    """How uneven engines are: the standard deviation of the logarithm of their speeds."""
    hours: Annotated[float, Option(at_least=0)] = 0.0
    """Mean hours between failures of one GPU; 0: none fails."""
    restart: Annotated[float, Option(at_least=0)] = 300.0
    """Seconds until the work of a failed GPU goes on."""
    mfu: Annotated[float, Option(above=0, at_most=1)] = 0.4
    """The share of the peak that training reaches; a mixture of experts a fifth of it."""
    launch: Annotated[float, Option(above=0)] = 1e-4
    """Seconds of a decode step per layer, whatever it computes."""
    fixed: Annotated[float, Option(at_least=0)] = 5.0
    """Seconds of a step that depend on nothing."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(SimulateOptions, "simulate", words, plain=1)
    if asked is None:
        return 0
    names, options = asked
    if not names:
        raise ValueError("say which model: burnish simulate Qwen3-30B-A3B --cluster 8xH100 --nodes 4")
    from burnish.run.step_time import Cluster
    from burnish.simulator.costs import Rates
    from burnish.simulator.lengths import Lengths
    from burnish.simulator.scaling import SIZES, scaling
    from burnish.simulator.simulate import Job, Trouble

    cluster = Cluster.read(options.cluster, options.nodes)
    rates = Rates(options.mfu, options.mfu / 5, 0.5, options.launch, fixed=options.fixed)
    job = Job(
        model_costs(names[0]),
        cluster.gpu,
        options.replies,
        Lengths(options.mean_reply, options.longest, options.spread),
        options.prompt,
        options.updates,
        options.passes,
        options.scoring,
    )
    trouble = Trouble(options.uneven, options.hours, options.restart)
    sizes = SIZES if options.scale else (cluster.ranks,)
    points = scaling(job, rates, sizes, _lags(options.lags), trouble)
    if not points:
        raise ValueError(
            f"{'no such cluster' if options.scale else options.cluster} holds {job.model.name}, its gradients and "
            "moments; use more GPUs (--nodes), or --scale to see how many it needs"
        )
    if options.json:
        print(json.dumps([point.told() for point in points]))
        return 0
    from rich.table import Table

    table = Table("GPUs", "lag", "samplers", "s/step", "tokens/s", "tokens/s/GPU", "idle", "staleness", box=None)
    for point in points:
        split = f"{point.samplers * point.gpus:,.0f}" if point.samplers else "all, in turns"
        table.add_row(
            f"{point.gpus:,}",
            str(point.lag),
            split,
            f"{point.step_seconds:,.1f}",
            f"{point.tokens_per_second:,.0f}",
            f"{point.tokens_per_second / point.gpus:,.0f}",
            f"{point.idle:.0%}",
            f"{point.staleness:.1f}",
        )
    stdout_console().print(table)
    return 0


def model_costs(name: str) -> Costs:
    """The costs of a published model by name, or of a model's config.json."""
    from burnish.models.known_models import resolve
    from burnish.simulator.published import published
    from burnish.simulator.shapes import Costs

    known = published()[0]
    return known[name] if name in known else Costs.of(resolve(name))


def _lags(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise ValueError(f"--lags is {text!r}; it is a list of whole numbers, such as 0,1,4")
    return [int(word) for word in words]
