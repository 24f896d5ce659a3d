"""System errors and huge values through the command line: one sentence, an exit code, no traceback."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from guards import guards
from runs import rows

import burnish
from burnish.cli import main
from burnish.util.failures import MEMORY, sentence

pytestmark = guards("util", "cli.py", "checkpoint")

LONG = "x" * 300
HUGE = str(10**400)


def run(*words: str, cwd: Path, **more: object) -> tuple[int, str]:
    """The exit code and standard error of the command, in a process of its own."""
    source = str(Path(burnish.__file__).parent.parent)
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    options = {"stdout": subprocess.DEVNULL, **more}
    done = subprocess.run(
        [sys.executable, "-m", "burnish.cli", *words],
        cwd=cwd,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    return done.returncode, done.stderr


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command in an empty folder; it must fail with one line, which is returned."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "2000")

    def tell(*words: str) -> str:
        assert main(list(words)) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "Traceback" not in said, said
        return said

    return tell


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", LONG),
        ("eval", LONG),
        ("chat", LONG),
        ("report", LONG),
        ("runs", LONG),
        ("runs", "show", LONG),
        ("train", "--resume", LONG),
        ("train", f"{LONG}.yaml"),
        ("train", "sft", "--task", f"{LONG}.jsonl"),
        ("train", "sft", "--model", LONG),
        ("train", "sft", "--out", LONG),
        ("train", "grpo", "--reward", f"{LONG}.py:f"),
        ("compare", "grpo", "--out", LONG),
    ],
)
def test_a_name_of_300_characters(words: tuple[str, ...], told: Callable[..., str]) -> None:
    told(*words)


@pytest.mark.parametrize("words", [("train", "sft", "--out", "file/run"), ("doctor", "file/run"), ("runs", "file/run")])
def test_a_path_below_a_file(words: tuple[str, ...], told: Callable[..., str]) -> None:
    Path("file").write_text("")
    told(*words)


def test_a_folder_that_cannot_be_written(told: Callable[..., str]) -> None:
    """/proc refuses new files, for root as well."""
    assert "cannot make the run folder /proc/run" in told("train", "sft", "--out", "/proc/run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("--help",), ("methods",), ("show", "grpo"), ("runs",), ("train", "--help")])
def test_standard_output_on_a_full_disk(words: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        code, said = run(*words, cwd=tmp_path, stdout=full)
    assert code == 2 and said.count("\n") == 1 and "No space left on device" in said, said


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_too_little_memory(tmp_path: Path) -> None:
    """So little that the imports fail, which is the least that can be told apart from a crash of a C library."""
    limit = 300_000 << 10
    code, said = run("train", cwd=tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert code == 1 and said.count("\n") == 1 and "out of memory" in said, said


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to ..."
        ),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
)
def test_what_counts_as_out_of_memory(error: BaseException) -> None:
    assert sentence(error) == MEMORY


def test_other_errors_are_not_hidden() -> None:
    assert sentence(RuntimeError("a fault")) is None and sentence(KeyError("a")) is None


# -------------------------------------------------------------------------------------------------- values without end


@pytest.mark.parametrize("flag", ["--steps", "--seed", "--lr", "--prompts", "--eval-tasks", "--n", "--lag"])
@pytest.mark.parametrize("value", [HUGE, "-" + HUGE, "1e400", "9" * 5000])
def test_a_number_too_large_for_a_flag(flag: str, value: str, told: Callable[..., str]) -> None:
    said = told("train", "grpo", flag, value)
    assert f"option {flag[2:].replace('-', '_')!r}" in said and len(said) < 300


@pytest.mark.parametrize("name", ["steps", "lr", "seed", "n"])
def test_a_number_too_large_in_a_file(name: str, told: Callable[..., str]) -> None:
    Path("run.yaml").write_text(f"method: grpo\n{name}: {HUGE}\n")
    assert f"option {name!r}" in told("train", "run.yaml")


def test_yaml_that_is_nested_deeply_or_grows_by_its_aliases(told: Callable[..., str]) -> None:
    Path("deep.yaml").write_text("method: " + "[" * 20_000)
    assert "deep.yaml cannot be read: it is nested too deeply" in told("train", "deep.yaml")
    names = "abcdefghijkl"
    laughs = ", ".join(f"&{b} [*{a}, *{a}, *{a}, *{a}]" for a, b in pairwise(names))
    Path("laughs.yaml").write_text(f"steps: [&a [x, x], {laughs}]\n")  # 8 million words in 300 characters
    assert len(told("train", "laughs.yaml")) < 1000
    Path("date.yaml").write_text("steps: 2001-99-99\n")
    told("train", "date.yaml")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("d.jsonl", '{"prompt": ' + "[" * 200_000, "line 1: is nested too deeply"),
        ("d.json", "[" * 200_000, "is nested too deeply"),
        ("d.jsonl", '{"prompt": "a", "x": ' + "[" * 900 + "]" * 900 + "}", "line 1: is nested more than 100 levels"),
        ("d.jsonl", '{"prompt": "a", "answer": ' + "9" * 6000 + "}", "line 1: holds a number of thousands of digits"),
    ],
)
def test_data_that_is_nested_or_numbers_without_end(
    name: str, content: str, match: str, told: Callable[..., str]
) -> None:
    Path(name).write_text(content)
    assert match in told("train", "sft", "--task", name)


def test_numbers_beyond_floats_in_data_are_data(small_model: Path, tmp_path: Path) -> None:
    """10**400 is a whole number that JSON can say: a row may hold it, and it is compared as it is written."""
    data = rows(tmp_path / "d.jsonl", *({"prompt": f"{i}", "answer": 10**400, "x": 10**400} for i in range(4)))
    words = {"model": str(small_model), "task": data, "steps": 1, "prompts": 2, "n": 2, "max_new_tokens": 6}
    burnish.train("grpo", **words, eval_tasks=1, device="cpu", out=str(tmp_path / "run"))


@pytest.mark.parametrize("how", ["cut", "flipped", "checksum", "not gzip", "empty", "bad block"])
def test_damaged_gzip(how: str, told: Callable[..., str]) -> None:
    whole = gzip.compress(
        "".join(json.dumps({"prompt": str(i), "completion": "b"}) + "\n" for i in range(999)).encode()
    )
    spoilt = bytearray(whole)
    spoilt[{"checksum": -6, "bad block": 10}.get(how, len(whole) // 2)] ^= 0xFF
    content = {"cut": whole[: len(whole) // 2], "not gzip": b"hello", "empty": b""}.get(how, bytes(spoilt))
    Path("d.jsonl.gz").write_bytes(content)
    assert "d.jsonl.gz" in told("train", "sft", "--task", "d.jsonl.gz")


@pytest.mark.parametrize(("words", "code"), [("ui . --port 0", 1), ("completion bash", 0), ("ui --help", 0)])
def test_a_closed_pipe_is_said_where_work_ends_with_it(words: str, code: int, tmp_path: Path) -> None:
    """A run whose reader went away ended with exit code 1, or 0, and without a word. `burnish methods | head` may."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found, said = run(*words.split(), cwd=tmp_path, stdout=writer)
    finally:
        os.close(writer)
    assert found == code
    assert ("closed the pipe, so burnish ui ended" in said) == bool(code) and said.count("\n") == code


def test_another_pipe_that_breaks_is_not_taken_for_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended the command with exit code 0 and without a word."""

    def breaks(words: list[str]) -> int:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            pipe.write("to a process that has ended")
        return 0

    monkeypatch.setattr("burnish.commands.papers.main", breaks)
    assert main(["papers"]) == 1
    assert "has ended" in capsys.readouterr().err
