"""A stream under a second name, for two terms that read the same number at different tokens."""

from __future__ import annotations

from burnish.core.parts import Part, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("stream:*")
def copies(**streams: str) -> Part:
    """copies(adv="demo_adv") writes the stream "adv" again as "demo_adv"."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        for source, name in streams.items():
            trace.streams[name] = trace.streams[source].clone()

    return per_trace(
        write,
        name=f"copies({', '.join(f'{source} as {name}' for source, name in streams.items())})",
        reads=names("stream", streams),
        writes=names("stream", streams.values()),
    )
