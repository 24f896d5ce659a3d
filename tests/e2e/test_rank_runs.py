"""`burnish train --ranks 2`: the command as people run it, resumed, stopped, with a rank that dies, and by torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from guards import guards
from runs import halted_after
from safetensors.torch import load_file

from burnish.checkpoint.checkpoint import OPTIMISER
from burnish.checkpoint.diff import differences
from burnish.distributed.ray import watchdog
from burnish.store.reader import open_store

pytestmark = [
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
    guards(
        "models/ranks.py",
        "models/shards.py",
        "models/sharded_states.py",
        "models/sharded_weights.py",
        "models/layer_shards.py",
        "models/write_by_ranks.py",
        "core/sharded_pass.py",
        "distributed",
        "core/loop.py",
        "run/pipeline.py",
        "engine/subprocess",
    ),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="states are read from /proc")
RUN = ("--steps", "4", "--prompts", "4", "--n", "4", "--max-new-tokens", "12", "--eval-tasks", "6", "--eval-every", "2")
SECONDS = 150.0


BURNISH = ("-m", "burnish")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "burnish")


def started(
    words: list[str], launcher: tuple[str, ...] = ("-m", "burnish", "train"), more: dict[str, str] | None = None
) -> subprocess.Popen:
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, *words, "--quiet"]
    env |= more or {}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def ended(process: subprocess.Popen) -> str:
    return process.communicate(timeout=SECONDS)[0]


def metrics(folder: Path) -> list[dict[str, Any]]:
    with open_store(folder) as store:
        return store.metrics()


def words_for(model: Path, out: Path, *more: str) -> list[str]:
    return ["grpo", "--model", str(model), "--task", "sort", "--out", str(out), *RUN, "--save-every", "2", *more]


@pytest.fixture(scope="module")
def shared(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks, whole."""
    out = tmp_path_factory.mktemp("ranks") / "run"
    process = started(words_for(small_model, out, "--ranks", "2"))
    said = ended(process)
    assert process.returncode == 0, said
    assert said.count("run:") >= 1 and "step 4/4" in said, said
    return out


