"""Per-token numbers from models: log-probs of the reference, of the policy before the update, values of the critic."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import LogpTemperature, Step
from burnish.core.types import Group, Trace
from burnish.score.reading import require_same_tokens
from burnish.util.tensors import NAN, constant


@supplies("stream:*")
def streams(
    who: str, *authors: str, at: str = "replies", logp_temperature: LogpTemperature = None, **outputs: str
) -> Part:
    """Outputs of a model as streams, without gradient: streams("policy", logp="old", entropy="entropy").

    at "replies" means every token after the prompt (by the named authors, where any are named); "end" the last alone.
    logp_temperature  of log-probs, logits and entropies; None: as each token was drawn, at 1 for given ones, or "run":
                      these at the run's temperature
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for author in authors:
            require_same_tokens(who, author, step)
        traces = [trace for group in groups for trace in group.traces]
        masks = [_where(trace, authors, at) for trace in traces]
        heat = step.logp_at(logp_temperature)
        results = step.models[who].streams(traces, masks, set(outputs), step.settings.token_budget, *heat)
        for trace, by_output in zip(traces, results, strict=True):
            for output, name in outputs.items():
                if output in by_output:
                    trace.streams[name] = by_output[output]
        return groups

    return Part(
        name=f"streams({who}: {', '.join(f'{o} as {n}' for o, n in outputs.items())})",
        call=call,
        reads=frozenset({f"model:{who}.{output}" for output in outputs} | {f"tokens:{author}" for author in authors}),
        writes=frozenset(f"stream:{name}" for name in outputs.values()),
    )


def _where(trace: Trace, authors: tuple[str, ...], at: str) -> Tensor:
    if at == "end":
        return torch.arange(len(trace)) == len(trace) - 1
    mask = trace.by(*authors) if authors else torch.ones(len(trace), dtype=torch.bool)
    mask[: len(trace.turns[0])] = False
    return mask


@supplies("stream:ref")
def ref(who: str = "ref", *, logp_temperature: LogpTemperature = None) -> Part:
    """The reference's log-probs of every reply token, as stream "ref"."""
    return streams(who, logp="ref", logp_temperature=logp_temperature)


@supplies("stream:old")
def old(*, logp_temperature: LogpTemperature = None) -> Part:
    """The policy's own log-probs before this pass's updates, computed again by the trainer, as stream "old".

    The anchor to use where the sampler is not the trainer (another engine, other authors' tokens).
    """
    return streams("policy", logp="old", logp_temperature=logp_temperature)


@supplies("stream:token")
def token_ids() -> Part:
    """The token itself, as stream "token": for terms that take log-probs of their own from whole distributions."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["token"] = trace.tokens

    return per_trace(write, name="token_ids", reads=frozenset({"tokens:task"}), writes=frozenset({"stream:token"}))


@supplies("stream:old")
def behaviour(author: str = "policy") -> Part:
    """The log-probs that the tokens had when they were sampled (mu, recorded at birth), as stream "old"."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        sampled = [(turn.logp if turn.author == author else None, len(turn)) for turn in trace.turns]
        parts = [constant(NAN, size, torch.float32) if logp is None else logp for logp, size in sampled]
        trace.streams["old"] = torch.cat(parts)

    return per_trace(write, name="behaviour", reads=frozenset({f"mu:{author}"}), writes=frozenset({"stream:old"}))
