"""The engine as a model sees it, and the kernels that an engine may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from torch import Tensor

from burnish.engine.feed import Feed
from burnish.engine.mixture import Mix
from burnish.engine.request import OnSample, Request, Sample, StopRule
from burnish.engine.subprocess.probe import Difference
from burnish.forward import accelerate
from burnish.forward.runner import ModelRunner

if TYPE_CHECKING:
    from burnish.engine.batch import RunningBatch
    from burnish.engine.kv_cache import Plan
    from burnish.engine.model_decoder import ModelDecoder
    from burnish.engine.strategy import Call, DecodeStrategy


@dataclass(frozen=True)
class GenerateOptions:
    """What a call of an engine has beside its requests.

    others, mix: sample from `mix` of this model's logits and those of `others`
    stop_rule: asked whenever a sample finishes, with the finished ones of its prompt; True ends the others of it
    on_sample: called with each sample and the number of its request, while others are still being decoded
    feed: where more requests come from, while others are still being decoded; their samples follow in order
    """

    others: Sequence[ModelRunner] = ()
    mix: Mix | None = None
    stop_rule: StopRule | None = None
    on_sample: OnSample | None = None
    feed: Feed | None = None

    def require_whole(self, requests: Sequence[Request], does: str, whole: str) -> None:
        """Raise ValueError for what a model that does not write from left to right cannot do: be mixed with others,
        leave out tokens, and continue a reply.
        """
        if self.others or self.mix is not None:
            raise ValueError(f"a model that {does} cannot be mixed with others token by token")
        if any(request.filtered or request.said for request in requests):
            raise ValueError(
                f"a model that {does} {whole}; leave out --top-p, --top-k, --min-p, --repetition-penalty, --chunk and "
                "methods that continue a reply"
            )

    def in_rounds(
        self, generate: Callable[[list[Request], GenerateOptions], list[Sample]], requests: list[Request]
    ) -> list[Sample]:
        """For an engine that admits no requests during a call: those that have arrived, in one call after another."""
        assert self.feed is not None
        samples: list[Sample] = []

        def told(i: int, sample: Sample) -> None:
            if self.on_sample is not None:
                self.on_sample(first + i, sample)

        while requests or (requests := self.feed.take(wait=True)):
            first = len(samples)
            samples += generate(requests, replace(self, feed=None, on_sample=told))
            requests = self.feed.take(wait=False)
        return samples


ALONE = GenerateOptions()


class Engine(Protocol):
    """Samples replies. An engine in another process holds a copy of the weights, which `publish` renews."""

    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """A sample for each request, in order."""
        ...

    def start(self) -> Difference | None:
        """Start what samples, if it does not run yet. How far its log-probs are from the trainer's, if
        it was started.
        """
        ...

    def publish(self) -> Difference | None:
        """Send the present weights to a copy. How far its log-probs then are from the trainer's; None
        without a copy.
        """
        ...

    def end(self) -> None:
        """Stop what samples; a later call of `generate` starts it again."""
        ...


class EngineKernels(accelerate.Kernels, Protocol):
    """What `burnish.kernels.registry` offers to the local engine. None or False: the general implementation runs."""

    def decoder(self, runner: ModelRunner, plan: Plan) -> ModelDecoder | None:
        """Prefill and decode steps of one model, in kernels."""
        ...

    def strategy(self, call: Call) -> DecodeStrategy | None:
        """How a call of the engine is decoded, where kernels run all of its models."""
        ...

    def sample(self, batch: RunningBatch, at: slice, logits: Tensor) -> bool:
        """Sample one token for each row of a slice, from unfiltered logits [n, V]; whether that was done."""
        ...


def engine_kernels() -> EngineKernels | None:
    """The kernels (forward/accelerate.py), with what they offer to an engine."""
    return cast("EngineKernels | None", accelerate.kernels())
