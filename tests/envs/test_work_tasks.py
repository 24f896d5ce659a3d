"""Tasks with real tools: experts that win, forks and keys, limits of the shell, and what cannot be cheated."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from burnish.envs.box_shell import BoxShell
from burnish.envs.games.game import Game
from burnish.envs.guarded import GuardedEnv
from burnish.envs.named_tools import read_tools
from burnish.envs.protocol import Outcome
from burnish.envs.work.browser import chromium
from burnish.envs.work.lookup import FolderLookup, gaps
from burnish.envs.work.packages import PACKAGES
from burnish.envs.work.repo import Repairing, Repo, Report, line_of
from burnish.envs.work.shell import Jobs, Working
from burnish.envs.work.table import WORK
from burnish.models.known_models import resolve
from burnish.models.load import load_chat
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source

HERE = [name for name in WORK if name != "browser"]
LEVELS = [(name, level) for name in HERE for level in WORK[name].levels]


def started(name: str, index: int = 0, split: str = "train") -> Any:
    game = source(name).task(split, index).given["env"]()
    game.reset()
    return game


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_the_expert_wins_and_splits_are_apart(name: str, level: int) -> None:
    family = source(f"{name}:{level}")
    keys: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for split in keys:
        for index in range(2):
            task = family.task(split, index)
            keys[split].add(task.key)
            said = [m["content"] for m in task.given["messages"] if m["role"] == "assistant"]
            assert len(said) <= 5
            game = task.given["env"]()
            assert task.prompt[0]["content"] == game.reset()
            found = [game.step(one) for one in said]
            assert found[-1].terminated and sum(one.reward or 0.0 for one in found) == 1.0, (said, found)
    assert not keys["train"] & keys["heldout"] and len(keys["train"]) == 2


@pytest.mark.parametrize("name", HERE)
def test_a_fork_goes_its_own_way_and_keys_name_states(name: str) -> None:
    game: Game = started(f"{name}:2")
    twin = game.fork()
    before, said = game.key(), twin.expert()
    assert twin.key() == before
    mine = twin.step(said)
    assert game.key() == before and game.made == 0
    assert game.step(said) == mine and game.key() == twin.key()


@pytest.mark.parametrize("name", HERE)
def test_no_action_raises_and_nonsense_ends_unrewarded(name: str) -> None:
    dice = random.Random(0)
    odd = ["", "\x00", "../../etc", "9" * 9000, "answer:", "\u00e9\U0001f600", "```\n```", "kill -9 -1", "exit 3", "(("]
    for index in range(2):
        game = started(f"{name}:3", index)
        for _ in range(40):
            outcome = game.step(dice.choice(odd))
            assert not outcome.reward
            if outcome.over:
                break
        assert outcome.over


@pytest.mark.parametrize("name", [*HERE, pytest.param("browser", marks=pytest.mark.extras)])
def test_prompts_of_level_one_are_short_for_the_embedded_model(name: str) -> None:
    chat = load_chat(resolve("tiny"))
    task = source(f"{name}:1").task("train", 0)
    assert len(chat.prompt(task)) < 256


# ------------------------------------------------------------------------------------------------------- the sandbox


def test_a_shell_keeps_files_and_the_folder_and_nothing_else() -> None:
    shell = BoxShell.of({"a.txt": "b\na\n", "box": None})
    shell, did = shell.run("cd box; X=5; sort ../a.txt > s; ls")
    assert did.status == 0 and did.shown == "s" and shell.text("box/s") == "a\nb\n"
    shell, did = shell.run("pwd; echo [$X]; cat s | wc -l; false")
    assert did.shown == "/scratch/box\n[]\n2\n[exit status 1]"
    other, _ = shell.run("rm s; exit 4")
    assert other.text("box/s") is None and shell.text("box/s") == "a\nb\n"  # a state is a value
    shell, did = shell.run("python3 -c 'print(6 * 7)'; git --version | cut -d' ' -f1; echo hi > /dev/null; echo $?")
    assert did.shown == "42\ngit\n0"


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/passwd", "ls /root", "ls /home /work /tmp /proc", "echo x > /usr/bin/x", "echo x > /x", "mount",
        "python3 -c \"import socket; socket.socket()\"", "python3 -c \"import torch\"", "unshare -U true",
        "python3 -c \"import os; os.kill(1, 9); os.kill(1, 15); print(open('/proc/1/mem'))\"",
    ],
)  # fmt: skip
def test_a_shell_reaches_nothing_outside(command: str) -> None:
    _, did = BoxShell.of({}).run(command)
    assert did.status != 0, did.shown
    assert "root:" not in did.printed


def test_a_shell_has_limits_and_a_command_that_meets_one_leaves_the_files() -> None:
    for command, seconds, problem in (("rm a; sleep 30", 0.5, "not finished"), ("rm a; yes", 10.0, "MiB were written")):
        start = BoxShell.of({"a": "1"}, seconds=seconds)
        after, did = start.run(command)
        assert problem in did.problem and after.text("a") == "1", command
    after, did = start.run("head -c 9000000 /dev/zero > big; echo $?")
    assert "No space" in did.printed or "too large" in did.printed or after.text("big") is None
    _, did = start.run(":(){ :|:& };:; true")
    after, did = start.run("sleep 60 & echo $! > pid; echo ok")  # a process that was left behind ends with its call
    assert did.printed == "ok\n"
    _, did = after.run("kill -0 $(cat pid) && echo alive")
    assert "alive" not in did.printed


def test_shell_as_a_tool(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "n.txt").write_text("7\n")
    [tool] = read_tools(f"bash:{tmp_path}")
    assert tool.owner is not None and tool.schema["function"]["parameters"]["required"] == ["command"]
    one, other = tool.owner(), tool.owner()
    assert tool.function(one, command="echo 8 > deep/n.txt; cat deep/n.txt") == "8"
    assert tool.function(other, command="cat deep/n.txt") == "7"
    assert (tmp_path / "deep" / "n.txt").read_text() == "7\n"
    with pytest.raises(ValueError, match="is no folder"):
        read_tools("bash:/nothing")


# --------------------------------------------------------------------------------------------------------- repositories


def test_each_slip_breaks_a_hidden_test_and_putting_it_right_passes_all() -> None:
    """Otherwise a patch that does nothing would pass. The visible tests hold for the repository without mistakes."""
    for package in PACKAGES:
        calls = tuple(call.format(12, 5) for call in package.calls)
        whole = Repairing(Report(package.name, package.files, (), calls))
        whole.reset()
        _, did = whole.shell.run("python3 -m unittest -q 2>&1 | tail -1")
        assert did.shown == "OK"
        assert whole.step("submit").reward == 1.0
        for slip in package.slips:
            game = Repairing(Report(package.name, package.files, (slip,), calls))
            game.reset()
            assert line_of(game.start[slip.file], slip.bad)[0]
            assert not line_of(dict(package.files)[slip.file], slip.bad)[0]
            found = game.fork().step("submit")
            assert found.reward == 0.0 and 0.0 < found.metrics()["tests_passed"] < 1.0, slip
            game.step(game.expert())
            assert game.expert() == "submit" and game.step("submit").reward == 1.0, slip


def test_the_patch_is_the_answer_and_tests_cannot_be_changed() -> None:
    task = Repo(level=1).task("train", 0)
    game = task.given["env"]()
    game.reset()
    wrong = game.fork()
    game.step(game.expert())
    patch = game.patch()
    assert (
        patch.startswith("--- a/calc.py\n+++ b/calc.py\n")
        and patch.count("\n-    ") == 1
        and patch.count("\n+    ") == 1
    )
    assert game.step("submit").info["answer"] == patch
    # A program that ends the process of its tests, or says what it likes, knows no expected value.
    for trick in ("import os\nos._exit(0)", "import sys\nsys.exit(0)", "print(['1'] * 99)", "def add(*a): return 0"):
        tried = wrong.fork()
        tried.step(f"cat > calc.py <<'END'\n{trick}\nEND")
        assert tried.step("submit").reward == 0.0, trick
    tried = wrong.fork()
    tried.step("mkdir tests; echo 'raise SystemExit(0)' > tests/test_calc.py; echo 1 > unittest.py")
    assert tried.step("submit").reward == 0.0


def test_a_repository_that_is_given_up_is_judged_as_it_is() -> None:
    game = started("repo:1")
    game.step(game.expert())
    found = [game.step("ls") for _ in range(game.most - 1)][-1]
    assert found.truncated and not found.terminated and found.reward == 1.0


# --------------------------------------------------------------------------------------------------------------- others


def test_jobs_by_hand() -> None:
    """Two files: sorting a gives the lines b, c; then both files that have c are moved."""
    files = (("a", "c 2\nb 1\n"), ("d", "c 3\n"), ("box", None))
    position = Jobs(files, (("sort", ("a", "out")), ("move", ("box", "c"))))
    game = Working(position)
    assert game.reset() == (
        "Files: a d. Sort the lines of a into out. Then: Move every file that has c to the folder box."
    )
    assert game.step("```bash\nsort a > out\n```").observation == "ok" and game.shell.text("out") == "b 1\nc 2\n"
    assert game.step("mv a d box").reward == 0.0
    done = game.step("mv out box")
    assert done.reward == 1.0 and done.terminated


def test_an_interpreter_remembers_and_a_fork_does_not_share() -> None:
    game = started("interpreter:3")
    assert game.step("m = sum(data) / len(data)").observation == "(nothing was printed)"
    twin = game.fork()
    twin.step("m = 0")
    assert game.step("m > 0").observation == "True" and twin.step("m").observation == "0"


def test_a_database_is_only_read_and_numbers_are_compared_as_numbers() -> None:
    game = started("sql:2")
    for said in ("drop table items", "insert into items values (1, 'a', 1, 1)", "attach 'x' as y", "nonsense"):
        assert game.step(said).observation.startswith("error:")
    game = started("sql:2")
    assert game.step(f"answer: {float(game.right())}").reward == 1.0


def test_gaps_in_the_sentences_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The red pen of Ann lies in box 4711 today.\nToo short.\n")
    places = ("attic", "cellar", "yard")
    lines = [f"The pen number {i} of Ann lies in the {place} today." for i, place in enumerate(places)]
    (tmp_path / "b.txt").write_text("\n".join(lines))
    family = FolderLookup(str(tmp_path))
    assert {gap.word for gap in family.places} >= {"4711", "attic", "cellar", "yard"} or len(family.places) == 4
    task = resolve_task(f"folder:{tmp_path}").task("train", 0)
    said = [m["content"] for m in task.given["messages"] if m["role"] == "assistant"]
    game = task.given["env"]()
    assert "____" in game.reset()
    assert game.step(said[0]).observation.startswith("[") and game.step(said[1]).reward == 1.0
    (tmp_path / "b.txt").unlink()
    from burnish.envs.folder_tools import Documents

    assert [gap.sentence for gap in gaps(Documents.of_folder(str(tmp_path)), "")] == [
        "The red pen of Ann lies in box 4711 today."
    ]


@pytest.mark.extras
@pytest.mark.skipif(chromium() is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_shop_in_a_real_browser(level: int) -> None:
    pytest.importorskip("playwright")
    task = source(f"browser:{level}").task("train", 0)
    said = [m["content"] for m in task.given["messages"] if m["role"] == "assistant"]
    env = GuardedEnv(task.given["env"])
    assert env.observed(env.begin_reset(None, 0)) == task.prompt[0]["content"]
    outcome = Outcome()
    for one in ("nonsense", "click nothing", *said):
        outcome = env.outcome(env.begin_step(one))
    assert outcome.terminated and outcome.reward == 1.0
    env.close()
    wrong = GuardedEnv(task.given["env"])
    wrong.observed(wrong.begin_reset(None, 0))
    for one in said[:-1]:
        wrong.outcome(wrong.begin_step(one))
    wrong.outcome(wrong.begin_step("type count 99"))
    assert wrong.outcome(wrong.begin_step("click order")).reward == 0.0