def test_two_ranks_are_one_run(shared: Path, small_model: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    process = started(words_for(small_model, alone))
    said = ended(process)
    assert process.returncode == 0, said
    for now, then in zip(metrics(shared), metrics(alone), strict=True):
        for key in ("reward", "length", "pg/loss", "grad_norm"):
            assert now[key] == pytest.approx(then[key], rel=1e-3, abs=1e-5), key
    both = [json.loads((run / "evaluation.json").read_text()) for run in (shared, alone)]
    assert both[0]["before"]["value"] == both[1]["before"]["value"]
    assert (shared / "model" / "config.json").is_file()


@pytest.mark.slow
def test_a_stopped_run_of_two_ranks_resumes_bit_for_bit(shared: Path, small_model: Path, tmp_path: Path) -> None:
    """SIGTERM to the launcher stops after the step; the same number of ranks then repeats what was left."""
    out = tmp_path / "stopped"
    process = started(words_for(small_model, out, "--ranks", "2"))
    deadline = time.monotonic() + SECONDS
    while not (out / "evaluation.json").is_file():  # the evaluation before training is done
        assert process.poll() is None and time.monotonic() < deadline, ended(process)
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = ended(process)
    assert process.returncode in (0, 130), said
    resumed = started(["--resume", str(out)])
    said = ended(resumed)
    assert resumed.returncode == 0, said
    assert not differences(shared, out)


@pytest.mark.slow
def test_ranks_sample_ahead_of_learning(small_model: Path, tmp_path: Path) -> None:
    """--lag: two ranks are one process up to rounding, and a run that stopped anywhere resumes bit for bit."""
    runs = {name: tmp_path / name for name in ("alone", "two")}
    for name, ranks in (("alone", ()), ("two", ("--ranks", "2", "--keep", "9"))):
        process = started(words_for(small_model, runs[name], "--lag", "2", "--save-every", "1", *ranks))
        said = ended(process)
        assert process.returncode == 0, said
    for now, then in zip(metrics(runs["two"]), metrics(runs["alone"]), strict=True):
        for key in ("reward", "length", "pg/loss", "grad_norm"):
            assert now[key] == pytest.approx(then[key], rel=1e-3, abs=1e-5), key
    resumed = started(["--resume", str(halted_after(2, runs["two"], tmp_path / "halted"))])
    said = ended(resumed)
    assert resumed.returncode == 0, said
    assert not differences(runs["two"], tmp_path / "halted")


@pytest.mark.slow
@pytest.mark.parametrize("lag", ["0", "1"])
def test_each_rank_has_an_engine_of_its_own(lag: str, shared: Path, small_model: Path, tmp_path: Path) -> None:
    """--engine process: the same replies as in the ranks themselves, and the proof of every publish."""
    words = words_for(small_model, tmp_path / "apart", "--ranks", "2", "--engine", "process", "--lag", lag)
    process = started(words)
    said = ended(process)
    assert process.returncode == 0, said
    rows = metrics(tmp_path / "apart")
    assert all(row["mismatch/probe"] < 1e-4 for row in rows)
    if lag == "0":
        assert [row["reward"] for row in rows] == [row["reward"] for row in metrics(shared)]
    assert not left_by(str(tmp_path))


def test_moments_divided_among_ranks_move_the_same_weights(shared: Path, small_model: Path, tmp_path: Path) -> None:
    """--shard optimiser: bit for bit the run without it, and its checkpoints hold all moments."""
    out = tmp_path / "sharded"
    process = started(words_for(small_model, out, "--ranks", "2", "--shard", "optimiser"))
    said = ended(process)
    assert process.returncode == 0, said
    assert not differences(shared, out)


def test_divided_states_are_saved_whole(shared: Path, small_model: Path, tmp_path: Path) -> None:
    """--shard states: the run without it up to rounding, and a checkpoint that one process and four ranks resume."""
    out = tmp_path / "states"
    process = started(words_for(small_model, out, "--ranks", "2", "--shard", "states"))
    said = ended(process)
    assert process.returncode == 0, said
    for now, then in zip(metrics(out), metrics(shared), strict=True):
        for key in ("reward", "length", "pg/loss", "grad_norm"):
            assert now[key] == pytest.approx(then[key], rel=1e-3, abs=1e-5), key
    whole, divided = (load_file(run / "checkpoints" / "step-000004" / "policy" / OPTIMISER) for run in (shared, out))
    assert whole.keys() == divided.keys()
    for key, value in whole.items():
        assert divided[key].shape == value.shape and torch.allclose(divided[key], value, rtol=1e-3, atol=1e-8), key


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["states", "full"])
@pytest.mark.parametrize("more", [("--ranks", "1", "--shard", "off"), ("--ranks", "4")])
def test_another_number_of_ranks_resumes_divided_states(
    more: tuple[str, ...], shard: str, small_model: Path, tmp_path: Path
) -> None:
    ends = []
    for name, later in (("same", ("--ranks", "2")), ("other", more)):
        out = tmp_path / name
        assert not (process := started(words_for(small_model, out, "--ranks", "2", "--shard", shard))).wait(SECONDS), (
            ended(process)
        )
        said = ended(process := started(["--resume", str(out), *later, "--steps", "6"]))
        assert process.returncode == 0, said
        ends.append(metrics(out)[-1])
    for key in ("reward", "length", "pg/loss", "grad_norm"):
        assert ends[1][key] == pytest.approx(ends[0][key], rel=1e-3, abs=1e-5), key


@pytest.mark.slow
def test_one_process_resumes_what_two_began(small_model: Path, shared: Path) -> None:
    process = started(["--resume", str(shared), "--ranks", "1", "--steps", "5"])
    said = ended(process)
    assert process.returncode == 0, said
    assert len(metrics(shared)) == 5


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_with_its_words(small_model: Path, tmp_path: Path) -> None:
    reward = tmp_path / "dies.py"
    reward.write_text("def f(completions):\n    return [float(len(c) % 3) for c in completions]\n")
    method = tmp_path / "method.py"
    method.write_text(
        "import os\n"
        "from burnish.methods.policy import grpo\n"
        "from dataclasses import replace\n"
        "from burnish.core.parts import Part\n"
        "def dying(task, *, n: int = 2):\n"
        "    made = grpo(task, n=n)\n"
        "    phase = made.phases[0]\n"
        "    def call(groups, step):\n"
        "        if os.environ.get('RANK') == '1' and step.clock.step == 1:\n"
        "            raise ArithmeticError('a planted fault')\n"
        "        return groups\n"
        "    return replace(made, phases=(replace(phase, select=Part(name='dies', call=call)),))\n"
    )
    began = time.monotonic()
    process = started(
        [f"{method}:dying", "--model", str(small_model), "--task", "sort", "--out", str(tmp_path / "run"), *RUN[:4]]
        + ["--max-new-tokens", "8", "--eval-tasks", "0", "--ranks", "2"]
    )
    said = ended(process)
    assert process.returncode != 0
    assert "rank 1 failed" in said and "a planted fault" in said, said
    assert time.monotonic() - began < SECONDS / 2


