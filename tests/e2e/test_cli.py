"""The command line: output, error messages, and the files that commands write."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml
from conftest import build_method
from guards import guards
from rich.console import Console

from burnish import __version__
from burnish.cli import COMMANDS, main
from burnish.config.flags import BARE, field_docs, split
from burnish.config.options import Options
from burnish.methods.table import METHODS, load_all
from burnish.report.plot import plot
from burnish.store.reader import open_store

load_all()
SMALL = ["--prompts", "2", "--eval-tasks", "4", "--max-new-tokens", "8", "--eval-every", "1"]
OWN_METHOD = '''
from burnish.methods.policy import grpo
def mine(task, *, n: int = 2, eager: bool = False):
    """My own."""
    return grpo(task, n=n)
'''


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in its own folder, without line wrapping."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


class Cli:
    """Run a command and keep its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.out, self.err = capsys, "", ""

    def __call__(self, *words: str | Path) -> int:
        code = main([str(word) for word in words])
        self.out, self.err = self.capsys.readouterr()
        return code

    def refused(self, *words: str | Path) -> str:
        """The error message of a command that fails."""
        assert self(*words) == 2
        assert "Traceback" not in self.err
        assert self.err.count("\n") == 1, self.err
        return self.err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def metrics(run: str) -> list[dict[str, float]]:
    """The metrics of each step without held-out ones, because the last step of a run is evaluated separately."""
    with open_store(run) as store:
        rows = store.metrics()
    return [{name: value for name, value in row.items() if not name.startswith("heldout/")} for row in rows]


# train


def test_train_then_resume(cli: Cli, small_model: Path) -> None:
    """Two steps, then one more: the resumed run equals one of three steps straight through."""
    grpo = ["train", "grpo", "--model", small_model, "--n", "2", *SMALL]
    assert cli(*grpo, "--steps", "2", "--out", "run") == 0
    for said in ("k weights", "2 prompts x 2 samples", "step 1/2", "step 2/2", "held-out accuracy", "run/model"):
        assert said in cli.out, said
    assert "\x1b" not in cli.out
    assert (Path("run") / "model" / "model.safetensors").is_file()
    assert cli("train", "--resume", "run", "--steps", "3") == 0
    assert "resumed after step 2" in cli.out and "step 3/3" in cli.out
    assert cli(*grpo, "--steps", "3", "--out", "straight", "--quiet") == 0
    assert metrics("run") == metrics("straight") and len(metrics("run")) == 3


def test_the_live_display_draws_the_run(small_model: Path) -> None:
    from burnish.config.options import configure
    from burnish.methods.table import find
    from burnish.report.progress import ProgressScreen
    from burnish.run.train import execute, prepare

    drawn = io.StringIO()
    given = {"model": str(small_model), "steps": 2, "prompts": 2, "eval_tasks": 4, "max_new_tokens": 8, "out": "run"}
    entry = find("grpo")
    with ProgressScreen(Console(file=drawn, force_terminal=True, width=100, height=30)) as screen:
        execute(prepare(entry, configure(entry, "grpo", given)), screen)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
    for said in ("burnish grpo on add", "step 2/2", "reward", "Held-out accuracy", "burnish chat run/model", "⠀"):
        assert said in text, said
    assert max(len(line) for line in text.splitlines()) <= 100


def test_yaml_and_flags_on_top(cli: Cli, small_model: Path) -> None:
    stored = {"method": "sft", "model": str(small_model), "steps": 5, "prompts": 2, "eval-tasks": 0, "lr": "1e-4"}
    Path("run.yaml").write_text(yaml.safe_dump(stored))
    assert cli("train", "run.yaml", "--steps=1", "--out", "run") == 0
    used = yaml.safe_load((Path("run") / "config.yaml").read_text())
    assert (used["method"], used["steps"], used["lr"], used["eval_tasks"]) == ("sft", 1, 1e-4, 0)
    Path("bad.yaml").write_text("method: sft\nstep: 3\n")
    assert "did you mean 'steps'" in cli.refused("train", "bad.yaml")
    Path("list.yaml").write_text("- sft\n")
    assert "`option: value`" in cli.refused("train", "list.yaml")
    Path("broken.yaml").write_text("a: [")
    assert "is not YAML" in cli.refused("train", "broken.yaml")
    assert "no file 'absent.yaml'" in cli.refused("train", "absent.yaml")


