"""Loggers that receive a run's metrics under the same names: wandb, trackio, tensorboard, mlflow.

    burnish train grpo --log tensorboard,wandb

A logger is imported only if --log names it, and is called from the store's writer thread, so it does not slow down
training. Its own environment variables (WANDB_MODE=offline, MLFLOW_TRACKING_URI, ...) set where it keeps its data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from burnish.store.recorder import Sink

PROJECT = "burnish"


class Tensorboard:
    """Event files in RUN/tensorboard: `tensorboard --logdir runs`."""

    name = "tensorboard"

    def __init__(self, folder: Path, config: dict[str, object]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("config", "\n".join(f"    {key}: {value}" for key, value in config.items()))

    def log(self, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of the project burnish (WANDB_PROJECT), its files below RUN/wandb."""

    name = "wandb"

    def __init__(self, folder: Path, config: dict[str, object]) -> None:
        import wandb

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            project=project, name=_title(folder, config), dir=str(folder), config=config, reinit="create_new"
        )

    def log(self, step: int, numbers: dict[str, float]) -> None:
        self._run.log(numbers, step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run of the project burnish in trackio's local store."""

    name = "trackio"

    def __init__(self, folder: Path, config: dict[str, object]) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self._run = trackio.init(project=project, name=_title(folder, config), config=config, embed=False)

    def log(self, step: int, numbers: dict[str, float]) -> None:
        self._run.log(metrics=numbers, step=step)

    def close(self) -> None:
        self._run.finish()


class Mlflow:
    """A run of the experiment burnish, at MLFLOW_TRACKING_URI or in RUN/mlflow.db."""

    name = "mlflow"

    def __init__(self, folder: Path, config: dict[str, object]) -> None:
        from mlflow.tracking import MlflowClient

        here = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", here))
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        existing = self._client.get_experiment_by_name(experiment)
        experiment_id = existing.experiment_id if existing else self._client.create_experiment(experiment)
        self._run = self._client.create_run(experiment_id, run_name=_title(folder, config)).info.run_id
        for key, value in config.items():
            self._client.log_param(self._run, key, value)

    def log(self, step: int, numbers: dict[str, float]) -> None:
        import time

        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, step) for name, value in numbers.items()])

    def close(self) -> None:
        self._client.set_terminated(self._run)


def _title(folder: Path, config: dict[str, object]) -> str:
    """The name of a run: --run-name, or that of its folder."""
    return str(config.get("run_name") or folder.name)


SINKS: dict[str, Callable[[Path, dict[str, object]], Sink]] = {
    "tensorboard": Tensorboard,
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": Mlflow,
}


def sink_names(log: str | None) -> list[str]:
    """Parse the value of --log; raises ValueError for a sink that is unknown or not installed."""
    names = [name.strip() for name in (log or "").split(",") if name.strip()]
    for name in names:
        if name not in SINKS:
            raise ValueError(f"--log cannot write to {name!r}; it can to {', '.join(SINKS)}")
        if find_spec(name) is None:
            raise ValueError(f"--log {name} needs a package that is not installed: pip install 'burnish[{name}]'")
    return names


def open_sinks(log: str | None, folder: Path, config: dict[str, object]) -> Sequence[Sink]:
    """Open the sinks that --log names for one run."""
    return [SINKS[name](folder, config) for name in sink_names(log)]
