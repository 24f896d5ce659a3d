"""Options of how and where replies are sampled: ahead of learning, by which engine, on Ray (groups of groups.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from burnish.config.option_kinds import Count, CountOrNone, CountOrZero, Seconds, may_change
from burnish.core.option import Option


@dataclass(frozen=True)
class SamplingAhead:
    """Sampling ahead of learning"""

    lag: CountOrZero = 0
    """Sample and score this many steps ahead, while earlier steps learn: replies of step t come from the weights after
    step t - 1 - lag. 0: one after the other. Exactly repeatable either way (docs/async.md)."""
    chunk: CountOrNone = None
    """Sample at most this many tokens of a reply in one step; an unfinished reply is continued in the next step, with
    the newer weights, and a group is learned from when its last reply has ended (docs/async.md)."""
    train_when: Annotated[float | None, Option(above=0, at_most=1)] = None
    """With an environment: a step learns when this share of the groups that are being played is done; the others are
    played on beside those of the next step. 0.5 plays twice as many episodes as a step learns from (docs/async.md)."""
    step_deadline: Annotated[float | None, Option(above=0)] = may_change(None)
    """With an environment: seconds that a step waits for environments at most; episodes that are not done then are
    played on in the next step (docs/async.md)."""


@dataclass(frozen=True)
class Engines:
    """Engines"""

    engine: Literal["local", "process", "vllm"] = "local"
    """The engine that samples the policy's replies: local (burnish, with the trained weights themselves), process (the
    same in a subprocess, on a copy), vllm (vLLM in its own Python environment)."""
    vllm_python: str | None = may_change(None)
    """The Python that has vLLM; by default that of an environment `vllm` next to this one, or this one."""
    on_mismatch: Literal["stop", "warn"] = may_change("stop")
    """What to do if an engine's log-probs show that it does not run the trained weights: stop the run, or warn and
    continue."""


@dataclass(frozen=True)
class RayOptions:
    """Ray"""

    on: Literal["here", "ray"] = "here"
    """Where the run executes: here, in this process; or ray: samplers, graders and the trainer are Ray actors
    (docs/async.md)."""
    ray_address: str | None = may_change(None)
    """On Ray: the cluster to join (host:port, or auto); by default one is started here and stopped with the run."""
    samplers: Count = may_change(1)
    """On Ray: actors that sample."""
    graders: Count = may_change(1)
    """On Ray: actors that score."""
    spares: CountOrZero = may_change(1)
    """On Ray: idle actors of each role, the trainer's too, that replace a lost one."""
    unit: CountOrNone = None
    """On Ray: tasks in one unit of work; by default 4, and of episodes the tasks of a step divided by the samplers, so
    that each has many under way. The size changes the last bits of the log-probs; which worker has a unit does not."""
    order: Literal["fixed", "free"] = "fixed"
    """On Ray: fixed learns from the replies of step t in step t, repeatable bit for bit; free samples from the newest
    weights and learns from the units that finish first, at most `lag` steps old."""
    replacements: CountOrZero = may_change(20)
    """On Ray: how many lost actors are replaced before the run stops."""
    recover_within: Seconds = may_change(30.0)
    """On Ray: seconds without any actor of a role, or without the trainer, after which the run stops with an error."""
    call_timeout: Seconds = may_change(600.0)
    """On Ray: seconds that a live actor may spend on one unit; after that it is replaced."""
    threads: CountOrNone = None
    """On Ray: threads of each actor; by default the number of cores divided by the number of working actors."""
