"""Units of work, the work queue, the ledger and its audit: the code of a run on Ray that can be tested without Ray."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, build_cast
from guards import guards

import burnish
from burnish.config.options import Config, Options
from burnish.core.loop import loop
from burnish.core.parts import Part, split_score
from burnish.core.pending_step import joined
from burnish.core.sample_ledger import LEARNED, UnitId
from burnish.core.step import Settings
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.distributed.ray.admission import chosen, limits_of
from burnish.distributed.ray.arrays import as_array, as_weight
from burnish.distributed.ray.audit import audit
from burnish.distributed.ray.pipeline import RayPipeline
from burnish.distributed.ray.supervisor import ActorLimits
from burnish.distributed.ray.units import (
    Published,
    Unit,
    cut,
    outcome_from_record,
    outcome_to_record,
    unit_outcome,
)
from burnish.distributed.ray.work_queue import GRADER, SAMPLER, WorkQueue
from burnish.distributed.ray.worker import Activity, Spec, Worker
from burnish.run.pipeline import Pipeline
from burnish.run.session import StoreSession
from burnish.store.health import HealthLimits
from burnish.store.schema import FILE

pytestmark = guards("distributed/ray", "core/sample_ledger.py", "rollout")


def a_unit(number: int, drawn: int = 0, tasks: int = 2) -> Unit:
    return Unit(UnitId(drawn, 0, number), "main", Clock(drawn, 9), [Task("q", "?", {}, f"t{i}") for i in range(tasks)])


# ---------------------------------------------------------------------------------------------------------------- units


def test_the_cut_depends_on_the_settings_alone() -> None:
    tasks = [Task("q", "?", {}, str(i)) for i in range(10)]
    parts = cut(tasks, 4)
    assert [len(part) for part in parts] == [4, 4, 2]
    assert [task for part in parts for task in part] == tasks
    assert cut([], 4) == []


def test_parts_of_score_with_a_memory_stay_in_one_place() -> None:
    class Memory:
        name = "memory"

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    parts = [Part(name=name, call=lambda groups, step: groups) for name in "abc"]
    parts[1] = replace(parts[1], state=(Memory(),))
    early, late = split_score(parts)
    assert [part.name for part in early] == ["a"] and [part.name for part in late] == ["b", "c"]


def test_outcomes_are_joined_in_order_and_their_notes_added() -> None:
    outcomes = []
    for number, value in enumerate((1.0, 4.0)):
        unit = a_unit(number)
        made = unit_outcome(unit)
        made.passes[0].groups = [Group(task, [Trace((Turn(torch.tensor([1]), "task"),))]) for task in unit.tasks]
        made.notes.add("x", value, number + 1)
        made.notes.count("n", 3)
        made.trail, made.seconds = [("verify in score", 2)], {"rollout": 0.5}
        outcomes.append(made)
    whole = joined(outcomes, 0, "main")
    assert len(whole.passes) == 1 and len(whole.passes[0].groups) == 4
    assert whole.notes.values() == {"n": 6, "x": 5.0 / 3}
    assert whole.trail == [("verify in score", 4)] and whole.seconds == {"rollout": 1.0}


def test_a_unit_survives_a_checkpoint_with_its_births() -> None:
    unit = a_unit(0)
    made = unit_outcome(unit)
    prompt = Turn(torch.tensor([1, 2]), "task")
    traces = [Trace((prompt, Turn(torch.tensor([3 + i]), "policy", torch.tensor([-0.1])))) for i in range(3)]
    made.passes[0].groups = [Group(unit.tasks[0], traces), Group(unit.tasks[1], [])]
    from burnish.distributed.ray.units import note_births

    note_births(unit, made)
    again, restored, version = outcome_from_record(outcome_to_record(unit, made, 7), Clock(0, 9))
    assert again.id == unit.id and version == 7 and len(again.tasks) == 2
    born = restored.passes[0].born
    assert [(b.place, b.sample, b.task) for b in born] == [(0, i, "t0") for i in range(3)]
    assert all(b.turns is t.turns for b, t in zip(born, restored.passes[0].groups[0].traces, strict=True))


# ---------------------------------------------------------------------------------------------------------------- queue


def test_a_unit_is_taken_once_however_often_it_is_given_out() -> None:
    queue = WorkQueue(graded=["main"])
    unit = a_unit(0)
    queue.add(unit)
    assert queue.next_unit(GRADER) is None and queue.next_unit(SAMPLER) is unit and queue.next_unit(SAMPLER) is None
    assert queue.put_back(SAMPLER, unit.id)  # its sampler was lost
    assert not queue.put_back(SAMPLER, unit.id), "it waits already"
    assert queue.next_unit(SAMPLER) is unit
    first, second = unit_outcome(unit), unit_outcome(unit)
    assert queue.accept(SAMPLER, unit.id, first) and not queue.accept(SAMPLER, unit.id, second)
    assert not queue.put_back(SAMPLER, unit.id), "it was sampled: losing the worker changes nothing now"
    assert queue.next_unit(GRADER) is unit and queue.made[unit.id] is first
    assert queue.put_back(GRADER, unit.id) and queue.next_unit(GRADER) is unit
    assert queue.unfinished() == [unit.id]
    assert queue.accept(GRADER, unit.id, first) and not queue.accept(GRADER, unit.id, second)
    assert queue.unfinished() == []
    ((made, row),) = queue.remove([unit.id], 0)
    assert made is first and (row.asked, row.sampled, row.scored, row.late) == (2, 1, 1, 2)
    assert not queue.accept(GRADER, unit.id, second), "and never again"


def test_lost_units_come_first_and_in_place() -> None:
    queue = WorkQueue()
    for number in range(3):
        queue.add(a_unit(number))
    lost = queue.next_unit(SAMPLER)
    assert lost is not None
    queue.put_back(SAMPLER, lost.id)
    given = [queue.next_unit(SAMPLER) for _ in range(3)]
    assert [unit.id.unit for unit in given if unit] == [0, 1, 2]


def test_a_fixed_unit_keeps_its_weights_and_a_free_one_takes_the_newest() -> None:
    old, new = Published(("x", 0), {}), Published(("x", 3), {})
    queue = WorkQueue()
    fixed, free = a_unit(0), a_unit(1)
    fixed.weights = old
    queue.newest = new
    queue.add(fixed)
    queue.add(free)
    assert queue.next_unit(SAMPLER) is fixed and queue.next_unit(SAMPLER) is free
    assert fixed.weights is old and free.weights is new
    assert queue.version == {fixed.id: 0, free.id: 3} and fixed.fresh and free.fresh


# ----------------------------------------------------------------------------------------------------------- free order


def test_a_unit_at_its_limit_is_waited_for() -> None:
    """Two places a step, lag 1. At step 1, c and d (begun on weights 0) must be learned, though e and f are ready."""
    a, b, c, d, e, f = (UnitId(i // 2, 0, i % 2) for i in range(6))
    room = {1: 2, 2: 2}
    limits = limits_of({c: 0, d: 0, e: 1, f: 1}, newest=1, lag=1)
    assert limits == {c: 1, d: 1, e: 2, f: 2}
    assert chosen([e, f], limits, room, 1) is None
    assert chosen([e, f, c], limits, room, 1) is None
    assert chosen([e, f, c, d], limits, room, 1) == [c, d]


def test_what_is_ready_first_is_learned_first_where_that_is_allowed() -> None:
    """Lag 2: at step 0 any two of six may go; at step 1, one of the late ones must not be overtaken by both others."""
    six = [UnitId(i // 2, 0, i % 2) for i in range(6)]
    assert chosen(six[::-1], dict.fromkeys(six, 2), {0: 2, 1: 2, 2: 2}, 0) == [six[5], six[4]]
    g, h = UnitId(3, 0, 0), UnitId(3, 0, 1)
    limits = {**dict.fromkeys(six[:4], 2), g: 3, h: 3}
    assert chosen([g, h, six[0]], limits, {1: 2, 2: 2, 3: 2}, 1) is None, (
        "four units have two steps left: no place to give away"
    )


@pytest.mark.parametrize("seed", range(20))
def test_free_running_learns_every_unit_once_and_none_too_late(seed: int) -> None:
    """Simulated workers of different speeds: every unit is learned from once, at most `lag` steps old."""
    rng = random.Random(seed)
    lag, per_step, steps, workers = rng.randint(0, 3), rng.randint(1, 4), 12, rng.randint(1, 5)
    queue, newest = WorkQueue(), 0
    busy: list[tuple[float, Unit]] = []
    clock, drawn, age = 0.0, 0, []
    learned: Counter[UnitId] = Counter()
    for step in range(steps):
        newest = step
        queue.newest = Published(("x", newest), {})
        while drawn <= min(step + lag, steps - 1):
            for number in range(per_step):
                queue.add(a_unit(number, drawn))
            drawn += 1
        room = dict.fromkeys(range(step, drawn), per_step)
        while True:
            while len(busy) < workers and (unit := queue.next_unit(SAMPLER)) is not None:
                busy.append((clock + rng.choice((0.1, 1.0, 30.0)), unit))
            limits = limits_of({u: queue.version.get(u) for u in queue.units}, newest, lag)
            found = chosen(list(queue.finished), limits, room, step)
            if found is not None:
                break
            busy.sort(key=lambda one: one[0])
            clock, unit = busy.pop(0)
            if rng.random() < 0.1:
                queue.put_back(SAMPLER, unit.id)  # lost: another worker does it again
            else:
                queue.accept(SAMPLER, unit.id, unit_outcome(unit))
        age += [step - row.version for _, row in queue.remove(found, step)]
        learned.update(found)
    assert not queue.units and set(learned.values()) == {1} and len(learned) == steps * per_step
    assert max(age) <= lag


# --------------------------------------------------------------------------------------- a whole run, without processes


class Alone:
    """A supervisor without Ray: processes every unit in this process, some of them twice."""

    def __init__(self, pipeline: RayPipeline, workers: dict[str, Worker], rng: random.Random) -> None:
        self.pipeline, self.workers, self.rng, self.error = pipeline, workers, rng, None

    def start(self) -> None:
        wait = self.pipeline._wait_until

        def work_then_wait(ready: Any, what: str) -> None:
            queue = self.pipeline.queue
            while not ready():
                role = SAMPLER if queue.waiting[SAMPLER] else GRADER
                unit = queue.next_unit(role)
                assert unit is not None, f"nothing is left to do, and still {what} is waited for"
                if self.rng.random() < 0.3:
                    queue.put_back(role, unit.id)  # as if its worker were lost
                    continue
                hand = self.workers[role]
                made, proofs = hand.rollout(unit) if role == SAMPLER else hand.score(unit, queue.made[unit.id])
                self.pipeline._prove(unit, made, proofs)
                queue.accept(role, unit.id, made)
            wait(ready, what)

        self.pipeline._wait_until = work_then_wait  # type: ignore[method-assign]

    def close(self) -> None: ...

    def state(self) -> str:
        return ""


def ray_pipeline(
    method: Any, models: Any, settings: Settings, base: Path, size: int, free: bool, seed: int, spec: Spec
) -> RayPipeline:
    limits = ActorLimits({SAMPLER: 1, GRADER: 1}, 0, 0, 30.0, 60.0)
    pipeline = RayPipeline(
        method,
        models,
        settings,
        limits,
        size=size,
        free=free,
        put=lambda arrays: {k: [a.copy() for a in v] for k, v in arrays.items()},
    )
    workers = {role: Worker(spec, role, lambda ref: ref, Activity()) for role in (SAMPLER, GRADER)}
    pipeline.supervisor = Alone(pipeline, workers, random.Random(seed))  # type: ignore[assignment]
    return pipeline


REWARD = """import hashlib
def coin(completions):
    return [float(hashlib.md5(c.encode()).digest()[0] % 2) for c in completions]
