"""The reference's log-probs of a data set's replies, computed once and used again in later epochs."""

from __future__ import annotations

import base64
import hashlib

import numpy as np
import torch
from torch import Tensor

from burnish.core.parts import Part
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.streams import ref
from burnish.tasks.source import Source

CAPACITY = 1 << 22  # tokens that are kept: 16 MiB


class LogpCache:
    """Log-probs of whole traces by model version and tokens, up to `capacity` tokens; what comes later is not kept.

    It is part of a checkpoint: computed again in another batch, the last bits could differ.
    """

    def __init__(self, capacity: int = CAPACITY, name: str = "reference") -> None:
        self.name, self.capacity, self.size = name, capacity, 0
        self.logps: dict[str, Tensor] = {}

    def key(self, trace: Trace, version: int) -> str:
        digest = hashlib.blake2b(b"%d:" % version, digest_size=16)
        for turn in trace.turns:
            digest.update(turn.tokens.numpy().tobytes())
        return digest.hexdigest()

    def keep(self, key: str, logp: Tensor) -> None:
        if key not in self.logps and self.size + len(logp) <= self.capacity:
            self.logps[key] = logp.clone()
            self.size += len(logp)

    def state_dict(self) -> State:
        flat = torch.cat(list(self.logps.values())) if self.logps else torch.zeros(0)
        stored = base64.b64encode(flat.numpy().astype("<f4").tobytes()).decode()
        return {"keys": list(self.logps), "sizes": [len(x) for x in self.logps.values()], "logp": stored}

    def load_state_dict(self, state: State) -> None:
        flat = torch.from_numpy(np.frombuffer(base64.b64decode(state["logp"]), "<f4").copy())
        self.logps = dict(zip(state["keys"], flat.split(state["sizes"]), strict=True)) if state["keys"] else {}
        self.size = len(flat)


def cached_ref(source: Source, who: str = "ref", *, cache: LogpCache | None = None) -> Part:
    """`ref` for given replies of a data set: every reply's log-probs are computed in its first epoch alone.

    who  a frozen model. A source without an end (a generated task) never repeats itself and is not cached.
    """
    if source.size("train") is None and cache is None:
        return ref(who)
    memory, plain = cache or LogpCache(), ref(who)

    def call(groups: list[Group], step: Step) -> list[Group]:
        version, new = step.models[who].version, []
        unknown: list[tuple[str, Trace]] = []
        for group in groups:
            before = len(unknown)
            for trace in group.traces:
                key = memory.key(trace, version)
                logp = memory.logps.get(key)
                if logp is None:
                    unknown.append((key, trace))
                else:
                    trace.streams["ref"] = logp.clone()
            if len(unknown) > before:
                new.append(Group(group.task, [trace for _, trace in unknown[before:]]))
        plain.call(new, step)
        for key, trace in unknown:
            if "ref" in trace.streams:
                memory.keep(key, trace.streams["ref"])
        total = sum(len(group.traces) for group in groups)
        step.notes.add("reference_cached", total - sum(len(group.traces) for group in new), max(1, total))
        return groups

    return Part(name=f"cached {plain.name}", call=call, reads=plain.reads, writes=plain.writes, state=(memory,))