def test_a_method_of_ones_own(cli: Cli, small_model: Path) -> None:
    Path("own.py").write_text(OWN_METHOD)
    assert cli("train", "own.py:mine", "--eager", "--model", small_model, "--steps", "1", *SMALL, "--out", "run") == 0
    assert yaml.safe_load((Path("run") / "config.yaml").read_text())["eager"] is True
    assert cli("show", "own.py:mine") == 0 and "--eager" in cli.out
    assert "own.py:FUNCTION" in cli.refused("train", "own.py")
    assert "no function 'hers'" in cli.refused("train", "own.py:hers")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train grop", "did you mean grpo"),
        ("train grpo --promts 3", "did you mean 'prompts'"),
        ("train grpo --n lots", "option 'n' takes a whole number, not 'lots'"),
        ("train grpo --n", "--n needs a value"),
        ("train grpo n=8", "did you mean --n 8"),
        ("train grpo -n 8", "two dashes: --n"),
        ("train grpo --model nowhere", "no model 'nowhere'"),
        ("train grpo --task srot", "did you mean sort"),
        ("train grpo --steps 0", "at least 1"),
        ("train gkd", "gkd needs --teacher"),
        ("train --resume nowhere", "not a run folder"),
        ("train dpo --resume nowhere", "leave out 'dpo'"),
        ("train --resume nowhere --lr 1", "--lr cannot change"),
        ("trian", "did you mean burnish train?"),
        ("evaluate", "did you mean burnish eval?"),
        ("grpo", "did you mean burnish train grpo?"),
        ("show", "say which method"),
        ("show grop", "did you mean grpo"),
        ("tasks srot", "did you mean sort"),
        ("models get tine", "did you mean tiny"),
        ("models tiny", "get NAME"),
        ("eval", "say which model"),
        ("eval tiny --taks 3", "did you mean --tasks"),
        ("eval tiny --k 0", "at least 1"),
        ("chat", "say which model"),
        ("chat nowhere", "no model 'nowhere'"),
        ("methods grpo dpo", "does not know what to do with 'dpo'"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(cli: Cli, words: str, said: str) -> None:
    assert said in cli.refused(*words.split())
    assert not any(Path().iterdir()), "a mistake leaves nothing behind"


def test_an_existing_run_folder_is_refused(cli: Cli, small_model: Path) -> None:
    Path("run").mkdir()
    Path("run/notes.txt").write_text("mine")
    assert "--resume run" in cli.refused("train", "sft", "--model", small_model, "--out", "run")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="grop"):
        main(["train", "grop", "--debug"])
    monkeypatch.setenv("BURNISH_DEBUG", "1")
    with pytest.raises(ValueError, match="grop"):
        main(["train", "grop"])


@guards("cli.py", "commands/train.py", "run/control.py", "run/train.py")
def test_ctrl_c_finishes_the_step_and_says_how_to_go_on(small_model: Path) -> None:
    """The real command, in a process of its own: SIGINT after the first step ends it with 130 and a checkpoint."""
    words = [
        "train",
        "grpo",
        "--model",
        str(small_model),
        *SMALL[:2],
        "--steps",
        "5000",
        "--eval-tasks",
        "0",
        "--out",
        "run",
    ]
    code = "import torch, sys; torch.set_num_threads(1); from burnish.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step "):
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped after step" in rest and "burnish train --resume run" in rest
    assert list(Path("run/checkpoints").iterdir())


# what there is


def test_help_teaches_and_version(cli: Cli) -> None:
    assert cli("--help") == 0 and "Start here" in cli.out and all(f"  {name} " in cli.out for name in COMMANDS)
    assert cli() == 0 and "Start here" in cli.out
    assert cli("--version") == 0 and cli.out == f"burnish {__version__}\n"
    for name in COMMANDS:
        assert cli(name, "--help") == 0 and f"burnish {name}" in cli.out


def test_help_of_a_method_lists_every_flag(cli: Cli) -> None:
    assert cli("train", "ppo", "--help-all") == 0
    for name in (*field_docs(Options), "value_eps", "critic_lr", "resume", "quiet"):
        assert re.search(rf"--(\[no-\])?{name.replace('_', '-')}\b", cli.out), name
    assert re.search(r"--lam NUMBER .*\[0\.95\]", cli.out)


def test_help_does_not_pay_for_torch() -> None:
    code = "import sys; from burnish.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_every_option_has_help() -> None:
    assert field_docs(Options).keys() == Options.__dataclass_fields__.keys()


def test_methods(cli: Cli) -> None:
    assert cli("methods", "--all") == 0 and all(name in cli.out for name in METHODS)
    assert cli("methods", "--json") == 0
    rows = json.loads(cli.out)
    assert [row["name"] for row in rows] == list(METHODS)
    for row in rows:
        assert row.keys() == {"name", "family", "library", "catalogue", "title", "arxiv", "summary"}
        assert isinstance(row["catalogue"], list) and row["summary"]


def test_show(cli: Cli, name: str, other_model: Path) -> None:
    """Every method can be shown, with its parts, terms, models and flags."""
    assert cli("show", name) == 0
    for said in ("draw", "rollout", "Models", build_method(name, other_model).product, "Try: burnish train"):
        assert said in cli.out, said


def test_tasks(cli: Cli) -> None:
    assert cli("tasks") == 0 and "countdown" in cli.out and "gym:NAME" in cli.out and "'burnish[gym]'" in cli.out
    assert cli("tasks", "sort:1") == 0 and cli.out.count("prompt") == 2 and "mistake" in cli.out
    assert cli("tasks", "guess") == 0 and "env" in cli.out


