"""What a run returns: numbers, plots, the trained model, and the way to continue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex, overload

from burnish.report.measured import measured
from burnish.reward_functions.resolve import IN_PYTHON
from burnish.run.folder import Folder
from burnish.run.train import PassedObjects, Result


class Metrics(list[dict[str, Any]]):
    """The metrics of each step as dicts; metrics["reward"] is one of them over the steps, None where it is missing."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, at: str) -> list[float | None]: ...

    def __getitem__(
        self, at: SupportsIndex | slice | str
    ) -> dict[str, Any] | list[dict[str, Any]] | list[float | None]:
        if isinstance(at, str):
            if at not in self.names():
                raise KeyError(f"there is no metric {at!r}; there are {', '.join(self.names()) or 'none'}")
            return [row.get(at) for row in self]
        return super().__getitem__(at)

    def names(self) -> list[str]:
        """The names of the metrics."""
        return [name for name in dict.fromkeys(name for row in self for name in row) if name != "step"]

    def to_pandas(self) -> object:
        """A pandas DataFrame, one row a step."""
        try:
            import pandas
        except ImportError:
            raise ValueError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(list(self)).set_index("step") if self else pandas.DataFrame()

    def __repr__(self) -> str:
        return f"Metrics of {len(self)} steps: {', '.join(self.names())}"


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """A run that has ended: its metrics, plot(), model_path, load() and resume(steps=...)."""

    metrics: Metrics = field(repr=False)
    own: PassedObjects = field(default_factory=PassedObjects)
    callbacks: object = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", Metrics(self.metrics))

    @property
    def model_path(self) -> Path:
        """The directory of the trained model; an error that says why if there is none."""
        if self.model is not None:
            return self.model
        if self.stopped:
            raise ValueError(f"the run in {self.folder} was stopped before its end; finish it with result.resume()")
        raise ValueError(f"the method of the run in {self.folder} trains no weights, so it saved no model")

    def load(self, **options: object) -> tuple[Any, Any]:
        """The trained model and its tokenizer, loaded with transformers, in the number format that they were saved in.

        options: for from_pretrained, for example device_map="cuda".
        """
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

        from burnish.models.load import stored_outputs

        kind = AutoModelForSequenceClassification if stored_outputs(self.model_path) else AutoModelForCausalLM
        options = {"dtype": "auto", "use_safetensors": True, **options}
        model = kind.from_pretrained(self.model_path, trust_remote_code=False, **options)
        return model, AutoTokenizer.from_pretrained(self.model_path, trust_remote_code=False)

    def resume(self, **changed: object) -> TrainResult:
        """Continue the run, with the objects that it was given: result.resume(steps=200)."""
        from burnish.api.train import resume

        own = self.own
        passed: dict[str, Any] = {"task": own.task, "reward": own.rewards}
        if own.entry is not None:
            passed["method"] = own.entry.build
        return resume(self.folder, **{"callbacks": self.callbacks, **passed, **changed})

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _measured(self) -> list[str]:
        """The held-out measure before and after training, then what was measured beside it."""
        assert self.before is not None
        before = self.before.like(self.after.measure) if self.after else self.before
        if self.after is None:
            return [f"{line} before" for line in measured(None, before)]
        return measured(before if before.name == self.after.name else None, self.after)

    def _lines(self) -> Iterator[str]:
        told = Folder.open(self.folder)[1]
        steps = f"stopped after step {len(self.metrics)}" if self.stopped else f"{len(self.metrics)} steps"
        yield f"TrainResult: {told['method']} on {told['task'].removeprefix(IN_PYTHON)}, {steps} of {told['steps']}"
        if self.before is not None:
            yield from (f"  {line}" for line in self._measured())
        if self.metrics and "reward" in self.metrics.names():
            first, *_, last = [value for value in self.metrics["reward"] if value is not None] * 2
            yield f"  reward {first:.3f} in the first step, {last:.3f} in the last"
        yield f"  model  {self.model or 'none yet: result.resume() finishes the run'}"
        yield f"  run    {self.folder}"
