"""Encoders as reward models: a classifier of prompt and reply, and one of two replies, against transformers itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertTokenizer

from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.methods.table import find
from burnish.models.build import Models
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.encoders import filled
from burnish.rewards.read import named_rewards, split_rewards
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored

TASK = unscored(source("sort"))
REPLIES = ["abc", "a long reply of words", "c"]


def bert(path: Path, outputs: int) -> Path:
    """A random BERT whose words are letters."""
    path.mkdir()
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyz?",
        *(f"##{x}" for x in "abcdefgh"),
    ]
    (path / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(vocab=str(path / "vocab.txt")).save_pretrained(path)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=40, num_labels=outputs, initializer_range=0.7,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    torch.nn.init.normal_(model.classifier.weight, std=2.0)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def models(small_model: Path) -> Models:
    return build_cast(find("grpo").build(TASK, n=2), small_model)


def scored(reward: str, models: Models, replies: list[str]) -> list[float]:
    (named,) = named_rewards(split_rewards(read_rewards(reward))[1], TASK)
    chat, task = models["policy"].chat, Task("question", "which?", {}, "k")
    prompt = Turn(chat.prompt(task), "task")
    traces = [Trace((prompt, Turn(chat.reply(text), "policy", parent=prompt)), i) for i, text in enumerate(replies)]
    named.scorer.part.call([Group(task, traces)], Step(Clock(0, 1), models, SMALL))
    return [trace.scores[f"reward/{named.name}"] for trace in traces]


def test_an_encoder_reads_prompt_and_reply_as_two_segments(models: Models, tmp_path: Path) -> None:
    path = bert(tmp_path / "rm", 1)
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(path).eval(),
        AutoTokenizer.from_pretrained(path),
    )
    with torch.no_grad():
        wanted = [float(model(**tokenizer("which?", text, return_tensors="pt")).logits) for text in REPLIES]
    assert scored(f"encoder({path})", models, REPLIES) == pytest.approx(wanted, abs=1e-5)
    assert len({round(x, 3) for x in wanted}) == 3
    assert len(scored(f"encoder({path})", models, ["a b " * 200, "a"])) == 2, "cut to what it can read"


@pytest.mark.parametrize("outputs", [1, 2])
def test_pairs_are_read_in_both_orders(models: Models, tmp_path: Path, outputs: int) -> None:
    """Of two replies the chances add to 1, whatever the model thinks of positions; of three they are means."""
    path = bert(tmp_path / "pairs", outputs)
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(path).eval(),
        AutoTokenizer.from_pretrained(path),
    )

    def p(one: str, other: str) -> float:
        with torch.no_grad():
            found = model(**tokenizer(f"which? a {one} b {other}", return_tensors="pt")).logits[0]
        return float((found[0] if outputs == 1 else found[0] - found[1]).sigmoid())

    form = "form='{prompt} a {first} b {second}'"
    found = scored(f"pair_encoder({path}, {form})", models, REPLIES)
    both = [[(p(a, b) + 1 - p(b, a)) / 2 for b in REPLIES if b != a] for a in REPLIES]
    assert found == pytest.approx([sum(row) / 2 for row in both], abs=1e-5)
    assert p("abc", "c") + p("c", "abc") != pytest.approx(1, abs=1e-3), "it has an opinion of positions"
    assert sum(scored(f"pair_encoder({path}, {form})", models, REPLIES[:2])) == pytest.approx(1)
    assert scored(f"pair_encoder({path}, {form})", models, ["a"]) == [0.5]


def test_what_cannot_score_is_told(models: Models, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 3 outputs, not one"):
        scored(f"encoder({bert(tmp_path / 'three', 3)})", models, ["a"])
    plain = bert(tmp_path / "plain", 1)
    AutoModel.from_pretrained(plain).save_pretrained(plain)
    with pytest.raises(ValueError, match="has no head to score with"):
        scored(f"encoder({plain})", models, ["a"])
    with pytest.raises(ValueError, match="which has no {first}"):
        scored("pair_encoder(x, form='{prompt} {second}')", models, ["a"])
    assert filled("{prompt}|{first}|{second}", prompt="{second}", first="b", second="c") == "{second}|b|c"