def of_rank(launcher: int, rank: int) -> int:
    """The process of a rank that a launcher started."""
    for pid, (parent, _) in watchdog._table().items():
        if parent == launcher and f"RANK={rank}" in watchdog._words(pid, "environ"):
            return pid
    raise AssertionError(f"there is no rank {rank}")


def left_by(words: str) -> list[int]:
    """Processes whose command or environment has these words."""
    found = [(pid, watchdog._words(pid, "cmdline") + watchdog._words(pid, "environ")) for pid in watchdog._table()]
    return [pid for pid, said in found if pid != os.getpid() and any(words in word for word in said)]


def lose(number: signal.Signals, rank: int, launcher: tuple[str, ...], words: list[str], folder: Path) -> None:
    """Start a run, send a signal to a rank after two steps: within 30 s the run has ended with one sentence, without a
    traceback, process or file that is left (torchrun's agent adds a report of its own).
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    process = started(["train", *words], launcher, more={"TMPDIR": str(temporary)})
    while not (folder / "run" / "checkpoints" / "step-000002").is_dir():
        assert process.poll() is None, ended(process)
        time.sleep(0.01)
    os.kill(of_rank(process.pid, rank), number)
    began = time.monotonic()
    said = ended(process)
    assert process.returncode != 0 and time.monotonic() - began < 30, said
    told = [line for line in said.splitlines() if line.startswith(f"rank {rank} ")]
    assert len(told) == 1 and said.count("so the run was ended; continue it") == 1, said
    assert "gloo" not in said and ("Traceback" not in said or launcher == TORCHRUN), said
    assert not left_by(str(folder))
    if launcher != TORCHRUN:
        assert not [path for path in temporary.iterdir() if "torchinductor" not in path.name]


@linux
def test_a_killed_rank_ends_the_run_with_one_sentence(small_model: Path, tmp_path: Path) -> None:
    """Rank 0, which has the terminal and writes."""
    words = ["grpo", "--model", str(small_model), "--task", "sort", "--steps", "99", "--prompts", "2", "--out"]
    words += [str(tmp_path / "run"), "--max-new-tokens", "6", "--eval-tasks", "0", "--save-every", "2", "--ranks", "2"]
    lose(signal.SIGKILL, 0, BURNISH, words, tmp_path)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_an_elastic_run_goes_on_with_the_ranks_that_are_left(rank: int, small_model: Path, tmp_path: Path) -> None:
    """Nothing of the steps before is lost, and the command ends as if nobody had been lost."""
    out = tmp_path / "run"
    words = ["grpo", "--model", str(small_model), "--task", "sort", "--steps", "12", "--prompts", "4", "--n", "2"]
    words += ["--max-new-tokens", "8", "--eval-tasks", "0", "--save-every", "1", "--ranks", "2", "--elastic"]
    process = started([*words, "--out", str(out)])
    while not (out / "checkpoints" / "step-000003").is_dir():
        assert process.poll() is None, ended(process)
        time.sleep(0.01)
    os.kill(of_rank(process.pid, rank), signal.SIGKILL)
    said = ended(process)
    assert process.returncode == 0, said
    killed = "was killed by SIGKILL (as by a machine that is out of memory)"
    assert said.count(f"rank {rank} {killed}; resuming with 1 of 2 ranks (--elastic)") == 1, said
    assert "so the run was ended" not in said and "step 12/12" in said, said
    assert [row["step"] for row in metrics(out)] == list(range(1, 13))


@linux
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("launcher", [BURNISH, TORCHRUN], ids=["ranks", "torchrun"])
def test_a_run_that_lost_a_rank_resumes(
    launcher: tuple[str, ...], number: signal.Signals, rank: int, shared: Path, small_model: Path, tmp_path: Path
) -> None:
    """The steps are those of a run that no one disturbed, bit for bit."""
    out = tmp_path / "run"
    ranks = ["--ranks", "2"] if launcher == BURNISH else []
    lose(number, rank, launcher, [*words_for(small_model, out, "--steps=16"), *ranks], tmp_path)
    resumed = started(["--resume", str(out), "--ranks", "2"])
    said = ended(resumed)
    assert resumed.returncode == 0, said
    assert [row["step"] for row in metrics(out)] == list(range(1, 17))
    for now, then in zip(metrics(out), metrics(shared), strict=False):
        assert all(now[key] == value for key, value in then.items() if "heldout" not in key), now["step"]


IDLE = """
import os, time
from dataclasses import replace
from burnish.core.parts import Part
from burnish.methods.policy import grpo

