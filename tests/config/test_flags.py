"""Command-line parsing: spellings of booleans, exact numbers, and refused values."""

from __future__ import annotations

import dataclasses
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

import burnish.commands
from burnish.cli import main
from burnish.config.flags import flags_of, read, split
from burnish.config.options import configure
from burnish.config.values import coerce, truth
from burnish.core.option import Option
from burnish.methods.table import find

YES, NO = ("true", "yes", "on", "1", "True", "YES", "On"), ("false", "no", "off", "0", "False", "NO", "Off")


@dataclass(frozen=True)
class Switches:
    """burnish switches: for these tests."""

    loud: bool = False
    """Be loud."""
    fast: bool = True
    """Be fast."""
    count: int = 3
    """How many."""


def switches(*words: str, plain: int = 0) -> tuple[list[str], Switches]:
    found = read(Switches, "switches", list(words), plain=plain)
    assert found is not None
    return found


@pytest.mark.parametrize("word", YES)
def test_every_yes_turns_a_switch_on(word: str) -> None:
    assert switches(f"--loud={word}")[1].loud is True
    assert switches("--loud", word)[1].loud is True
    assert coerce("loud", word, bool) is True and truth(word) is True


@pytest.mark.parametrize("word", NO)
def test_every_no_turns_a_switch_off(word: str) -> None:
    assert switches(f"--fast={word}")[1].fast is False
    assert switches("--fast", word)[1].fast is False
    assert coerce("fast", word, bool) is False and truth(word) is False


def test_a_bare_switch_is_on_and_its_no_is_off() -> None:
    assert switches("--loud")[1] == Switches(loud=True) and switches("--no-fast")[1] == Switches(fast=False)
    assert switches()[1] == Switches()
    assert switches("--loud", "--count", "5")[1] == Switches(loud=True, count=5)
    assert switches("--loud", "word", plain=1) == (["word"], Switches(loud=True)), "another word is not the switch's"


@pytest.mark.parametrize("word", ["perhaps", "", "2", "-1", "y", "n", "truee", "yes no", "nan"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="option 'loud' takes true or false, not"):
        switches(f"--loud={word}")


def test_the_last_of_two_counts_and_names_may_have_dashes() -> None:
    assert split(["--a-b=1", "--a-b", "2"], {}) == ([], {"a_b": "2"})
    assert split(["--x=a=b"], {}) == ([], {"x": "a=b"})


@pytest.mark.parametrize("word", YES + NO)
def test_the_switches_of_train_take_the_same_words(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = find("grpo")
    assert configure(entry, "grpo", {"packed": word}).options.packed is (word in YES)
    assert main(["train", "grpo", f"--help={word}", "--steps=0", f"--quiet={word}"]) == (0 if word in YES else 2)
    said = capsys.readouterr()
    assert ("burnish train [METHOD" in said.out) is (word in YES)


def test_quiet_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "grpo", "--quiet=perhaps"]) == 2
    assert "option 'quiet' takes true or false, not 'perhaps'" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("9007199254740993", 2**53 + 1),
        ("1e6", 10**6),
        (" 7 ", 7),
        ("+7", 7),
        ("-7", -7),
        (2.0, 2),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_whole_numbers_are_read_exactly(value: Any, found: int) -> None:
    assert coerce("n", value, int) == found


@pytest.mark.parametrize(
    "value",
    [
        "1.5",
        "x",
        "",
        "1e400",
        "nan",
        "inf",
        "0x10",
        1.5,
        True,
        10**400,
        2**63,
        str(2**63),
        "9" * 5000,
        [1],
        {},
    ],
)
def test_what_is_no_whole_number_is_refused_briefly(value: Any) -> None:
    with pytest.raises(ValueError, match="option 'n' takes a whole number, not ") as caught:
        coerce("n", value, int)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", ["nan", float("nan"), "1e400", "-1e999", 10**400, True, "x", [1.0]])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(
        ValueError, match="option 'x' (takes a number, not |is (nan|-?inf); it must be a finite number)"
    ):
        coerce("x", value, float)


def test_infinity_is_a_methods_argument_and_no_option_of_a_run() -> None:
    unlimited = Annotated[float, Option(at_least=0, unlimited=True)]
    assert coerce("eps", "inf", unlimited) == float("inf") and coerce("eps", float("inf"), unlimited) == float("inf")
    for typo in ("1e999", "-inf", "nan"):
        with pytest.raises(ValueError, match=r"option 'eps' is (-?inf|nan); it must be a finite number"):
            coerce("eps", typo, unlimited)
    with pytest.raises(ValueError, match="option 'eps' is inf; it must be a finite number"):
        coerce("eps", "inf", float)
    for lr in ("inf", "-inf", float("inf")):
        with pytest.raises(ValueError, match="option 'lr' is -?inf; it must be a finite number"):
            configure(find("grpo"), "grpo", {"lr": lr})


def test_nul_characters_are_refused() -> None:
    with pytest.raises(ValueError, match="NUL character"):
        coerce("model", "a\0b", str)


def test_a_number_that_python_does_not_write_is_refused_too() -> None:
    with pytest.raises(ValueError, match="option 'n' takes a whole number, not such a large int"):
        coerce("n", 10**5000, int)


@dataclass(frozen=True)
class Rows:
    """A command."""

    tasks: int = 2
    """How many."""


def test_a_flag_answers_to_its_earlier_name() -> None:
    """--count of `burnish pairs` and --rows of `burnish tasks` are --tasks, as in the other commands."""
    for name in ("--tasks", "--count", "--rows"):
        found = read(Rows, "pairs", [name, "5"])
        assert found is not None and found[1].tasks == 5


def test_one_flag_counts_rows_in_all_commands() -> None:
    """Every command that reads rows has --tasks, says "Number of ... rows", and has no other flag that says so."""
    kinds = {}
    for file in sorted(Path(burnish.commands.__file__).parent.glob("*.py")):
        module = importlib.import_module(f"burnish.commands.{file.stem}")
        kinds |= {
            one.__name__: one
            for one in vars(module).values()
            if getattr(one, "__module__", "") == module.__name__
            and dataclasses.is_dataclass(one)
            and (one.__doc__ or "").startswith("burnish ")
        }
    counted = {
        name: [
            flag.name
            for flag in flags_of(kind)
            if re.match(r"(The )?number of (\S+ )?(rows|prompts|tasks)", flag.help, re.I)
        ]
        for name, kind in kinds.items()
    }
    having = {name: flags for name, flags in counted.items() if flags}
    assert len(having) >= 12 and set(map(tuple, having.values())) == {("tasks",)}, having
    for name in having:
        (flag,) = (one for one in flags_of(kinds[name]) if one.name == "tasks")
        assert re.match("Number of (held-out )?rows", flag.help), (name, flag.help)


def test_other_words_for_the_number_of_rows_name_the_flag() -> None:
    with pytest.raises(ValueError, match="there is no --limit; in burnish: --tasks"):
        read(Rows, "pairs", ["--limit", "5"])