def test_models(cli: Cli) -> None:
    assert cli("models") == 0 and "tiny" in cli.out and "smollm2" in cli.out


# eval, chat, check


def test_eval(cli: Cli, small_model: Path) -> None:
    words = ["eval", small_model, "--task", "sort:1", "--tasks", "3", "--k", "3", "--max-new-tokens", "8"]
    assert cli(*words) == 0 and "pass@k" in cli.out and "majority@k" in cli.out and "3 held-out tasks" in cli.out
    assert cli(*words, "--json") == 0
    found = json.loads(cli.out)
    assert list(found["pass"]) == ["1", "2", "3"] and found["tasks"] == 3
    assert found["pass"]["1"].keys() == {"mean", "low", "high"}


def test_a_reward_model_writes_no_replies(cli: Cli, small_model: Path) -> None:
    assert cli("train", "reward_model", "--model", small_model, "--steps", "1", *SMALL, "--out", "rm") == 0
    assert "--reward-model rm/model" in cli.out
    assert cli("eval", "rm/model", "--tasks", "4") == 0 and "held-out pairs, compared by score" in cli.out
    assert "is a reward model" in cli.refused("chat", "rm/model")


def test_chat_from_a_pipe(cli: Cli, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message a line; after /reset the same message gets the same reply, within a conversation another one."""

    def said(lines: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        assert cli("chat", small_model, "--max-new-tokens", "6") == 0
        return cli.out.splitlines()

    alone = said("hello\n")
    assert said("hello\n/reset\n\nhello\n/quit\nnever\n") == alone * 2
    assert said("hello\nhello\n") != alone * 2
    assert said("") == []


def test_chat_keeps_turns_as_tokens(small_model: Path) -> None:
    import torch

    from burnish.commands.chat import ChatOptions, Conversation
    from burnish.commands.loaded import load_policy
    from burnish.core.step import Settings

    model = load_policy(str(small_model), Settings(), "cpu")["policy"]
    talk = Conversation(model, ChatOptions(max_new_tokens=5))
    talk.say("one")
    first = torch.cat(talk.tokens)
    talk.say("two")
    whole = torch.cat(talk.tokens)
    assert whole[: len(first)].equal(first)
    assert first[-1].item() in model.chat.stops
    with pytest.raises(ValueError, match="/reset"):
        talk.say("x" * model.context)


def test_lora_adapters_can_be_asked(cli: Cli, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    assert cli("train", "sft", "--lora", "2", "--model", small_model, "--steps", "1", *SMALL, "--out", "run") == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert cli("chat", "run/model", "--max-new-tokens", "4") == 0


def test_check(cli: Cli, small_model: Path) -> None:
    assert cli("check", "--model", small_model) == 0
    for said in ("python", "torch", "peft", "processor", "GRPO on", "All is well"):
        assert said in cli.out
    assert cli("check", "--model", "nowhere") == 1 and "1 of these need attention" in cli.out


# the parts underneath


def test_split_words() -> None:
    words = [
        "grpo",
        "--n",
        "8",
        "--lr=3e-5",
        "--merge",
        "--no-packed",
        "--beta",
        "-1",
        "--max-new-tokens",
        "4",
        "--out",
    ]
    plain, flags = split(words, {"merge": (), "packed": ()})
    assert plain == ["grpo"]
    assert flags == {
        "n": "8",
        "lr": "3e-5",
        "merge": True,
        "packed": False,
        "beta": "-1",
        "max_new_tokens": "4",
        "out": BARE,
    }
    assert split(["--merge", "false", "grpo"], {"merge": ()}) == (["grpo"], {"merge": "false"})
    kept = {"kept": ("off", "host")}  # a switch that has choices, too
    assert split(["--kept", "grpo"], kept) == (["grpo"], {"kept": True})
    assert split(["--kept", "host", "grpo"], kept) == (["grpo"], {"kept": "host"})
    assert split(["--no-kept", "grpo"], kept) == (["grpo"], {"kept": False})


def test_plot_draws_a_rising_line() -> None:
    """Two characters of two columns each, one row of four dots: 0, 1/3, 2/3, 1 climb one dot a column."""
    points = [(x, x / 3) for x in range(4)]
    assert plot(points, end=4, width=2, height=1, low=0, high=1) == ["⡠⠊"]
    assert plot([], end=4, width=2, height=1, low=0, high=1) == ["⠀⠀"]


def test_warnings_of_libraries_are_hidden_from_the_command_line_alone() -> None:
    """Not from a program that calls main, nor from one that asked Python for warnings, nor with --debug."""
    before = list(warnings.filters)
    assert main(["--version"]) == 0 and warnings.filters == before
    shown = "import warnings, burnish.cli as c; c.main(); print('ignore' in [w[0] for w in warnings.filters[:1]])"
    for more, words, hidden in (([], [], True), ([], ["--debug"], False), (["-W", "always"], [], False)):
        call = [sys.executable, *more, "-c", shown, "--version", *words]
        assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()[-1] == str(hidden)
