"""burnish from Python, as people use other libraries: model, tokenizer, rows, rewards and callbacks as objects."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conftest import recorded
from runs import halted_after, same_run, tensors
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import burnish
from burnish.cli import main
from burnish.store.reader import open_store

ROWS = [
    {"question": f"Say {word}.", "answer": word, "level": i} for i, word in enumerate(["one", "two", "six", "ten"] * 5)
]
SMALL: dict[str, Any] = {"steps": 2, "prompts": 2, "n": 2, "max_new_tokens": 6, "lr": 1e-3, "eval_tasks": 0}
SMALL |= {"device": "cpu", "save_every": 1, "keep": 9}


def length(completions: list[str], **columns: Any) -> list[float]:
    return [sum(text.encode()) % 97 / 97 for text in completions]  # differs between replies of one length


def correct(completion: str, answer: str, level: int) -> float | None:
    return None if level % 4 == 3 else float(answer in completion or len(completion) % 2)


class Seen:
    """A callback that notes what it was told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_start(self, run: Any) -> None:
        self.events.append("start")

    def on_step(self, report: Any) -> None:
        self.events.append(report.clock.step)

    def on_save(self, path: Path) -> None:
        self.events.append(path.name)

    def on_end(self, result: Any) -> None:
        self.events.append("end")


@pytest.fixture
def loaded(small_model: Path) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(small_model), AutoTokenizer.from_pretrained(small_model)


def test_objects_all_the_way(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = loaded
    model = model.to(torch.bfloat16)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    seen, steps = Seen(), []
    result = burnish.train(
        "grpo",
        model=model,
        tokenizer=tokenizer,
        task=ROWS,
        reward=[(length, 0.5), correct],
        callbacks=[seen, lambda report: steps.append(report.metrics["reward"])],
        out=tmp_path / "run",
        **SMALL,
    )
    assert seen.events[:2] == ["start", 0] and seen.events[-1] == "end" and "step-000002" in seen.events
    assert steps == result.metrics["reward"]
    for row in result.metrics:
        assert {"reward/length", "reward/correct"} <= row.keys()
    first = result.traces(step=1)[0]["scores"]
    whole = 0.5 * first["reward/length"] + first.get("reward/correct", 0.0)
    assert first["reward"] == pytest.approx(whole)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())  # a copy is trained
    trained, itstokenizer = result.load()
    assert trained.dtype == torch.bfloat16 and itstokenizer.chat_template == tokenizer.chat_template
    assert any(not torch.equal(weight, before[name]) for name, weight in trained.state_dict().items())
    told = yaml.safe_load((result.folder / "config.yaml").read_text())
    assert told["reward"] == "python:length*0.5,python:correct" and told["task"] == "python:rows"
    # resumed with the same objects, and not without them
    halted = halted_after(1, result.folder, tmp_path / "halted")
    for given, missing in (({"task": ROWS}, "length"), ({"reward": [(length, 0.5), correct]}, "rows")):
        with pytest.raises(ValueError, match=f"'{missing}' was passed as a Python object"):
            burnish.resume(halted, **given)
    with pytest.raises(ValueError, match="was trained with reward 'python:length\\*0.5,python:correct', not"):
        burnish.resume(halted, task=ROWS, reward=[length, correct])
    burnish.resume(halted, task=ROWS, reward=[(length, 0.5), correct])
    same_run(result.folder, halted)
    longer = result.resume(steps=3)
    assert len(longer.metrics) == 3 and longer.folder == result.folder


def test_the_result_shows_itself(small_model: Path, tmp_path: Path) -> None:
    result = burnish.train(
        "grpo", model=small_model, task="sort", reward=length, out=tmp_path / "run", **{**SMALL, "eval_tasks": 4}
    )
    assert isinstance(result, burnish.TrainResult)
    said = repr(result)
    assert said.startswith("TrainResult: grpo on sort, 2 steps of 2\n") and str(result.model_path) in said
    assert "held-out reward, sampled at temperature 1: " in said
    plot = result.plot("reward", "reward/length")
    assert set(plot.svg()) == {"reward", "reward/length"} and "<svg" in plot._repr_html_()
    assert "<svg" in result._repr_html_()
    table = result.metrics.to_pandas()
    assert list(table.index) == [1, 2] and list(table["reward"]) == result.metrics["reward"]
    assert "reward/length" in repr(result.metrics)
    with pytest.raises(KeyError, match="there is no metric 'rewards'; there are .*reward"):
        result.metrics["rewards"]


