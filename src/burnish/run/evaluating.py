"""Held-out evaluation before, during and after a run: stores the outcomes, and treats NaN as --on-nan says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from burnish.core.rejected import NotFinite
from burnish.evals.heldout import Asked, Outcome, held_out
from burnish.run.observers import Observers

if TYPE_CHECKING:
    from burnish.run.train import Run


@dataclass(frozen=True)
class Evaluating:
    """The evaluations of one run.

    What is measured is said in evals/better.py. With --on-nan skip, an evaluation with a NaN or infinity is skipped
    with a warning, like an update; with --on-nan stop it ends the run.
    """

    run: Run
    everyone: Observers

    def before(self) -> Outcome | None:
        """The evaluation before training: computed once, then read from evaluation.json by a resumed run."""
        run = self.run
        stored = run.folder.read_json("evaluation.json")
        if stored and stored.get("before"):
            return Outcome.from_json(stored["before"])
        if run.start:
            return None
        options = run.config.options
        outcome = self._run("before training", lambda: self._held_out(options.eval_tasks, Asked(options.eval_k)))
        if outcome is not None:
            run.folder.save_json("evaluation.json", {"before": outcome.to_json()})
            self.everyone.evaluated("before", outcome)
        return outcome

    def during(self, at: int) -> dict[str, float]:
        """The held-out metric of step `at`, if --eval-every is due; otherwise nothing. The first is the run's score."""
        options = self.run.config.options
        last = at == options.steps  # measured on all tasks after training, unless its rank among the others decides
        if not options.eval_every or (at % options.eval_every and not last) or (last and options.product != "best"):
            return {}
        tasks, k = max(1, options.eval_tasks // 2), min(1, options.eval_k)
        asked = Asked(k, earlier=self._earlier(), whole=False)
        outcome = self._run(f"after step {at}", lambda: self._held_out(tasks, asked), at - 1)
        return {} if outcome is None else outcome.metrics()

    def _earlier(self) -> str:
        """The name of the measure of the evaluation before training, if there was one."""
        stored = self.run.folder.read_json("evaluation.json") or {}
        return str((stored.get("before") or {}).get("name", ""))

    def after(self, before: Outcome | None) -> Outcome | None:
        """The evaluation after training; evaluation.json holds both."""
        options = self.run.config.options
        asked = Asked(options.eval_k, earlier=before.name if before else "", done=True)
        outcome = self._run("after training", lambda: self._held_out(options.eval_tasks, asked))
        if outcome is not None:
            self.everyone.evaluated("after", outcome)
            both = {"before": before and before.to_json(), "after": outcome.to_json()}
            self.run.folder.save_json("evaluation.json", both)
        return outcome

    def _held_out(self, tasks: int, asked: Asked) -> Outcome:
        run = self.run
        options = run.config.options
        if run.pipeline is not None and run.method.stateful():
            run.pipeline.state_dict()  # waits for the sampling thread, which uses the same stateful parts
        asked = replace(asked, temperature=options.eval_temperature, measure=options.eval_measure)
        outcome = held_out(run.method, run.models, run.source, run.settings, tasks, asked)
        if not math.isfinite(outcome.value.mean):
            raise NotFinite(f"{outcome.name} is {outcome.value.mean}")
        return outcome

    def _run(self, when: str, evaluation: Callable[[], Outcome], step: int | None = None) -> Outcome | None:
        options = self.run.config.options
        if not options.eval_tasks:
            return None
        try:
            return evaluation()
        except NotFinite as error:
            message = f"the evaluation {when} met a number that is not finite: {error}"
            if options.on_nan == "stop":
                raise FloatingPointError(f"{message}. To skip it: --on-nan skip") from None
            message = f"{message}; it is skipped (--on-nan skip)"
            self.everyone.warn("evaluation", message, step)
            return None
