"""Diversity, curiosity, memories and order: numbers derived by hand, and cases that a policy could exploit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL, build_cast, coin
from shaping import a_step, group, said, scorer, shaped, trace

from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop
from burnish.core.types import Task
from burnish.methods.table import find
from burnish.models.build import Models
from burnish.rewards.diversity import PastReplies
from burnish.rewards.memory import Memories, Query, Window, far_from_failures, near_successes
from burnish.rewards.read import named_shapes
from burnish.rewards.temporal import shuffled_task, shuffled_text, well_formed
from burnish.score.maths.similarity import cosines, crowding, embedded
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded


@pytest.fixture(scope="module")
def models(small_model: Path) -> Models:
    return build_cast(find("grpo").build(source("sort")), small_model)


def test_vectors_of_texts() -> None:
    same, other, empty = embedded("the cat sat"), embedded("1+1=2 4 9"), embedded("")
    assert same @ embedded("the cat sat") == pytest.approx(1) and abs(same @ other) < 0.2
    assert not empty.any() and cosines([empty, empty]).tolist() == [[1, 0], [0, 1]]
    assert 0.4 < same @ embedded("the cat sat down") < 1


def test_crowding_by_hand() -> None:
    """Two equal and one orthogonal: 2, 2, 1; opposite vectors count as 0, not as -1."""
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert crowding([a, a, b]) == [2, 2, 1] and crowding([a, -a]) == [1, 1] and crowding([b]) == [1]


def test_dra_by_hand(models: Models) -> None:
    chat = models["policy"].chat
    own = group(said(chat, "xx yy", 1.0), said(chat, "xx yy", 1.0), said(chat, "12 34", 1.0), said(chat, "12 34", 0.0))
    got = shaped("dra", own, models=models)[0]
    assert got == pytest.approx([0.5, 0.5, 0.5, 0], abs=0.05)  # words have almost nothing in common
    lone = shaped("dra", group(said(chat, "xx yy", 1.0)), models=models)[0]
    assert lone == pytest.approx([1], abs=1e-5)
    copies = shaped("dra", group(*(said(chat, "xx yy", 1.0) for _ in range(4))), models=models)[0]
    assert copies == pytest.approx([0.25] * 4, abs=1e-5)  # identical: r / n
    hidden = shaped("dra(embedding=hidden)", group(*(said(chat, "xx yy", 1.0) for _ in range(4))), models=models)[0]
    assert hidden == pytest.approx([0.25] * 4, abs=1e-5)


def test_dra_compares_within_a_prompt_alone(models: Models) -> None:
    chat = models["policy"].chat
    groups = [group(said(chat, "xx yy", 1.0), said(chat, "12 34", 1.0), key=key) for key in "ab"]
    for own in shaped("dra", *groups, models=models):
        assert own == pytest.approx([1, 1], abs=0.06)


def test_copies_lose(models: Models) -> None:
    """1 + 0.3 (1/3 - 1) = 0.8 for three copies."""
    own = group(*(trace(1, tokens=[5, 6]) for _ in range(3)), trace(1, tokens=[5]))
    assert shaped("distinct(0.3)", own)[0] == pytest.approx([0.8, 0.8, 0.8, 1])


def test_curiosity_by_hand(models: Models) -> None:
    """The first batch has no past. Then a copy of the only past reply: BLEU-3..5 and the cosine are 1."""
    chat = models["policy"].chat
    part = scorer("curiosity(bleu=0.5, cosine=0.25, entropy=0)").part
    text = "one two three four five six"
    batches = [group(said(chat, text, 1.0)), group(said(chat, text, 1.0), said(chat, "zzz", 1.0))]
    for own in batches:
        part.call([own], a_step(models))
    assert batches[0].traces[0].scores["reward"] == 1
    copy, new = (t.scores["reward"] for t in batches[1].traces)
    assert copy == pytest.approx(1 - 0.5 - 0.25) and new == pytest.approx(1, abs=0.05)
    surprise = shaped("curiosity(bleu=0, cosine=0, entropy=0.1)", group(trace(1)), models=models)
    assert surprise[0] == pytest.approx([1.05])  # -log pi is 0.5 at every token


def test_the_memory_of_replies_is_a_uniform_sample_and_is_saved() -> None:
    """1,000 numbers, 100 kept: the mean of a uniform sample is 499.5 with a deviation of 29."""
    past = PastReplies(100)
    half = PastReplies(100)
    vector = np.ones(2) / math.sqrt(2)
    for i in range(1000):
        past.add([str(i)], [vector], seed=3)
        if i < 500:
            half.add([str(i)], [vector], seed=3)
    kept = [int(text) for text in past.texts]
    assert len(kept) == 100 and 499.5 - 4 * 29 < sum(kept) / 100 < 499.5 + 4 * 29
    assert past.mean_cosine(vector) == pytest.approx(1)
    again = PastReplies(100)
    again.load_state_dict(json.loads(json.dumps(half.state_dict())))
    for i in range(500, 1000):
        again.add([str(i)], [vector], seed=3)
    assert again.texts == past.texts and again.seen == 1000


def test_memory_bonuses_by_hand() -> None:
    """a = (1, 0), the only success (0, 1): -sqrt 2; a failure at (1, 0): 1 - 1 = 0."""
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    query = Query(a, 9)
    assert near_successes(a, query) is None and far_from_failures(a, query) is None and near_successes(a, None) is None
    query.kept[True].append(b)
    query.kept[False].append(a)
    assert near_successes(a, query) == pytest.approx(-1.414214) and far_from_failures(a, query) == 0
    assert far_from_failures(b, query) == 1


def test_scaling_by_a_window() -> None:
    window = Window(3)
    assert window.scaled([2.0]) == [0]  # one value has no range
    assert window.scaled([4.0, 3.0]) == [1, 0.5]
    assert window.scaled([3.0]) == [0.5] and window.values == [4, 3, 3]
    assert Window(3).scaled([]) == []


def test_memory_r_scores_first_and_remembers_then(models: Models) -> None:
    chat = models["policy"].chat
    part = scorer("memory_r(warmup=0)").part
    first = group(said(chat, "aaa bbb", 1.0), said(chat, "111 222", 0.0))
    part.call([first], a_step(models))
    assert [t.scores["reward"] for t in first.traces] == [1, 0]  # nothing remembered: no bonus, no self-comparison
    second = group(said(chat, "aaa bbb", 1.0), said(chat, "111 222", 0.0))
    part.call([second], a_step(models))
    right, wrong = (t.scores["reward"] for t in second.traces)
    assert right == pytest.approx(1 + 1 + 1)  # nearest to the success, farthest from the failure
    assert wrong == pytest.approx(0)  # and the other way round
    again = scorer("memory_r(warmup=0)").part
    again.state[0].load_state_dict(json.loads(json.dumps(part.state[0].state_dict())))
    results = []
    for one in (part, again):
        third = group(said(chat, "aaa ccc", 0.0), said(chat, "111 aaa", 1.0))
        one.call([third], a_step(models))
        results.append([t.scores["reward"] for t in third.traces])
    assert results[0] == results[1]


def test_memory_r_waits_and_forgets(models: Models) -> None:
    part = scorer("memory_r(warmup=2, queries=2)").part
    for step, key in enumerate("aabc"):
        own = group(trace(1.0, 3), trace(0.0, 5), key=key)
        part.call([own], a_step(models, step))
        if step < 2:
            assert [t.scores["reward"] for t in own.traces] == [1, 0]
    memory = part.state[0]
    assert isinstance(memory, Memories) and list(memory.queries) == ["b", "c"]


def test_formats_of_timehc() -> None:
    for good in ("<answer>x</answer>", "<think>a\nb</think>\n<answer>x</answer>"):
        assert well_formed(good)
    assert well_formed("<social_context_understanding>a</social_context_understanding><answer>x</answer>")
    for bad in (
        "x",
        "<answer></answer>",
        "<answer>a</answer><answer>b</answer>",
        "<think>a</think>",
        "a<answer>x</answer>",
    ):
        assert not well_formed(bad)


def test_timehc_by_hand(models: Models) -> None:
    chat = models["policy"].chat
    own = group(said(chat, "<answer>x</answer>", 1.0), said(chat, "<answer>x</answer>", 0.0), said(chat, "x", 1.0))
    scorer("timehc").part.call([own], a_step(models))
    assert [t.scores["reward/timehc"] for t in own.traces] == [3, -0.5, 1]


def test_stories_are_shuffled_and_questions_stay() -> None:
    text = "one\ntwo\nthree\nwho?"
    for key in range(20):
        found = shuffled_text(text, "\n", 1, key)
        assert found is not None and found != text and found.endswith("\nwho?")
        assert sorted(found.split("\n")) == sorted(text.split("\n"))
    assert shuffled_text("one\nwho?", "\n", 1, 0) is None and shuffled_text("a\na\nwho?", "\n", 1, 0) is None
    chat = Task("question", ({"role": "user", "content": text},), {}, "k")
    copy = shuffled_task(chat, "\n", 1, 0)
    assert copy is not None and copy.key == "k#shuffled" and copy.prompt[0]["content"] != text


@pytest.mark.parametrize(("mu", "bonus"), [(0.0, True), (1e6, False)])
def test_the_temporal_bonus_asks_the_engine_for_a_shuffled_group(mu: float, bonus: bool, small_model: Path) -> None:
    """A random model, the words of the prompt in another order: right replies get the bonus, or nobody does."""
    task = rewarded(source("sort"), coin)
    shapes = named_shapes(f"temporal(0.4, mu={mu}, separator=' ', keep=0)", task)
    method = with_scorers(find("grpo").build(task, n=4), [], shapes)
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    for one in (one for own in report.groups["main"] for one in own.traces):
        assert one.scores["reward"] == pytest.approx(one.scores["correct"] * (1.4 if bonus else 1.0))
    assert 0 < report.metrics["shuffled_accuracy"] < 1
    assert report.metrics["reward/temporal"] == pytest.approx(0.4 * report.metrics["correct"] if bonus else 0)
