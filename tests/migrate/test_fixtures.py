"""Configurations of five libraries, rebuilt by hand: what becomes of every field, and two steps of what is imported."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import rows

from burnish.cli import main
from burnish.migrate.draft import CARRIED, CHANGED, LEFT
from burnish.migrate.files import read_given
from burnish.migrate.translate import Translation, translate
from burnish.tasks.data.spec import read_spec

FIXTURES = Path(__file__).parent / "fixtures"
BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "micro_batch_size")
SUMS = [(f"{a} + {b} =", str(a + b)) for a in range(8) for b in range(5)]
LISTED = {  # LLaMA-Factory's dataset_info.json
    "identity": {"file_name": "identity.json"},
    "alpaca_demo": {
        "file_name": "alpaca_demo.json",
        "columns": {"prompt": "instruction", "query": "input", "response": "output"},
    },
    "talk": {"file_name": "talk.json", "formatting": "sharegpt", "columns": {"messages": "conversations"}},
    "c4_demo": {"file_name": "c4_demo.json", "columns": {"prompt": "text"}},
    "dpo_demo": {
        "file_name": "dpo_demo.json",
        "ranking": True,
        "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"},
    },
    "sums": {"file_name": "sums.json", "columns": {"prompt": "question"}},
    "mllm_demo": {"file_name": "mllm_demo.json", "formatting": "sharegpt", "columns": {"images": "photos"}},
    "kto_demo": {"file_name": "kto_demo.json", "columns": {"messages": "talk", "kto_tag": "good"}},
    "from_hub": {
        "hf_hub_url": "someone/chat",
        "subset": "en",
        "split": "train_sft",
        "columns": {"prompt": "ask", "response": "reply", "history": "before"},
    },
}
REWARDS = """
def right(completions, answer, **columns):
    return [float(gold in text) for text, gold in zip(completions, answer)]


def short(completions, **columns):
    return [-len(text) / 10 for text in completions]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(ground_truth in solution_str)
