"""Steps of replies: where they end in text and in tokens, by several tokenizers; forms of step rewards; labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from burnish.core.types import Trace, Turn
from burnish.models.chat import Chat
from burnish.models.load import load_chat
from burnish.score.prefix_labels import FirstBad, any_right, share_right, soft_value
from burnish.score.segments import is_comment, segmentation, split_text, step_ends, token_ends
from burnish.score.step_rewards import (
    AGGREGATES,
    as_they_are,
    before_answer,
    chained,
    clipped,
    deltas,
    gains,
    per_step,
    place,
)

TEXT = "One plus one, say: 2.\n\nThree? Four; \u00e9t\u00e9 \u4f60\u597d.\nanswer: 3.14 \U0001f600 done"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("lines", ["One plus one, say: 2.\n\n", "Three? Four; \u00e9t\u00e9 \u4f60\u597d.\n"]),
        ("sentences", ["One plus one, say: 2.\n\n", "Three?", " Four; \u00e9t\u00e9 \u4f60\u597d.\n"]),
        ("paragraphs", ["One plus one, say: 2.\n\n"]),
        ("after:plus", ["One plus"]),
        ("whole", []),
    ],
)
def test_text_is_split_and_covered(steps: str, expected: list[str]) -> None:
    found = split_text(TEXT, steps)
    assert "".join(found) == TEXT
    assert found[: len(expected)] == expected and len(found) == len(expected) + 1


def test_sub_sentences_end_at_commas_but_not_inside_numbers() -> None:
    found = split_text("a, b; c: d. 3.14 is pi, no?", "sub_sentences")
    assert found == ["a,", " b;", " c:", " d.", " 3.14 is pi,", " no?"]


@pytest.mark.parametrize(("text", "expected"), [("", [""]), ("\n\n", ["\n\n"]), ("\n\na\n \n", ["\n\na\n \n"])])
def test_space_alone_is_no_step(text: str, expected: list[str]) -> None:
    assert split_text(text, "lines") == expected


@pytest.mark.parametrize("steps", ["sentence", "after:", 0, "-3"])
def test_an_unknown_segmentation_is_refused(steps: str | int) -> None:
    with pytest.raises(ValueError, match="steps is"):
        segmentation(steps)


def trained_bpe(text: str, size: int = 400) -> Any:
    """A byte-level BPE whose merges cross spaces and punctuation, as those of large vocabularies do."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|end|>", "<|user|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator([text] * 5, trainer)
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>", additional_special_tokens=special[1:])


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Chat]:
    return {
        "bytes": load_chat(make_model(tmp_path_factory.mktemp("bytes"))),
        "bpe": Chat(trained_bpe(TEXT)),
        "no merges": Chat(trained_bpe(TEXT, 258)),
    }


@pytest.mark.parametrize("name", ["bytes", "bpe", "no merges"])
@pytest.mark.parametrize("steps", ["lines", "sentences", "sub_sentences", "paragraphs", "after:e"])
def test_a_step_ends_at_the_first_token_that_completes_its_text(name: str, steps: str, chats: dict[str, Chat]) -> None:
    """Compared with the obvious way: decode one token more at a time until the text of the step is there."""
    chat = chats[name]
    tokens = chat.reply(TEXT)
    assert chat.text(tokens) == TEXT
    texts = split_text(TEXT, steps)
    expected = []
    for k in range(len(texts) - 1):
        wanted = "".join(texts[: k + 1])
        expected.append(next(i for i in range(len(tokens)) if chat.text(tokens[: i + 1]).startswith(wanted)))
    found = segmentation(steps)(tokens, chat)
    assert found == list(dict.fromkeys([*expected, len(tokens) - 1]))
    assert found == sorted(set(found))


def test_both_ways_to_find_tokens_agree(chats: dict[str, Chat], monkeypatch: pytest.MonkeyPatch) -> None:
    chat = chats["bpe"]
    tokens, offsets = chat.reply("ab. c d,\ne: f"), [3, 8, 9, 13]
    fast = token_ends(tokens, offsets, chat)
    monkeypatch.setattr(chat.spelling, "pieces", np.array([], dtype=object))
    assert token_ends(tokens, offsets, chat) == fast


def test_a_fixed_number_of_tokens(chats: dict[str, Chat]) -> None:
    tokens = torch.arange(4, 12)
    assert segmentation(3)(tokens, chats["bytes"]) == [2, 5, 7]
    assert segmentation("4")(tokens, chats["bytes"]) == [3, 7]
    assert segmentation(100)(tokens, chats["bytes"]) == [7] == segmentation("whole")(tokens, chats["bytes"])


def test_every_turn_of_the_policy_has_steps(chats: dict[str, Chat]) -> None:
    chat = chats["bytes"]
    prompt, said, env = (Turn(chat.written(t), a) for t, a in (("?", "task"), ("a\nb", "policy"), ("hm\n", "env")))
    trace = Trace((prompt, said, env, Turn(chat.written("c\nd\n"), "policy")))
    assert step_ends(trace, segmentation("lines"), chat) == [2, 3, 8, 10]