"""


def run_of(
    name: str,
    base: Path,
    folder: Path,
    *,
    lag: int,
    size: int,
    free: bool = False,
    seed: int = 0,
    steps: int = 4,
    arguments: dict[str, Any] | None = None,
) -> Any:
    """Metrics and weights of a run through units, and its store."""
    from burnish.methods.table import find
    from burnish.run.plan import compose

    folder.mkdir()
    (folder / "reward.py").write_text(REWARD)
    reward, order = f"{folder / 'reward.py'}:coin", "free" if free else "fixed"
    options = Options(model=str(base), task="sort", reward=reward, prompts=4, max_new_tokens=8, lag=lag, order=order)
    settings = replace(SMALL, prompts=4, max_new_tokens=8, lag=lag, lr=1e-2)
    config = Config(name, options, arguments or {"n": 4})
    entry = find(name)
    _, method = compose(entry, config)
    models = build_cast(method, base, settings)
    spec = Spec(config, settings, base, str(Path.cwd()))
    pipeline: Any = (
        ray_pipeline(method, models, settings, base, size, free, seed, spec)
        if size
        else Pipeline(method, models, settings)
    )
    metrics = []
    facts = {"config": config.to_dict()}
    with StoreSession(folder, models["policy"].chat.tokenizer, facts=facts, limits=HealthLimits(8), traces=0) as record:
        for report in loop(method, models, settings, steps=steps, pipeline=pipeline):
            metrics.append(report.metrics)
            record.stepped(report, {}, 0.0)
    return metrics, [p.detach().clone() for p in models["policy"].module.parameters()]


def same(one: Any, other: Any) -> bool:
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


@pytest.mark.parametrize("lag", (0, 2))
def test_one_unit_a_step_is_the_run_without_ray(lag: int, small_model: Path, tmp_path: Path) -> None:
    """With one unit of all tasks, metrics and weights equal those of the pipeline inside one process."""
    here = run_of("grpo", small_model, tmp_path / "here", lag=lag, size=0)
    there = run_of("grpo", small_model, tmp_path / "there", lag=lag, size=4)
    for metrics in there[0]:
        assert metrics.pop("mismatch/probe", 0.0) == 0.0
    assert same(here, there)


def test_who_does_a_unit_and_how_often_changes_nothing(small_model: Path, tmp_path: Path) -> None:
    one, other = (run_of("grpo", small_model, tmp_path / str(seed), lag=1, size=2, seed=seed) for seed in (1, 2))
    assert same(one, other)
    assert one[0][0]["mismatch/probe"] == 0.0 and "mismatch/probe" not in one[0][1], "noted once for each publish"
    found = [audit(tmp_path / str(seed)) for seed in (1, 2)]
    assert not found[0].wrong and not found[1].wrong
    assert found[0].samples == found[0].learned == 4 * 4 * 4 and found[0].again + found[1].again > 0


def test_running_moments_of_a_score_are_in_one_place(small_model: Path, tmp_path: Path) -> None:
    """rto's running score moments are kept in the trainer, which sees the scores in order, with units and without."""
    arguments = {"n": 4, "minibatches": 1, "dpo_policy": str(small_model)}
    here = run_of("rto", small_model, tmp_path / "here", lag=1, size=0, arguments=arguments)
    there = run_of("rto", small_model, tmp_path / "there", lag=1, size=4, arguments=arguments)
    for metrics in there[0]:
        metrics.pop("mismatch/probe", 0.0)
    assert same(here, there)