def test_rows_of_every_kind(small_model: Path, tmp_path: Path) -> None:
    """The same rows as a list, a datasets.Dataset, a generator and a file give the same run."""
    datasets = pytest.importorskip("datasets")
    import json

    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    kinds = {
        "list": ROWS,
        "dataset": datasets.Dataset.from_list(ROWS),
        "generator": (row for row in ROWS),
        "file": tmp_path / "rows.jsonl",
    }
    metrics = {}
    for name, task in kinds.items():
        run = burnish.train("grpo", model=small_model, task=task, reward=length, out=tmp_path / name, **SMALL)
        metrics[name] = (recorded(run.folder)["metrics"], tensors(run.model_path))
    assert all(found == metrics["list"] for found in metrics.values())
    with pytest.raises(ValueError, match="task is 3; pass a name, a path, rows"):
        burnish.train("grpo", model=small_model, task=3, **SMALL)


def test_an_async_reward(small_model: Path, tmp_path: Path) -> None:
    async def slow(completion: str) -> float:
        await asyncio.sleep(0.001)
        return len(completion) / 10

    run = burnish.train("grpo", model=small_model, task=ROWS, reward=slow, out=tmp_path / "run", **SMALL)
    assert run.metrics["reward/slow"] == run.metrics["reward"]


def test_several_rewards_on_the_command_line(small_model: Path, tmp_path: Path) -> None:
    """With commas, with two flags and as a list in YAML: the same run, with the names of the functions."""
    code = "def f(completions):\n    return [len(c) / 10 for c in completions]\n\ndef g(completion):\n    return 1.0\n"
    (tmp_path / "r.py").write_text(code)
    f, g = f"{tmp_path / 'r.py'}:f", f"{tmp_path / 'r.py'}:g*0.5"
    short = [
        "--steps",
        "1",
        "--prompts",
        "2",
        "--n",
        "2",
        "--max-new-tokens",
        "4",
        "--eval-tasks",
        "0",
        "--device",
        "cpu",
        "--task",
        "sort",
        "--quiet",
    ]
    short += ["--model", str(small_model)]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"method": "grpo", "reward": [f, g]}))
    commands = {
        "commas": ["grpo", "--reward", f"{f},{g}"],
        "flags": ["grpo", "--reward", f, "--reward", g],
        "yaml": [str(tmp_path / "run.yaml")],
    }
    found = {}
    for name, words in commands.items():
        assert main(["train", *words, *short, "--out", str(tmp_path / name)]) == 0
        (found[name],) = burnish.open_store(tmp_path / name).metrics()
    assert found["commas"]["reward/g"] == 1.0
    assert found["commas"]["reward"] == pytest.approx(found["commas"]["reward/f"] + 0.5)
    assert all(row == found["commas"] for row in found.values())


def test_a_rewards_error_names_file_line_and_row(small_model: Path, tmp_path: Path) -> None:
    def broken(completion: str, answer: str) -> float:
        return {"one": 1.0}[answer + "!"]

    message = r"reward broken raised KeyError: '.*!' at test_python_api.py, line \d+, "
    message += "for the row with prompt='Say .*', answer='.*'"
    with pytest.raises(ValueError, match=message):
        burnish.train("grpo", model=small_model, task=ROWS, reward=broken, out=tmp_path / "run", **SMALL)
    with open_store(tmp_path / "run") as store:  # its first step failed: `burnish runs` lists it, and says why
        assert store.state() == "failed" and "KeyError" in store.events()[-1]["text"]


def test_what_cannot_be_trained_is_refused_and_leaves_nothing(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model, tokenizer = loaded
    out = tmp_path / "run"
    refusals = [
        ({"model": model}, "needs its tokenizer"),
        ({"model": torch.nn.Linear(2, 2), "tokenizer": tokenizer}, "model is a Linear; pass a transformers model"),
        ({"model": model, "tokenizer": tokenizer, "reward": 3}, "a reward is a function"),
        ({"model": model, "tokenizer": tokenizer, "callbacks": [3]}, "a callback is a function"),
        ({"model": model, "tokenizer": tokenizer, "dtype": "int8"}, "option 'dtype' is 'int8'"),
    ]
    adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(model.name_or_path), peft.LoraConfig())
    refusals.append(({"model": adapted, "tokenizer": tokenizer}, "LoRA adapters"))
    for given, message in refusals:
        with pytest.raises(ValueError, match=message):
            burnish.train("grpo", task=ROWS, out=out, **{**SMALL, **given})
        assert not out.exists(), message
    (out / "config.yaml").parent.mkdir()
    (out / "config.yaml").write_text("method: grpo\n")
    with pytest.raises(ValueError, match="exists already"):
        burnish.train("grpo", model=model, tokenizer=tokenizer, task=ROWS, out=out, **SMALL)
    assert sorted(file.name for file in out.iterdir()) == ["config.yaml"]


