"""What an import decides: readers that execute nothing, batch semantics, and reward functions that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from burnish.cli import main
from burnish.config.words import table
from burnish.migrate.draft import CARRIED, CHANGED, LEFT, Unread
from burnish.migrate.files import read_given
from burnish.migrate.translate import Translation, translate


def imported(folder: Path, name: str, text: str) -> Translation:
    (folder / name).write_text(text)
    return translate(read_given(folder / name), None, folder, "ours_rewards.py")


def kinds(found: Translation) -> dict[str, str]:
    return {line.name: line.kind for line in found.lines}


def test_a_script_is_not_executed(tmp_path: Path) -> None:
    """Neither its statements nor its reward functions, nor what a value would compute."""
    mark = tmp_path / "ran"
    found = imported(
        tmp_path,
        "script.py",
        f"import pathlib\nfrom trl import GRPOConfig, GRPOTrainer\npathlib.Path({str(mark)!r}).touch()\n"
        f"lr = pathlib.Path({str(mark)!r}).write_text('x')\n"
        f"def f(completions, hidden=pathlib.Path({str(mark)!r}).touch()):\n    return [0.0 for _ in completions]\n"
        "args = GRPOConfig(learning_rate=lr, num_generations=4)\nGRPOTrainer(args=args, reward_funcs=[f])\n",
    )
    assert not mark.exists()
    assert kinds(found)["learning_rate"] == LEFT and found.options["n"] == 4


@pytest.mark.parametrize("value", ["10 ** 10 ** 10", "'x' * 10 ** 12", "[0] * 10 ** 12", "2 ** 64 * 2 ** 64", "1 / 0"])
def test_values_that_grow_are_not_computed(value: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(f"from trl import SFTConfig\nSFTConfig(seed={value}, max_steps=3)\n")
    assert isinstance(read_given(tmp_path / "s.py").flat["seed"], Unread)


@pytest.mark.parametrize("name", ["s.py", "s.sh"])
def test_endless_recursion_of_values_ends(name: str, tmp_path: Path) -> None:
    loops = {
        "s.py": "from trl import SFTConfig\ndef f(a):\n    return f(a)\nSFTConfig(max_steps=f(1), seed=2)\n",
        "s.sh": "A=$B\nB=$A$A\ntrl sft --model_name_or_path x --learning_rate $A --seed 2\n",
    }
    found = imported(tmp_path, name, loops[name])
    assert found.options["seed"] == 2 and {"max_steps", "learning_rate"} & {one.name for one in found.of(LEFT)}


def test_an_unknown_field_is_listed(tmp_path: Path) -> None:
    found = imported(tmp_path, "a.yaml", "base_model: x\nfrobnicate: {deep: 3}\nempty: {}\nlearning_rate: 1.0e-4\n")
    listed = {line.name: (line.kind, line.text) for line in found.lines}
    assert listed["frobnicate.deep"] == (LEFT, "burnish has no such option")
    assert listed["empty"] == (CARRIED, "not set")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        # 4 completions x 4 accumulated on one device: 16 completions are 2 prompts with 8 replies
        ("per_device_train_batch_size: 4\ngradient_accumulation_steps: 4\nnum_generations: 8\n", (2, 1, 40)),
        # 32 completions are generated at once for 2 updates of 16: 4 prompts, and 40 updates are 20 steps
        ("per_device_train_batch_size: 4\ngradient_accumulation_steps: 4\nnum_generations: 8\n"
         "generation_batch_size: 32\n", (4, 2, 20)),
        # and each batch is passed over twice: 40 updates are 10 steps
        ("per_device_train_batch_size: 4\ngradient_accumulation_steps: 4\nnum_generations: 8\n"
         "generation_batch_size: 32\nnum_iterations: 2\n", (4, 2, 10)),
    ],
)  # fmt: skip
def test_trl_counts_completions_and_updates(text: str, options: tuple[int, int, int], tmp_path: Path) -> None:
    found = imported(tmp_path, "grpo.yaml", f"model_name_or_path: x\nmax_steps: 40\n{text}").options
    assert (found["prompts"], found.get("minibatches", 1), found["steps"]) == options


def test_verl_counts_prompts(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=$((8 * 16)) "
    text += "actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.rollout.n=8\n"
    found = imported(tmp_path, "run.sh", text).options
    assert (found["prompts"], found["minibatches"], found["n"]) == (128, 4, 8)


@pytest.mark.parametrize(
    ("words", "kl", "kind"),
    [
        (
            "adv_estimator=grpo actor_rollout_ref.actor.kl_loss_type=low_var_kl",
            "kl_k3(coef=0.1, norm=token_mean)",
            CARRIED,
        ),
        ("adv_estimator=grpo actor_rollout_ref.actor.kl_loss_type=mse", "kl_k2(coef=0.1, norm=token_mean)", CARRIED),
        ("adv_estimator=grpo actor_rollout_ref.actor.kl_loss_type=abs", "kl_k3(coef=0.1, norm=token_mean)", LEFT),
        ("adv_estimator=reinforce_plus_plus_baseline actor_rollout_ref.actor.kl_loss_type=k2", "", CARRIED),
        ("adv_estimator=reinforce_plus_plus_baseline actor_rollout_ref.actor.kl_loss_type=low_var_kl", "", LEFT),
    ],
)
def test_the_estimator_of_verls_kl(words: str, kl: str, kind: str, tmp_path: Path) -> None:
    text = f"python3 -m verl.trainer.main_ppo algorithm.{words} actor_rollout_ref.actor.use_kl_loss=True "
    found = imported(
        tmp_path, "run.sh", f"{text} actor_rollout_ref.actor.kl_loss_coef=0.1 actor_rollout_ref.rollout.n=4\n"
    )
    assert kinds(found)["actor_rollout_ref.actor.kl_loss_type"] == kind and found.options["beta"] == 0.1
    swaps = dict(one.split("=", 1) for one in found.options["swap"].split("; "))
    assert swaps.get("kl", "") == kl


def test_fields_of_the_critic_and_of_the_evaluation_do_not_set_the_policys(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae data.train_batch_size=8 "
    text += "critic.optim.weight_decay=0.5 critic.ppo_epochs=3 actor_rollout_ref.actor.ppo_epochs=2 critic.grad_clip=9 "
    text += "actor_rollout_ref.rollout.val_kwargs.temperature=0 actor_rollout_ref.rollout.val_kwargs.n=4 "
    text += (
        "actor_rollout_ref.rollout.val_kwargs.top_p=0.7 reward_model.micro_batch_size=8 critic.ppo_micro_batch_size=4\n"
    )
    found = imported(tmp_path, "run.sh", text)
    assert found.options["weight_decay"] == 0.01 and found.options["updates"] == 2 and "clip" not in found.options
    assert "temperature" not in found.options and (found.options["eval_temperature"], found.options["eval_k"]) == (0, 4)
    left = {"critic.optim.weight_decay", "critic.ppo_epochs", "critic.grad_clip"}
    assert left | {"actor_rollout_ref.rollout.val_kwargs.top_p"} <= {line.name for line in found.of(LEFT)}
    assert kinds(found)["critic.ppo_micro_batch_size"] == CHANGED


def test_a_hinge_is_refused_and_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="loss_type 'hinge' is no loss on pairs of burnish; say which method to take"):
        imported(tmp_path, "dpo.yaml", "model_name_or_path: x\nloss_type: hinge\nbeta: 0.1\n")


def test_the_method_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    """Also where theirs is none of ours; what was decided for theirs does not stay."""
    (tmp_path / "dpo.yaml").write_text("model_name_or_path: x\nloss_type: hinge\nbeta: 0.3\n")
    found = translate(read_given(tmp_path / "dpo.yaml"), "slic", tmp_path)
    assert found.method == "slic" and kinds(found)["loss_type"] == CHANGED and kinds(found)["beta"] == LEFT
    (tmp_path / "ipo.yaml").write_text("model_name_or_path: x\nloss_type: ipo\nbeta: 0.3\n")
    found = translate(read_given(tmp_path / "ipo.yaml"), "dpo", tmp_path)
    assert found.options["beta"] == 0.3 and "tau" not in found.options
    assert translate(read_given(tmp_path / "ipo.yaml"), "ipo", tmp_path).options["tau"] == 0.3


def test_the_kl_is_averaged_like_the_loss(tmp_path: Path) -> None:
    """TRL adds beta KL to each token before it averages."""
    found = imported(tmp_path, "g.yaml", "model_name_or_path: x\nnum_generations: 4\nbeta: 0.1\nloss_type: dr_grpo\n")
    assert found.options["swap"] == "pg=pg_clip(0.2, norm=constant); kl=kl_k3(coef=0.1, norm=constant)"
    plain = imported(tmp_path, "h.yaml", "model_name_or_path: x\nnum_generations: 4\nbeta: 0.1\nloss_type: grpo\n")
    assert "swap" not in plain.options and plain.options["beta"] == 0.1
    high = imported(
        tmp_path, "i.yaml", "model_name_or_path: x\nnum_generations: 4\nloss_type: grpo\nepsilon_high: 0.3\n"
    )
    assert high.options["swap"] == "pg=pg_clip(0.2, 0.3, norm=seq_mean)"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("beta: 0.1\n", True),
        ("beta: 0.1\nuse_bias_correction_kl: true\n", True),
        ("beta: 0.1\nuse_bias_correction_kl: false\n", False),
        ("beta: 0.0\n", False),
    ],
)
def test_the_ratio_of_trls_kl_is_told(words: str, told: bool, tmp_path: Path) -> None:
    """TRL's default is to multiply by it."""
    found = imported(tmp_path, "grpo.yaml", f"model_name_or_path: x\nnum_generations: 8\n{words}")
    assert any("use_bias_correction_kl" in note for note in found.notes) == told


