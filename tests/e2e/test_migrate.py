"""Options of other libraries: each is answered by ours, and `burnish import` writes files that train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from runs import rows

import burnish
from burnish.cli import main
from burnish.config.options import Options, configure, method_fields
from burnish.config.words import COUNTERPARTS, WITHOUT, answer, table
from burnish.methods.table import METHODS, find, load_all

load_all()
SUMS = [{"prompt": f"{a} + {b} =", "answer": str(a + b)} for a in range(8) for b in range(5)]
PAIRS = [{"prompt": row["prompt"], "chosen": row["answer"], "rejected": "?"} for row in SUMS]
SMALL = ["--prompts", "2", "--max-new-tokens", "4", "--steps", "1", "--eval-tasks", "2", "--quiet"]

TRL = """
# GRPO with the command line of TRL
model_name_or_path: {model}
torch_dtype: bfloat16
attn_implementation: flash_attention_2
dataset_name: {folder}/sums.jsonl
dataset_config: null
system_prompt: "Answer with the number."
bf16: true
use_vllm: true
do_eval: true
eval_strategy: steps
eval_steps: 100
gradient_accumulation_steps: 4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
hub_model_id: me/grpo
learning_rate: 2.0e-05
logging_steps: 1
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs:
  min_lr_rate: 0.1
max_completion_length: 12
max_steps: 30
num_generations: 8
num_train_epochs: 1
output_dir: {folder}/out
per_device_train_batch_size: 4
push_to_hub: true
report_to: none
run_name: grpo-sums
reward_funcs: [accuracy_reward]
save_strategy: steps
save_steps: 50
save_total_limit: 1
seed: 42
temperature: 0.7
epsilon: 0.2
epsilon_high: 0.28
beta: 0.001
loss_type: dapo
scale_rewards: false
warmup_ratio: 0.1
"""
FACTORY = """
### model
model_name_or_path: {model}
trust_remote_code: true
### method
stage: dpo
do_train: true
finetuning_type: full
pref_beta: 0.25
pref_loss: sigmoid
### dataset
dataset: my_pairs
dataset_dir: {folder}
template: llama3
cutoff_len: 128
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: {folder}/out
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 5.0e-6
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
val_size: 0.1
"""
TEXTS = {"trl.yaml": TRL, "factory.yaml": FACTORY}


@pytest.fixture
def place(tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with their files and data."""
    monkeypatch.chdir(tmp_path)
    rows(tmp_path / "sums.jsonl", *SUMS)
    rows(tmp_path / "pairs.jsonl", *PAIRS)
    info = {"file_name": "pairs.jsonl", "ranking": True, "columns": {"prompt": "prompt", "chosen": "chosen"}}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"my_pairs": info}))
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text.format(model=small_model, folder=tmp_path))
    return tmp_path


def test_what_has_no_counterpart_is_listed_with_the_reason(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "trl.yaml"]) == 0
    out, err = capsys.readouterr()
    for option, reason in (
        ("use_vllm", "burnish samples with its own engine"),
        ("push_to_hub", "a run uploads nothing; `burnish push RUN OWNER/NAME` does"),
        ("attn_implementation", "attention kernels are chosen by the device"),
        ("reward_funcs", "the task's own verifier scores replies"),
    ):
        assert any(line.startswith(f"  {option}: ") and reason in line for line in err.splitlines()), option
        assert any(line.startswith(f"#   {option}: ") and reason in line for line in out.splitlines()), option
    assert "prompts 2: a batch of 4 x 4 accumulated on one device, divided by n = 8" in err
    assert yaml.safe_load(out)["method"] == "grpo"  # the listed options are comments