def test_a_callback_may_stop_the_run_and_so_may_ctrl_c(small_model: Path, tmp_path: Path) -> None:
    """Both save a checkpoint; a second run in the same process works, and the stopped ones can be finished."""
    options = {**SMALL, "model": small_model, "task": ROWS, "reward": length, "steps": 4}

    def stop(report: Any, heldout: dict[str, float]) -> str:
        return "stop" if report.clock.step == 1 else ""

    def interrupt(report: Any) -> None:
        if report.clock.step == 1:
            os.kill(os.getpid(), signal.SIGINT)

    straight = burnish.train("grpo", out=tmp_path / "straight", **options)
    for callback in (stop, interrupt):
        result = burnish.train("grpo", out=tmp_path / callback.__name__, callbacks=callback, **options)
        assert result.stopped and len(result.metrics) == 2 and "stopped after step 2" in repr(result)
        with pytest.raises(ValueError, match="stopped before its end"):
            result.model_path  # noqa: B018 - the error is the test
        done = result.resume(callbacks=())
        assert not done.stopped
        same_run(straight.folder, done.folder)


def test_progress_is_plain_lines(small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    burnish.train("grpo", model=small_model, task=ROWS, reward=length, out=tmp_path / "quiet", **SMALL)
    assert capsys.readouterr().out == ""
    burnish.train("grpo", model=small_model, task=ROWS, reward=length, out=tmp_path / "run", progress=True, **SMALL)
    said = capsys.readouterr().out
    assert "step 1/2: reward" in said and "\x1b" not in said


def test_chat_templates_from_python(small_model: Path, tmp_path: Path) -> None:
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}" + (
        "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% endif %}{% endif %}"
    )
    styles = {
        "plain": ({}, "<|user|>Say one.<|end|><|assistant|>"),
        "system": ({"system_prompt": "Be brief."}, "<|system|>Be brief.<|end|><|user|>Say one.<|end|><|assistant|>"),
        "thinking": (
            {"chat_template": template, "template_option": "enable_thinking=true"},
            "<|user|>Say one.<|end|><|assistant|><think>",
        ),
    }
    for name, (style, shown) in styles.items():
        run = burnish.train("sft", model=small_model, task=_demos(), out=tmp_path / name, **_without_n(), **style)
        asked = run.load()[1].apply_chat_template(
            [{"role": "user", "content": "Say one."}], tokenize=False, add_generation_prompt=True
        )
        assert asked == shown, name
        assert isinstance(burnish.generate(run.model_path, "Say one.", max_new_tokens=4), str)


def _demos() -> list[dict[str, str]]:
    return [{"prompt": f"Say {w}.", "completion": w} for w in ["one", "two", "six", "ten"]]


def _without_n() -> dict[str, Any]:
    return {key: value for key, value in SMALL.items() if key != "n"}


def test_evaluate_and_generate(small_model: Path) -> None:
    evaluation = burnish.evaluate(small_model, ROWS, reward=length, tasks=3, k=2, max_new_tokens=4, device="cpu")
    assert len(evaluation.rewards) == len(evaluation.correct) and evaluation.reward().mean > 0
    chats = [[{"role": "user", "content": "Hello"}], "Hello"]
    one, other = burnish.generate(small_model, chats, max_new_tokens=4, temperature=0, device="cpu")
    assert one == other  # a text is a message of the user
    three = burnish.generate(small_model, "Hello", n=3, max_new_tokens=4, device="cpu")
    assert len(three) == 3 and three == burnish.generate(small_model, "Hello", n=3, max_new_tokens=4, device="cpu")


def test_the_public_names_need_no_torch_until_they_are_used() -> None:
    code = """
import sys, burnish
assert {"train", "resume", "TrainResult", "evaluate", "generate", "list_methods"} <= set(dir(burnish)), dir(burnish)
assert "torch" not in sys.modules
for name in burnish.__all__:
    getattr(burnish, name)
print("grpo" in burnish.list_methods(), "sort" in burnish.list_tasks(), "tiny" in burnish.list_models())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True True True", done.stderr


def test_a_folder_that_was_written_again_is_read_again(small_model: Path, tmp_path: Path) -> None:
    place = tmp_path / "model"
    shutil.copytree(small_model, place)
    before = burnish.generate(place, "2 + 2 = ", temperature=0, max_new_tokens=6)
    weights = load_file(place / "model.safetensors")
    dice = torch.Generator().manual_seed(0)
    others = {name: torch.randn(w.shape, generator=dice) * 0.1 for name, w in weights.items()}
    save_file(others, place / "model.safetensors", {"format": "pt"})
    assert burnish.generate(place, "2 + 2 = ", temperature=0, max_new_tokens=6) != before