@pytest.mark.parametrize(
    ("scale", "part"),
    [("group", ""), ("none", "group_relative(std=False)"), ("false", "group_relative(std=False)"),
     ("batch", "group_mean_batch_std()")],
)  # fmt: skip
def test_advantages_are_scaled_as_theirs_are(scale: str, part: str, tmp_path: Path) -> None:
    text = f"model_name_or_path: x\nnum_generations: 4\nloss_type: grpo\nscale_rewards: {scale}\n"
    assert imported(tmp_path, "g.yaml", text).options.get("swap", "") == (f"group_relative={part}" if part else "")


def test_dropout_of_adapters_is_off_where_trl_turns_it_off(tmp_path: Path) -> None:
    text = "model_name_or_path: x\nuse_peft: true\nlora_dropout: 0.1\n"
    assert imported(tmp_path, "sft.yaml", text).options["lora_dropout"] == 0.1
    assert "lora_dropout" not in imported(tmp_path, "dpo.yaml", f"{text}beta: 0.1\n").options
    kept = imported(tmp_path, "kept.yaml", f"{text}beta: 0.1\ndisable_dropout: false\n")
    assert kept.options["lora_dropout"] == 0.1


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.ipynb", '{"no": "cells"}', "is not a notebook"),
        ("a.ipynb", "no", "is not JSON"),
        ("a.py", "def f(:\n", "is not a Python script"),
        ("a.py", "print(3)\n", "has no call such as GRPOConfig"),
        ("a.sh", "ls -l\n", "starts no training that burnish import knows"),
        ("a.sh", "trl sft --config absent.yaml\n", "absent.yaml cannot be read"),
        ("a.sh", "axolotl train mine.yaml\n", "import that file: burnish import mine.yaml"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_sentence(
    name: str, text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["import", str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") <= 3 and "Traceback" not in err


NOTEBOOK = """
import re
from trl import GRPOConfig, GRPOTrainer
from unsloth import FastLanguageModel

WORTH = {"yes": 1.0}
model, tokenizer = FastLanguageModel.from_pretrained("tiny", max_seq_length=64)

def clean(text):
    return re.sub("[^a-z]", "", text.lower())

def polite(completions, **kwargs):
    return [WORTH.get(clean(text), 0.0) for text in completions]

def long(completions, **kwargs):
    return [float(len(tokenizer.encode(text))) for text in completions]

GRPOTrainer(model=model, args=GRPOConfig(num_generations=2), reward_funcs=[polite, long])
"""


def test_reward_functions_are_carried_over_with_what_they_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [{"cell_type": "code", "source": NOTEBOOK.splitlines(keepends=True)}]
    Path("book.ipynb").write_text(json.dumps({"cells": cells}))
    assert main(["import", "book.ipynb", "-o", "mine.yaml"]) == 0
    err = capsys.readouterr().err
    ours = yaml.safe_load(Path("mine.yaml").read_text())
    assert ours["reward"] == "mine_rewards.py:polite,mine_rewards.py:long"
    space: dict[str, Any] = {}
    exec(Path("mine_rewards.py").read_text(), space)
    assert space["polite"](["Yes!", "no"]) == [1.0, 0.0]
    assert "tokenizer in reward functions" in err and "FastLanguageModel" not in Path("mine_rewards.py").read_text()
    assert main(["import", "book.ipynb", "-o", "mine.yaml"]) == 2 and "exists already" in capsys.readouterr().err
    assert main(["import", "book.ipynb"]) == 0
    out, err = capsys.readouterr()
    assert "reward" not in yaml.safe_load(out) and "with -o ours.yaml it is written to ours_rewards.py" in err


ODD = (
    "top_entropy_quantile",
    "adam_beta2",
    "actor_rollout_ref.model.lora_rank",
    "beta",
    "loss_weights",
    "warmup_ratio",
)


@pytest.mark.parametrize("value", [["a"], "text", {"a": 1}, -1, True], ids=str)
def test_an_odd_value_is_listed_or_one_sentence(value: Any) -> None:
    """Never a traceback, and never silence."""
    listed_or_refused(ODD, value)


@pytest.mark.slow
@pytest.mark.parametrize("value", [["a"], "text", 3, False, -1, 0.5], ids=str)
def test_an_odd_value_of_any_field_is_listed_or_one_sentence(value: Any) -> None:
    listed_or_refused(tuple(table()), value)


def listed_or_refused(names: tuple[str, ...], value: Any) -> None:
    base = {"model_name_or_path": "x", "num_generations": 2}
    for name in names:
        theirs = {**base, name: value}
        try:
            found = translate(theirs)
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            fields = {f"{name}.a"} if isinstance(value, dict) else {name}
            assert {*base, *fields} <= {line.name for line in found.lines}, name


def test_secrets_are_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "model_name_or_path: x\nhub_token: hf_abc\nwandb_api_key: abc123\neos_token: <end>\n"
    (tmp_path / "a.yaml").write_text(text)
    assert main(["import", str(tmp_path / "a.yaml")]) == 0
    out, err = capsys.readouterr()
    assert not any(secret in out + err for secret in ("hf_abc", "abc123")) and "hub_token: (hidden)" in err
    assert "eos_token: <end>" in err


def test_each_line_says_how_or_why(tmp_path: Path) -> None:
    found = imported(tmp_path, "a.yaml", "model_name_or_path: x\npacking: true\nlogging_steps: 1\nseed: 3\n")
    assert [kinds(found)[name] for name in ("packing", "logging_steps", "seed")] == [CHANGED, LEFT, CARRIED]
    assert all(line.text for line in found.lines)