"""


@dataclass
class Fixture:
    """A configuration, the kind of rows that it trains on, and what is expected of its import."""

    library: str
    name: str
    kind: str
    text: str
    wanted: dict[str, Any] = field(default_factory=dict)


def _fixtures() -> list[Fixture]:
    found = []
    for file in sorted(FIXTURES.glob("*.txt")):
        for block in re.split(r"^=== ", file.read_text(), flags=re.MULTILINE)[1:]:
            head, _, rest = block.partition("\n")
            name, kind = (part.strip() for part in head.split("|"))
            text, _, wanted = rest.partition("\n---\n")
            found.append(Fixture(file.stem, name, kind, text + "\n", yaml.safe_load(wanted) or {} if wanted else {}))
    return found


ALL = _fixtures()
FAST = {("trl", "dpo_rpo.yaml"), ("llama_factory", "sft_full_ds3.yaml"), ("axolotl", "kto.yml")}
FAST |= {("verl", "two_files.sh"), ("unsloth", "grpo_gsm8k.ipynb")}


def _id(one: Fixture) -> str:
    return f"{one.library}/{one.name}"


def _written(one: Fixture, folder: Path) -> Path:
    """The fixture as a file of its kind."""
    path = folder / one.name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = one.text
    if path.suffix == ".ipynb":
        cells = [
            {"cell_type": "markdown", "metadata": {}, "source": ["# A notebook"]},
            *(
                {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.strip().splitlines(keepends=True)}
                for cell in re.split(r"^# %%.*$", text, flags=re.MULTILINE)
            ),
        ]
        text = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    path.write_text(text)
    for key, value in one.wanted.items():
        if key.startswith("file "):
            other = folder / key.removeprefix("file ")
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_text(yaml.safe_dump(value))
    for place in (folder, folder / "data"):
        place.mkdir(exist_ok=True)
        (place / "dataset_info.json").write_text(json.dumps(LISTED))
    (folder / "rewards.py").write_text(REWARDS)
    return path


def _imported(one: Fixture, folder: Path) -> Translation:
    path = _written(one, folder)
    return translate(read_given(path), None, path.parent, "ours_rewards.py")


def _plain(value: Any, folder: str) -> Any:
    """A value as it is compared: numbers as numbers, places by their names."""
    if isinstance(value, str):
        value = value.replace(os.path.expanduser("~"), "HOME").replace(f"{folder}/data", "DIR")
        return value.replace(f"{folder}/", "")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@pytest.mark.parametrize("one", ALL, ids=_id)
def test_every_field_has_its_line_and_every_option_its_value(
    one: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = _imported(one, tmp_path)
    got = {key: _plain(value, str(tmp_path)) for key, value in found.options.items()}
    wanted = {key: _plain(value, "/nowhere") for key, value in one.wanted["options"].items()}
    assert (found.method, got) == (one.wanted["method"], wanted)
    listed = {line.name for line in found.lines}
    fields = set(read_given(tmp_path / one.name).flat)
    assert fields <= listed, f"not listed: {fields - listed}"
    changed = {name for each in one.wanted["changed"] for name in (BATCH if each == "B" else [each])}
    assert {line.name for line in found.of(CHANGED)} == {
        name for name in changed if name in listed or name not in BATCH
    }
    assert {line.name for line in found.of(LEFT)} == set(one.wanted["left"])
    assert all(line.text for line in found.lines) and found.of(CARRIED)


def test_models_of_sound_and_data_of_videos_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Qwen2.5-Omni-7B; burnish reads text and pictures, neither sound nor video$"):
        translate({"base_model": "Qwen/Qwen2.5-Omni-7B", "sequence_len": 8})
    (tmp_path / "data").mkdir()
    listed = {"clips": {"file_name": "clips.json", "columns": {"videos": "clips"}}}
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match="the dataset clips has videos; burnish reads text and pictures"):
        translate({"model_name_or_path": "m", "stage": "sft", "dataset": "clips"}, folder=tmp_path)


def test_there_are_twenty_of_each_library() -> None:
    libraries = {"axolotl", "llama_factory", "trl", "unsloth", "verl"}
    assert {name: sum(one.library == name for one in ALL) for name in libraries} == dict.fromkeys(libraries, 20)
    assert {(one.library, one.name) for one in ALL} >= FAST


# ------------------------------------------------------------------------------------------------------- the round trip


def _row(kind: str, prompt: str, answer: str) -> dict[str, Any]:
    asked, said = {"role": "user", "content": prompt}, {"role": "assistant", "content": answer}
    return {
        "messages": {"messages": [asked, said]},
        "sharegpt": {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": answer}]},
        "text": {"text": f"{prompt} {answer}"},
        "prompts": {"prompt": prompt, "completion": answer},
        "demos": {"question": prompt, "worked": answer},
        "mapped": {"ask": prompt, "reply": answer},
        "seen": {"messages": [asked, said], "images": []},
        "alpaca": {"instruction": prompt, "input": "", "output": answer},
        "pairs": {"prompt": prompt, "chosen": answer, "rejected": "?"},
        "labelled": {"prompt": prompt, "completion": answer, "label": int(answer) % 2 == 0},
        "questions": {"question": prompt, "answer": answer},
        "steps": {"prompt": prompt, "completions": ["so", answer], "labels": [True, False]},
        "verl": {
            "data_source": "sums",
            "prompt": [asked],
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"index": 0},
        },
        "seen_verl": {"prompt": [asked], "images": [], "reward_model": {"ground_truth": answer}},
    }[kind]


def _local(task: str, kind: str, folder: Path) -> str:
    """The task with every source replaced by rows of the same kind, under the columns that the import names."""
    pieces = []
    for i, spec in enumerate(read_spec(task)):
        found = []
        for prompt, answer in SUMS[i::2] if i else SUMS:
            row = _row(kind, prompt, answer)
            for part, column in spec.options.items():
                usual = {"demo": ("completion", "output", "worked", "reply"), "prompt": ("prompt", "question", "ask")}
                names = usual.get(part, (part, "conversations" if part == "messages" else part))
                own = next((name for name in names if name in row), None)
                if own is not None:
                    row[str(column)] = row.pop(own)
            if "messages" in spec.options and kind == "labelled":
                row = {
                    spec.options["messages"]: _row("messages", prompt, answer)["messages"],
                    spec.options["label"]: row.get("label", row.get(spec.options["label"])),
                }
            if "tools" in spec.options:
                row[str(spec.options["tools"])] = None
            found.append(row)
        rows(folder / f"rows{i}.jsonl", *found)
        options = [f"{key}={value}" for key, value in spec.options.items() if key not in ("split", "tools")]
        weight = f"*{spec.weight:g}" if spec.weight is not None else ""
        pieces.append(",".join([f"rows{i}.jsonl{weight}", *options]))
    return ",".join(pieces)


def _two_steps(one: Fixture, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _written(one, folder)
    assert main(["import", str(path), "-o", "ours.yaml"]) == 0
    listing = capsys.readouterr().err
    ours = yaml.safe_load((folder / "ours.yaml").read_text())
    assert ours["method"] == one.wanted["method"] and "run it: burnish train ours.yaml" in listing
    small = {
        "--model": "tiny-omni" if one.kind.startswith("seen") else "tiny",
        "--task": _local(ours["task"], one.kind, folder),
        "--ranks": "1",
        "--prompts": "4",
    }
    small |= {"--max-length": "128"} if "max_length" in ours else {}
    small |= {"--max-new-tokens": "6"} if "max_new_tokens" in ours else {}
    small |= {"--n": str(min(ours["n"], 4))} if "n" in ours else {}
    small |= {"--checkpoint-activations": "recompute"} if ours.get("checkpoint_activations") == "offload" else {}
    small |= {"--patience": "0"} if "patience" in ours else {}
    small |= {"--product": "last"} if "product" in ours else {}
    if "reward_model" in ours:
        rows(folder / "compared.jsonl", *(_row("pairs", *each) for each in SUMS))
        trained = ["train", "reward_model", "--task", "compared.jsonl", "--steps", "1", "--eval-tasks", "0", "--quiet"]
        assert main([*trained, "--out", "rm"]) == 0
        small["--reward-model"] = "rm/model"
    if "epochs" in ours:
        text = re.sub(r"^epochs:.*$", "steps: 2", (folder / "ours.yaml").read_text(), flags=re.MULTILINE)
        (folder / "ours.yaml").write_text(text)
    words = [word for pair in small.items() for word in pair]
    assert main(["plan", "ours.yaml", *words]) == 0, capsys.readouterr().err
    assert "peak on a GPU, predicted" in capsys.readouterr().out
    run = ["--steps", "2", "--eval-tasks", "0", "--save-every", "0", "--lr-warmup", "0", "--quiet", "--out", "run"]
    assert main(["train", "ours.yaml", *words, *run]) == 0, capsys.readouterr().err
    assert (folder / "run" / "model").is_dir()


@pytest.mark.parametrize("one", [one for one in ALL if (one.library, one.name) in FAST], ids=_id)
def test_a_sample_is_planned_and_trained(
    one: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _two_steps(one, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("one", [one for one in ALL if (one.library, one.name) not in FAST], ids=_id)
def test_all_are_planned_and_trained(
    one: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _two_steps(one, tmp_path, capsys)
