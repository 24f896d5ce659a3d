"""The best held-out score of a run: which checkpoint has it, and when --patience or --stop-at end the run."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from burnish.config.options import Options
from burnish.core.state import State
from burnish.evals.better import better_is_lower, label, written

LINK = "best"  # in the run folder: a link to the best checkpoint's model


@dataclass(frozen=True)
class Score:
    """A held-out measurement: its metric, the steps that were done, and the value."""

    name: str
    step: int
    value: float

    def told(self) -> str:
        """ "accuracy, sampled: 91.5%"."""
        return f"{label(self.name)}: {written(self.name, self.value)}"

    def better(self, other: Score | None) -> bool:
        """Whether it is better than another measurement; any is better than none."""
        if other is None:
            return True
        return self.value < other.value if better_is_lower(self.name) else self.value > other.value


class Best:
    """The held-out measurements of a run so far. Stateful: a checkpoint holds them, so a resumed run ends as it would.

    best     the best measurement
    kept     the best one of a step that has a checkpoint, which is not removed (--keep-best)
    waiting  how many measurements in a row were no better
    """

    name = "heldout"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.best: Score | None = None
        self.kept: Score | None = None
        self.last: Score | None = None
        self.waiting = 0

    def measured(self, step: int, heldout: dict[str, float]) -> None:
        """Record the held-out metric after a step, if there is one: the first, where there are several."""
        for name, value in list(heldout.items())[:1]:
            self.last = Score(name.removeprefix("heldout/"), step, value)
            improved = self.last.better(self.best)
            self.waiting = 0 if improved else self.waiting + 1
            self.best = self.last if improved else self.best

    def due(self, step: int) -> bool:
        """Whether a step that was just measured is to be saved because it is the best so far."""
        wanted = self.options.patience or self.options.stop_at is not None or self.options.product == "best"
        return bool(wanted) and self.best is not None and self.best.step == step

    def saving(self, step: int) -> int | None:
        """Called before a checkpoint is saved; the step whose checkpoint must stay, or None."""
        if self.last is not None and self.last.step == step and self.last.better(self.kept):
            self.kept = self.last
        return self.kept.step if self.kept is not None and self.options.keep_best else None

    def ends(self) -> str:
        """Why the run ends before its last step; empty if it does not."""
        stop_at, patience = self.options.stop_at, self.options.patience
        if self.best is None:
            return ""
        if stop_at is not None and not Score(self.best.name, 0, stop_at).better(self.best):
            reached = written(self.best.name, self.best.value)
            return f"held-out {label(self.best.name)} reached {reached} (--stop-at {stop_at:g})"
        if patience and self.waiting >= patience:
            times = f"{self.waiting} evaluation{'s' if self.waiting > 1 else ''}"
            what = label(self.best.name)
            return (
                f"held-out {what}{',' if ',' in what else ''} was no better for {times} (--patience {patience}); "
                f"the best was {written(self.best.name, self.best.value)} after step {self.best.step}"
            )
        return ""

    def state_dict(self) -> State:
        scores = {name: getattr(self, name) for name in ("best", "kept", "last")}
        return {"waiting": self.waiting, **{name: score and asdict(score) for name, score in scores.items()}}

    def load_state_dict(self, state: State) -> None:
        self.waiting = int(state["waiting"])
        self.best, self.kept, self.last = (
            Score(**state[name]) if state[name] else None for name in ("best", "kept", "last")
        )


def link_best(folder: Path, checkpoint: Path, model: str) -> None:
    """Point RUN/best to the model in a checkpoint. File systems without links are left without one."""
    link, aside = folder / LINK, folder / f".{LINK}.partial"
    try:
        aside.unlink(missing_ok=True)
        aside.symlink_to(Path("checkpoints") / checkpoint.name / model, target_is_directory=True)
        os.replace(aside, link)
    except OSError:
        return