def idle(task, *, n: int = 2, pause: float = 600.0):
    made = grpo(task, n=n)

    def call(groups, step):
        if os.environ.get("RANK") == "1" and step.clock.step == 1:
            time.sleep(pause)
        return groups

    phase = replace(made.phases[0], select=Part(name="idle", call=call))
    return replace(made, phases=(phase,))
"""


def idle_run(model: Path, folder: Path, launcher: tuple[str, ...], *more: str) -> tuple[int, str, float]:
    """A run whose rank 1 sleeps in a part of the user's method; exit code, words and seconds."""
    (folder / "mine.py").write_text(IDLE)
    words = [f"{folder / 'mine.py'}:idle", "--model", str(model), "--task", "sort", "--steps", "2", "--prompts", "2"]
    words += ["--out", str(folder / "run"), "--max-new-tokens", "6", "--eval-tasks", "0", *more]
    words += ["--ranks", "2"] if launcher == BURNISH else []
    began, process = time.monotonic(), started(["train", *words], launcher)
    said = ended(process)
    return process.returncode, said, time.monotonic() - began


@linux
@pytest.mark.parametrize(
    "launcher", [BURNISH, pytest.param(TORCHRUN, marks=pytest.mark.slow)], ids=["ranks", "torchrun"]
)
def test_a_rank_that_hangs_in_code_of_its_own_is_named(
    launcher: tuple[str, ...], small_model: Path, tmp_path: Path
) -> None:
    code, said, seconds = idle_run(small_model, tmp_path, launcher, "--rank-timeout", "4")
    assert code != 0 and seconds < SECONDS / 2, said
    [told] = [line for line in said.splitlines() if line.startswith("rank ")]
    assert told.startswith("rank 1 did nothing for") and "--rank-timeout sets the limit, so the run was ended" in told
    assert "gloo" not in said and ("Traceback" not in said or launcher == TORCHRUN), said
    assert not left_by(str(tmp_path))


@linux
@pytest.mark.slow
def test_a_rank_whose_own_code_takes_its_time_ends_no_run(small_model: Path, tmp_path: Path) -> None:
    """A part of the user's method that waits for 40 s, longer than burnish's own code may do nothing."""
    code, said, seconds = idle_run(small_model, tmp_path, BURNISH, "--pause", "40")
    assert code == 0 and seconds > 40, said


def test_what_several_ranks_cannot_do_is_one_sentence(small_model: Path, tmp_path: Path) -> None:
    process = started(words_for(small_model, tmp_path / "no", "--ranks", "2", "--on", "ray"))
    said = ended(process)
    assert process.returncode == 2 and said.count("does not work with several --ranks") == 1, said
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_a_stage_of_a_recipe_may_have_ranks(small_model: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"model: {small_model}\ntask: sort\noptions: {{prompts: 2, steps: 2, max_new_tokens: 8, eval_tasks: 2}}\n"
        "stages:\n  sft: {method: sft}\n  rl: {method: grpo, model: sft, n: 2, ranks: 2}\n"
    )
    process = started([str(recipe), "--out", str(tmp_path / "made")], ("-m", "burnish", "recipe"))
    said = ended(process)
    assert process.returncode == 0, said
    assert len(metrics(tmp_path / "made" / "rl")) == 2
    state = json.loads((tmp_path / "made" / "state.json").read_text())
    assert state["rl"]["done"] and state["rl"]["after"]["name"] == "accuracy"


@pytest.mark.slow
def test_torchrun_starts_the_ranks_of_a_python_program(small_model: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, burnish\n"
        f"result = burnish.train('grpo', model={str(small_model)!r}, task='sort', steps=2, prompts=4, n=2,\n"
        f"    max_new_tokens=8, eval_tasks=4, out={str(tmp_path / 'run')!r})\n"
        "print('ended', result.folder.name, len(result.metrics))\n"
    )
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    process = started([str(program)], launcher)
    said = ended(process)
    assert process.returncode == 0, said
    assert said.count("ended run 2") == 2, said
    assert len(metrics(tmp_path / "run")) == 2