def test_several_rewards_and_datasets_are_translated_with_their_weights(
    place: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reward functions beside the file, by dotted names; two datasets one after the other, as theirs are."""
    Path("rewards.py").write_text(
        "def short(completions):\n    return [-float(len(text)) for text in completions]\n\n\n"
        "def digits(completions):\n    return [float(text.isdigit()) for text in completions]\n"
    )
    theirs = {
        "base_model": str(small_model),
        "rl": "grpo",
        "datasets": [{"path": "sums.jsonl"}, {"path": "sums.jsonl"}],
    }
    theirs["trl"] = {
        "num_generations": 2,
        "reward_funcs": ["rewards.short", "rewards.digits"],
        "reward_weights": [1, 0.5],
    }
    theirs["trl"] |= {"max_completion_length": 8, "max_prompt_length": 24}
    Path("several.yaml").write_text(yaml.safe_dump(theirs))
    assert main(["import", "several.yaml", "-o", "several-ours.yaml"]) == 0
    ours = yaml.safe_load(Path("several-ours.yaml").read_text())
    assert ours["reward"] == "rewards.py:short,rewards.py:digits*0.5" and ours["max_length"] == 32
    assert ours["task"] == "sums.jsonl,sums.jsonl"
    ours["task"] = "sums.jsonl"
    Path("one.yaml").write_text(yaml.safe_dump({key: value for key, value in ours.items() if key != "epochs"}))
    assert main(["train", "one.yaml", *SMALL, "--out", "run"]) == 0
    Path("factory2.yaml").write_text(
        Path("factory.yaml").read_text().replace("dataset: my_pairs", "dataset: my_pairs, b")
    )
    capsys.readouterr()
    assert main(["import", "factory2.yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["task"] == f"{place}/pairs.jsonl,heldout=0.1,b,heldout=0.1"


def test_their_defaults_are_written_where_they_train_something_else(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file for TRL without beta means beta 0, where our GRPO's default is the paper's 0.04."""
    Path("few.yaml").write_text("model_name_or_path: tiny\nnum_generations: 4\n")
    assert main(["import", "few.yaml"]) == 0
    ours = yaml.safe_load(capsys.readouterr().out)
    assert (ours["beta"], ours["lr"], ours["n"], ours["prompts"], ours["max_new_tokens"]) == (0.0, 1e-6, 4, 2, 512)


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("stage: kto_of_the_future\n", (), "is no method of burnish; say which one to take instead: --method NAME"),
        ("- a\n- b\n", (), "holds no options"),
        ("stage: sft\n", ("--method", "grop"), "there is no method 'grop'"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused(
    text: str, words: tuple[str, ...], message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd.yaml").write_text(text)
    assert main(["import", "odd.yaml", *words]) == 2
    assert message in capsys.readouterr().err
    assert main(["import", "absent.yaml"]) == 2 and "there is no file" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ unknown flags and keywords


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("num_generations", "n"),
        ("per_device_train_batch_size", "prompts"),
        ("gradient_accumulation_steps", "prompts"),
        ("learning_rate", "lr"),
        ("output_dir", "out"),
        ("experiment_name", "run_name"),
        ("dataset", "task"),
        ("dataset_name", "task"),
        ("model_name_or_path", "model"),
        ("max_completion_length", "max_new_tokens"),
        ("max_steps", "steps"),
        ("epsilon", "eps"),
        ("lora_r", "lora"),
        ("lora_rank", "lora"),
        ("warmup_ratio", "lr_warmup"),
        ("warmup_steps", "lr_warmup"),
        ("lr_scheduler_type", "lr_schedule"),
        ("save_steps", "save_every"),
        ("eval_steps", "eval_every"),
        ("report_to", "log"),
        ("use_vllm", "engine"),
        ("early_stopping_patience", "patience"),
        ("load_best_model_at_end", "product"),
        ("actor_rollout_ref.rollout.n", "n"),
        ("data.train_batch_size", "prompts"),
    ],
)
def test_a_word_of_others_is_answered_by_ours(word: str, ours: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line, in YAML and in Python."""
    dashed = word if "." in word else f"--{word.replace('_', '-')}"
    assert main(["train", "grpo", f"--{word}", "3"]) == 2
    assert f"there is no {dashed}; in burnish: --{ours.replace('_', '-')}" in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf"^there is no {word}; in burnish: {ours}\b") as caught:
        burnish.train("grpo", **{word: 3})
    assert "\n" not in str(caught.value)


def test_a_yaml_file_with_a_word_of_others_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "theirs.yaml").write_text("method: dpo\nper_device_train_batch_size: 4\n")
    assert main(["train", str(tmp_path / "theirs.yaml")]) == 2
    assert "there is no per_device_train_batch_size; in burnish: prompts (tasks per step" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train grpo --logging-steps 1", "in burnish: every step is recorded in the run store"),
        ("train grpo --lora-alpha 32", "--lora-alpha is about LoRA adapters, but there is no --lora; add --lora 16"),
        ("train grpo --use-dora true", "there is no --use-dora; in burnish: --lora-variant (rslora or dora)"),
        ("train sft --num-generations 8", "in burnish: --n, which sft does not have"),
        ("train grpo data.train_batch_size=64", "there is no data.train_batch_size; in burnish: --prompts"),
        ("train actor_rollout_ref.rollout.n=8", "there is no actor_rollout_ref.rollout.n; in burnish: --n"),
        ("eval tiny --dataset x", "burnish eval: there is no --dataset; in burnish: --task"),
    ],
)
def test_other_answers(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_the_table_names_options_that_exist() -> None:
    """Every counterpart is an option of every run, of some method, or of the command; no word has two entries."""
    ours = {*Options.__dataclass_fields__, "resume", "tasks"}
    ours |= {name for entry in METHODS.values() for name in method_fields(entry)}
    named = {one for key in COUNTERPARTS for one in key.partition(" ")[0].split("|")}
    assert named <= ours
    theirs = [word for words in COUNTERPARTS.values() for word in words.split()]
    assert len(theirs) == len(set(theirs)) and len(table()) > 250
    reasons = [word for words in WITHOUT.values() for word in words.split()]
    assert len(reasons) == len(set(reasons))


def test_our_own_options_are_never_taken_for_a_word_of_others() -> None:
    for name, entry in METHODS.items():
        known = {*method_fields(entry), *Options.__dataclass_fields__}
        assert not [option for option in known if answer(option, known, method=name)]
    assert configure(find("grpo"), "grpo", {"n": 4}).arguments["n"] == 4