def test_free_order_learns_the_lengths_that_were_asked_for(small_model: Path, tmp_path: Path) -> None:
    metrics, _ = run_of("grpo", small_model, tmp_path / "free", lag=2, size=1, free=True, steps=6)
    found = audit(tmp_path / "free")
    assert not found.wrong and found.learned == found.samples == 6 * 4 * 4 and found.stalest <= 2
    db = sqlite3.connect(tmp_path / "free" / FILE)
    lengths = [n for (n,) in db.execute("SELECT length FROM ledger")]
    assert sum(m["length"] * 16 for m in metrics) == pytest.approx(sum(lengths))
    assert {fate for (fate,) in db.execute("SELECT fate FROM ledger")} == {LEARNED}


# ---------------------------------------------------------------------------------------------------------------- audit


@pytest.fixture(scope="module")
def audited(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited") / "run"
    run_of("grpo", small_model, folder, lag=1, size=2)
    return folder


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM ledger WHERE drawn = 2 AND unit = 0 AND place = 1", "tasks, but samples of 1"),
        (
            "DELETE FROM ledger WHERE drawn = 2 AND unit = 0 AND place = 1 AND sample = 0",
            "samples of unit 2/0/0 are missing",
        ),
        ("UPDATE ledger SET fate = '' WHERE drawn = 3 AND sample = 3", "neither learned nor dropped"),
        ("DELETE FROM units WHERE drawn = 2 AND unit = 0", "some are missing"),
        ("DELETE FROM units WHERE drawn = 2", "learned from no unit"),
        ("UPDATE units SET version = 0 WHERE drawn = 4", "3 steps old"),
        ("UPDATE units SET sampled = 2 WHERE drawn = 1 AND unit = 1", "sampled 2"),
        ("UPDATE units SET step = 4 WHERE drawn = 3", "out of order"),
        ("UPDATE ledger SET step = 0 WHERE drawn = 3 AND unit = 1", "in another step"),
        ("UPDATE ledger SET unit = 9 WHERE drawn = 3 AND unit = 1", "which does not exist"),
    ],
)
def test_the_audit_notices(damage: str, said: str, audited: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(audited, copy)
    assert not audit(copy).wrong
    db = sqlite3.connect(copy / FILE)
    assert db.execute(damage).rowcount
    db.commit()
    db.close()
    assert any(said in wrong for wrong in audit(copy).wrong), audit(copy).wrong


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "moon"}, "it must be here or ray"),
        ({"samplers": 2}, "add --on ray"),
        ({"on": "ray", "samplers": 0}, "at least 1"),
        ({"on": "ray", "order": "best"}, "fixed or free"),
        (
            {"on": "ray", "reward": f"{Path(__file__).parents[1] / 'e2e' / 'coin.py'}:coin", "reward_workers": 2},
            "use --graders instead",
        ),
        ({"on": "ray", "chunk": 4}, "its rollout has state"),
        ({"on": "ray", "recover_within": 0.0}, "above 0"),
    ],
)
def test_what_cannot_be_placed_is_refused_in_words(
    options: dict[str, Any], said: str, small_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        burnish.train("grpo", model=str(small_model), task="sort", out=str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()


def test_a_rollout_with_a_memory_is_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its rollout has state"):
        burnish.train("aepo", model=str(small_model), task="sort", out=str(tmp_path / "run"), on="ray")


def test_ray_that_is_not_installed_is_one_sentence(small_model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("burnish.run.placement.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'burnish\[ray\]'"):
        burnish.train("grpo", model=str(small_model), task="sort", out=str(tmp_path / "run"), on="ray")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_travel_bit_for_bit(dtype: torch.dtype) -> None:
    """Also bf16, which numpy does not have."""
    weight = torch.tensor([[1.0, -0.0, 3.140625], [float("inf"), 1e-30, -65280.0]], dtype=dtype)
    back = as_weight(np.array(as_array(weight)))
    assert back.dtype == dtype and torch.equal(back, weight) and bool(torch.signbit(back[0, 1]))