def test_comments_say_nothing() -> None:
    assert all(map(is_comment, ["", "  \n", "# why", "  // x", "/* a", " * b"]))
    assert not any(map(is_comment, ["x = 1  # why", "return", "a"]))


def test_forms_of_step_rewards_by_hand() -> None:
    """Clip and delta: PRM 0.9, 0.9, 0.4, then the answer. Delta 0, 0.5, 0.4, 0; clip at 0.8: 0, 0, -0.4, 0; both:
    0 - 0, 0 + 0.4, -0.4, 0. Gains of 0.2, 0.5, 0.4: 0.2, 0.3, -0.1. 1, 1, 0, -1 over 4 lines: 0.25, 0.25, 0, -0.25.
    """
    scores = [0.9, 0.9, 0.4, 0.7]
    assert before_answer(deltas)(scores) == pytest.approx([0.0, 0.5, 0.4, 0.0])
    assert before_answer(clipped(0.8))(scores) == pytest.approx([0.0, 0.0, -0.4, 0.0])
    both = before_answer(chained(clipped(0.8), deltas))(scores)
    assert both == pytest.approx([0.0, 0.4, -0.4, 0.0])
    assert gains([0.2, 0.5, 0.4]) == pytest.approx([0.2, 0.3, -0.1])
    assert per_step([1, 1, 0, -1]) == [0.25, 0.25, 0.0, -0.25]
    assert before_answer(deltas)([0.7]) == [0.0] and before_answer(deltas, 0)([0.7]) == [0.7] == as_they_are([0.7])
    assert before_answer(deltas)([0.6, 0.7]) == [0.6, 0.0]


def test_the_return_of_deltas_is_the_score_whatever_follows() -> None:
    scores = [0.3, 0.8, 0.1, 0.5]
    for k in range(4):
        assert sum(deltas(scores)[k:]) == pytest.approx(scores[k])
        assert sum(deltas([*scores, 0.9, 0.2])[k:]) == pytest.approx(scores[k])
        assert sum(chained(clipped(0.4), deltas)(scores)[k:]) == pytest.approx(min(scores[k] - 0.4, 0))
    assert sum(gains(scores)) == pytest.approx(scores[-1])
    assert sum(per_step(scores * 3)) == pytest.approx(sum(per_step(scores)))
    assert sum(as_they_are(scores * 3)) == pytest.approx(3 * sum(scores))


def test_aggregates_by_hand() -> None:
    found = {name: aggregate([0.9, 0.5, 0.8]) for name, aggregate in AGGREGATES.items()}
    assert found == pytest.approx({"min": 0.5, "prod": 0.36, "last": 0.8, "mean": 0.733333}, abs=1e-6)
    assert [aggregate([0.3]) for aggregate in AGGREGATES.values()] == pytest.approx([0.3] * 4)


def test_rewards_are_placed_at_the_ends_of_steps() -> None:
    stream = place(5, [1, 4], [0.5, -1.0])
    assert stream.isnan().tolist() == [True, False, True, True, False] and stream[[1, 4]].tolist() == [0.5, -1.0]
    assert place(3, [], []).isnan().all()


def test_labels_of_prefixes_by_hand() -> None:
    """One of four right: hard 1, soft 0.25. Half right: (1/eta) log(1 + (e^eta - 1) / 2) is 0.620115 and 0.379885."""
    assert (any_right([0, 0, 1, 0]), share_right([0, 0, 1, 0]), any_right([0, 0])) == (1.0, 0.25, 0.0)
    assert soft_value(1.0)([0, 1]) == pytest.approx(0.620115, abs=1e-6)
    assert soft_value(-1.0)([0, 1]) == pytest.approx(0.379885, abs=1e-6)


def test_the_soft_value_lies_between_all_and_any() -> None:
    outcomes = [1.0, 0.0, 0.0, 0.0]
    assert soft_value(0.0)(outcomes) == share_right(outcomes) == pytest.approx(soft_value(1e-6)(outcomes), abs=1e-5)
    assert soft_value(math.inf)(outcomes) == 1.0 == pytest.approx(soft_value(1e4)(outcomes), abs=1e-3)
    assert soft_value(-math.inf)(outcomes) == 0.0 == pytest.approx(soft_value(-1e4)(outcomes), abs=1e-3)
    for eta in (-3.0, 0.5, 20.0):
        share = 0.25
        assert soft_value(eta)(outcomes) == pytest.approx(math.log(1 + share * math.expm1(eta)) / eta)
        assert soft_value(eta)([1.0, 1.0]) == pytest.approx(1.0) and soft_value(eta)([0.0]) == 0.0


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 33])
def test_binary_search_finds_every_first_bad_step(steps: int) -> None:
    for good in range(steps):
        search, asked = FirstBad(steps, right=False), 0
        while (length := search.ask) is not None:
            assert 0 < length < steps
            search.answer(length <= good)
            asked += 1
        assert search.good == good and asked <= math.ceil(math.log2(steps)) if steps > 1 else not asked
    assert FirstBad(steps, right=True).ask is None and FirstBad(steps, right=True).good == steps
