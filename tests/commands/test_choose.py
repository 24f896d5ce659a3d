"""burnish choose: every recommendation is a command that is accepted, and the page says the same."""

from __future__ import annotations

import builtins
import json
import re
import shlex
from itertools import product
from pathlib import Path

import pytest

from burnish.cli import main
from burnish.commands import choose as command
from burnish.commands.train import _read
from burnish.compare.choice import DATA, SIGNALS, Asked, choose, data_of
from burnish.config.options import configure
from burnish.methods.table import METHODS, find, load_all

PAGE = Path(__file__).parents[2] / "docs" / "choose.md"


@pytest.mark.parametrize("data", DATA)
def test_every_recommended_command_is_read_without_a_mistake(data: str) -> None:
    load_all()
    for signal, memory in product(SIGNALS, (None, 24.0)):
        choice = choose(Asked(data, signal, "tiny", memory=memory, weights=3_100_000))
        for line in choice.commands:
            words = shlex.split(line)
            assert words[:2] == ["burnish", "train"]
            name, stored, flags = _read(words[2:])
            entry = find(str(name))
            configure(entry, str(name), {**stored, **flags})
        assert set(choice.others) <= set(METHODS) and choice.method in METHODS


def test_the_page_has_every_recommendation() -> None:
    """A row of docs/choose.md names the method that the command prints."""
    text = PAGE.read_text()
    for data, words in DATA.items():
        block = text[text.index(f"| {words} |") :].partition("\n| ")[0]
        for row in text[text.index(f"| {words} |") :].splitlines()[1:]:
            if not row.startswith("|  |"):
                break
            block += row
        named = set(re.findall(r"\[(\w+)\]", block))
        for signal in SIGNALS:
            if signal == "none" and data in ("answers", "prompts"):
                continue
            assert choose(Asked(data, signal)).method in named, (data, signal)


def test_memory_adds_adapters_and_four_bits_only_where_they_are_needed() -> None:
    """Of 24 GiB, 16.8 are for weights: 16 bytes each for 1.05e9 of them, 2.6 for 6.9e9."""
    flags = {
        weights: choose(Asked("pairs", "none", memory=24.0, weights=weights)).commands[-1].partition("pairs.jsonl")[2]
        for weights in (1_000_000_000, 1_200_000_000, 6_900_000_000, 7_100_000_000)
    }
    assert list(flags.values()) == [
        " --memory 24GiB",
        " --lora 16 --memory 24GiB",
        " --lora 16 --memory 24GiB",
        " --lora 16 --quantization nf4 --memory 24GiB",
    ]


def test_columns_say_what_the_data_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text((json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n") * 4)
    assert main(["choose", "--task", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["method"] == "dpo" and told["commands"] == [f"burnish train dpo --model tiny --task {file}"]
    assert data_of(frozenset({"answer", "demo"})) == "answers" and data_of(frozenset()) == "prompts"


def test_it_asks_in_a_terminal_and_says_what_it_needs_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = iter(["9", "environment", "4", "", "24GiB"])  # there is no ninth
    monkeypatch.setattr(builtins, "input", lambda prompt: next(said))
    answers = command._answers(command.ChooseOptions(), command.stdout_console(), True)
    assert (answers.data, answers.signal, answers.model, answers.memory) == ("environment", "judge", "tiny", 24.0)
    capsys.readouterr()
    assert main(["choose"]) == 2
    assert "say what the rows have" in capsys.readouterr().err


def test_it_prints_the_method_why_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", "--data", "answers", "--signal", "verifier"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("grpo: replies to one prompt") and "burnish train grpo --model tiny" in out
