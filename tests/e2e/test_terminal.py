"""What a terminal and a pipe show: help in groups, nothing cut off, tables on one line per row, completion, devices."""

from __future__ import annotations

import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from guards import guards
from runs import go

import burnish
from burnish.cli import main
from burnish.commands import completion
from burnish.commands.methods import FAMILIES
from burnish.commands.table import COMMANDS
from burnish.config.flags import dashed, flags_of
from burnish.config.help import grouped
from burnish.config.help import groups as option_groups
from burnish.config.options import Options, method_fields
from burnish.methods.table import METHODS, find, load_all

pytestmark = guards("commands", "report")

load_all()
RUN = [sys.executable, "-c", "import sys; from burnish.cli import main; sys.exit(main())"]


def environment() -> dict[str, str]:
    """Without the size of this terminal, and with this burnish also in another folder."""
    outer = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return {**outer, "PYTHONPATH": str(Path(burnish.__file__).parents[1])}


def piped(*words: str, cwd: Path | None = None) -> str:
    """The output of a command in a pipe, without COLUMNS."""
    done = subprocess.run([*RUN, *words], capture_output=True, text=True, env=environment(), cwd=cwd, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_terminal(columns: int, *words: str, cwd: Path | None = None) -> list[str]:
    """The lines that a terminal of so many columns shows, without control codes."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    here = {**environment(), "TERM": "xterm-256color"}
    process = subprocess.Popen([*RUN, *words], stdout=follower, stderr=follower, stdin=follower, env=here, cwd=cwd)
    os.close(follower)
    output = b"".join(_chunks(leader))
    assert process.wait(timeout=100) == 0, output.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode()).replace("\r", "").splitlines()


def _chunks(leader: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other end is closed
            return
        if not chunk:
            return
        yield chunk


# -------------------------------------------------------------------------------------------------------------- help


def test_every_option_of_a_run_is_in_one_group_and_ray_is_last() -> None:
    groups = grouped(flags_of(Options))
    names = [flag.name for flags in groups.values() for flag in flags]
    assert sorted(names) == sorted(Options.__dataclass_fields__)
    assert next(iter(groups)) == "Common" and list(groups)[-2:] == ["Engines", "Ray"]
    listed = [name for names in option_groups().values() for name in names]
    assert len(listed) == len(set(listed))


def test_help_is_short_and_help_all_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "dapo", "--help"]) == 0
    short = capsys.readouterr().out
    assert main(["train", "dapo", "--help-all"]) == 0
    long = capsys.readouterr().out
    own = [f"--{dashed(name)} " for name in method_fields(find("dapo"))]
    for flag in (*own, "--model", "--task", "--lr ", "--resume"):
        assert flag in short and flag in long
    assert "--ray-address" not in short and "--help-all also lists the other" in short
    for name in Options.__dataclass_fields__:
        assert re.search(rf"--(\[no-\])?{dashed(name)}\b", long), name
    assert long.index("--engine") < long.index("--ray-address") and long.index("--steps") < long.index("--weight-decay")


@pytest.mark.parametrize("words", [("train", "--help-all"), ("compare", "--help"), ("--help",)])
def test_nothing_is_cut_off_at_80_columns(words: tuple[str, ...]) -> None:
    """Every word of the piped output is in the terminal's, no line is longer than the terminal, none ends in dots."""
    lines = in_terminal(80, *words)
    assert max(map(len, lines)) <= 80 and not [line for line in lines if line.rstrip().endswith("…")]
    shown = re.sub(r"\s+", "", "".join(lines))
    for text in re.findall(r"[^\s]+", piped(*words)):
        assert text in shown, text


# ------------------------------------------------------------------------------------------------------------- tables


@pytest.fixture(scope="module")
def run_folder(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listed")
    name = "a-name-that-is-longer-than-the-others-" * 2 + "end"
    go("grpo", small_model, folder / "runs" / name, steps=1, eval_tasks=2)
    return folder


@pytest.mark.parametrize(
    "words", [("methods", "--all"), ("runs",), ("runs", "show", "last"), ("models",), ("show", "grpo")]
)
def test_a_table_in_a_pipe_has_one_line_per_row(words: tuple[str, ...], run_folder: Path) -> None:
    text = piped(*words, cwd=run_folder)
    assert not re.search(r"[│┃─━┏┡└╭╰]", text) and not re.search(r" \n", text)
    if words == ("methods", "--all"):
        rows = [line for line in text.splitlines() if line.startswith("  ")]
        assert [row.split()[0] for row in rows] == [
            entry.name for family in FAMILIES for entry in METHODS.values() if entry.family == family
        ]
    if words == ("runs",):
        row = next(line for line in text.splitlines() if line.startswith("a-name"))
        assert "-end " in row and "grpo" in row and "finished" in row


def test_evaluation_in_a_pipe_has_no_box(small_model: Path, tmp_path: Path) -> None:
    text = piped("eval", str(small_model), "--tasks", "2", "--k", "1", "--max-new-tokens", "4", cwd=tmp_path)
    assert "pass@k" in text and not re.search(r"[│┃─━┏┡└╭╰]", text)


def test_a_method_without_training_is_not_said_to_have_become_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replies that best_of_n chooses by their brevity are compared with the model's own, which no --lr changed."""
    (tmp_path / "r.py").write_text("def brief(completion):\n    return -float(len(completion))\n")
    reward = ["--reward", f"{tmp_path}/r.py:brief", "--n", "2", "--max-new-tokens", "16", "--device", "cpu", "--quiet"]
    small = ["--steps", "1", "--prompts", "2", "--eval-tasks", "8", "--out", str(tmp_path / "run")]
    assert main(["train", "best_of_n", "--task", "sort", *reward, *small]) == 0
    said = capsys.readouterr().out
    assert "held-out reward of the method's replies: " in said and "of the model's own replies, greedy: " in said
    assert "worse" not in said and "->" not in said


def test_a_narrow_terminal_leaves_out_columns_before_it_breaks_names(run_folder: Path) -> None:
    (run_folder / "short").mkdir(exist_ok=True)
    shutil.copytree(
        next((run_folder / "runs").iterdir()), run_folder / "short" / "grpo-sort-20260101", dirs_exist_ok=True
    )
    narrow, wide = (in_terminal(columns, "runs", "short", cwd=run_folder) for columns in (60, 120))
    assert any(line.startswith("grpo-sort-20260101 ") and "finished" in line for line in narrow)
    assert "model" not in narrow[0] and "model" in wide[0]


# --------------------------------------------------------------------------------------------------------- completion


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "burnish.bash"
    file.write_text(completion.bash(completion.known_words()))
    return file


def completed(script: Path, line: str, cwd: Path) -> list[str]:
    """What bash offers after a line; the last word of the line is the one to complete."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    ask = f"source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _burnish; "
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True, cwd=cwd)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("burnish tr", ["train"], ["tasks"]),
        ("burnish ", list(COMMANDS), []),
        ("burnish train dr_", ["dr_grpo", "dr_po"], ["grpo"]),
        ("burnish train dapo --ov", ["--overlong"], ["--beta"]),
        ("burnish train dapo --lr", ["--lr", "--lr-schedule", "--lr-min"], []),
        ("burnish train --be", ["--beta"], []),
        ("burnish train grpo --task so", ["sort"], ["add"]),
        ("burnish train grpo --model ti", ["tiny"], []),
        ("burnish train grpo --lr-schedule co", ["constant", "cosine"], ["linear"]),
        ("burnish train --resume runs/f", ["runs/first"], ["runs/second"]),
        ("burnish runs pa", ["pause"], []),
        ("burnish runs show se", ["second"], ["first"]),
        ("burnish runs --ta", ["--tag"], []),
        ("burnish chat runs/", ["runs/first/model"], []),
        ("burnish show gs", ["gspo"], []),
        ("burnish import da", ["data.yaml"], []),
        ("burnish completion ", ["bash", "zsh", "fish"], []),
    ],
)
def test_bash_completes(line: str, offered: list[str], not_offered: list[str], script: Path, tmp_path: Path) -> None:
    (tmp_path / "runs" / "first" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "second").mkdir()
    (tmp_path / "data.yaml").touch()
    found = completed(script, line, tmp_path)
    assert set(offered) <= set(found) and not set(not_offered) & set(found), found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "dr_grpo" in text and "lr-schedule" in text
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=60)
    if shell == "fish":
        ask = f"source {tmp_path / 'script'}; complete -C 'burnish train dr_g'; complete -C 'burnish train grpo --lr-s'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True, timeout=60
        )
        assert "dr_grpo" in done.stdout and "--lr-schedule" in done.stdout


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of them: burnish completion bash|zsh|fish" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- device


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "say cuda"),
        ("mps", "Apple's GPU, which burnish does not compute on"),
        ("tpu", "it is cpu, cuda, cuda:NUMBER or auto"),
        ("cuda:x", "it is cpu, cuda, cuda:NUMBER or auto"),
    ],
)
@pytest.mark.parametrize("command", ["train grpo", "eval tiny"])
def test_a_device_is_answered_in_words(
    command: str,
    device: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--device", device]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()
