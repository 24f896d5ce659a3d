"""Prompts that a run makes of others (eva, SeRL): numbers by hand, what they are without their idea, filters, state."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast
from guards import guards
from judge_server import serving

from burnish.compose.curricula import drawn
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.task import MADE_FROM, Task, Verdict
from burnish.core.types import Clock, Group, Trace, Turn
from burnish.draw.evolve import Pool, in_proportion, informativeness
from burnish.draw.made import made_task, request_of
from burnish.judges import rewrites
from burnish.methods.table import find
from burnish.run.pipeline import require_pipelined
from burnish.score.majority import agreement, majority
from burnish.tasks.source import Source
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.verifiers.final_answer import same_answer
from burnish.zoo.serl import between

pytestmark = guards("draw")


def group_of(*rewards: float, key: str = "x") -> Group:
    turn = Turn(torch.tensor([1]), "policy")
    task = Task("question", ({"role": "user", "content": key},), {}, key)
    return Group(task, [Trace((turn,), i, {"reward": reward}) for i, reward in enumerate(rewards)])


def step_of() -> Step:
    return Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------------ eva


def test_informativeness_is_the_range_of_the_rewards() -> None:
    """(.2, .9) and (.5, .5): info .7 and 0, so the first is drawn always and the second never."""
    pool, step = Pool(), step_of()
    informativeness(pool).call([group_of(0.2, 0.9, key="a"), group_of(0.5, 0.5, key="b")], step)
    assert {key: info for key, (_, info) in pool.seen.items()} == {"a": pytest.approx(0.7), "b": 0.0}
    assert step.notes.means()["informativeness"] == pytest.approx(0.35)
    weights = {key: info for key, (_, info) in pool.seen.items()}
    assert all(in_proportion(weights, 2, random.Random(i).random) == ["a"] for i in range(20))


def test_prompts_are_drawn_in_proportion_and_uniformly_if_all_are_alike() -> None:
    dice = random.Random(0)
    first = Counter(in_proportion({"a": 3.0, "b": 1.0}, 1, dice.random)[0] for _ in range(4000))
    assert first["a"] / 4000 == pytest.approx(0.75, abs=0.03)
    alike = Counter(in_proportion({"a": 0.4, "b": 0.4}, 1, dice.random)[0] for _ in range(4000))
    assert alike["a"] / 4000 == pytest.approx(0.5, abs=0.03)


def test_what_an_answer_says_as_a_prompt() -> None:
    assert rewrites.new_prompt('New prompt: "Sort 3 1 2 down"') == "Sort 3 1 2 down"
    assert rewrites.new_prompt("4. Add 2 and 3") == "Add 2 and 3"
    assert rewrites.new_prompt("12+3=?") == "12+3=?"
    assert rewrites.new_prompt(" sort  UP: a ", "Sort up: a") is None
    assert rewrites.new_prompt("[prompt end 3fa]\nmore") is None and rewrites.new_prompt("...") is None
    assert rewrites.says_unequal("I think: **Not Equal**.") is True and rewrites.says_unequal("Equal") is False
    assert rewrites.says_unequal("perhaps") is None


def test_a_made_task_keeps_the_messages_before_it_and_no_answer() -> None:
    task = Task(
        "question",
        ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}),
        {"answer": "4", "dataset": "sums"},
        "sum 4",
    )
    made = made_task(task, "2+2+2?")
    assert [message["content"] for message in made.prompt] == ["Be brief.", "2+2+2?"]  # type: ignore[index]
    assert made.given == {MADE_FROM: "sum 4", "dataset": "sums"} and made.key != task.key
    assert request_of(made) == "2+2+2?" and made_task(task, "2+2+2?").key == made.key


def weights_after(method: Method, model: Path, steps: int = 3, **more: Any) -> tuple[torch.Tensor, list[dict]]:
    models = build_cast(method, model)
    reports = list(loop(method, models, replace(SMALL, **more), steps=steps))
    flat = torch.cat([p.detach().flatten() for p in models["policy"].module.parameters()])
    return flat, [report.metrics for report in reports]


def coins() -> Source:
    return rewarded(source("sort:1"), lambda completions: [float(len(text) % 2) for text in completions])


@pytest.mark.parametrize("text", ["eva(every=1, evolved=0, words=brief)", "serl(generated=0, words=brief)"])
def test_without_prompts_of_its_own_a_curriculum_changes_nothing(text: str, small_model: Path) -> None:
    task = coins()
    plain = weights_after(find("grpo").build(task, n=4), small_model)[0]
    assert torch.equal(plain, weights_after(drawn(find("grpo").build(task, n=4), text, task), small_model)[0])


def test_eva_without_evolved_prompts_is_online_dpo(small_model: Path) -> None:
    task = coins()
    off = {"n": 4, "evolved": 0.0, "every": 1, "words": "brief", "creator": "policy(max_tokens=4)"}
    plain = weights_after(find("online_dpo").build(task, n=4), small_model)[0]
    assert torch.equal(plain, weights_after(find("eva").build(task, **off), small_model)[0])


def test_serl_without_its_prompts_and_filter_is_reinforce_pp_on_the_majority(small_model: Path) -> None:
    task = coins()
    plain = find("reinforce_pp").build(task, n=4, beta=1e-4)
    voted = replace(plain, phases=(replace(plain.phases[0], score=majority()),))
    off = find("serl").build(task, n=4, generated=0.0, low=0.0, high=1.0)
    assert torch.equal(weights_after(voted, small_model)[0], weights_after(off, small_model)[0])


def rewriter(body: dict[str, Any]) -> str:
    """Answers each question with another list to sort."""
    dice = random.Random(json.dumps(body["messages"]))
    return "Sort up: " + " ".join(dice.sample("abcdefghijk", 4))


@pytest.mark.parametrize("text", ["eva(creator={}, every=1, variants=2)", "serl(writer={}, similar=0.99)"])
def test_prompts_from_an_endpoint_are_drawn_and_resume(text: str, small_model: Path, tmp_path: Path) -> None:
    """Shares are metrics, prompts of the run come into the batches, and a second half from the stored state is the
    same as without a stop."""
    task = coins()
    with serving(rewriter) as server:
        who = text.format(f"endpoint({server.url}, m, cache={tmp_path})")
        method = drawn(find("grpo").build(task, n=4), who, task)
        models = build_cast(method, small_model)
        walk = loop(method, models, SMALL, steps=4)
        reports = [next(walk), next(walk)]
        stored = json.loads(json.dumps({name: item.state_dict() for name, item in method.stateful().items()}))
        again = drawn(find("grpo").build(task, n=4), who, task)
        for name, item in again.stateful().items():
            item.load_state_dict(stored[name])
        assert {name: item.state_dict() for name, item in again.stateful().items()} == stored
        clock = Clock(2, 4)
        first, second = (one.phases[0].draw.call(Step(clock, models, SMALL)) for one in (method, again))
        assert [(task.key, task.prompt) for task in first] == [(task.key, task.prompt) for task in second]
    own, given = ("draw/evolved", "draw/original") if "eva" in text else ("draw/generated", "draw/seed")
    assert reports[0].metrics[own] == 0.0 and reports[0].metrics[given] == 1.0
    assert reports[0].metrics["draw_made"] > 0 and reports[1].metrics[own] > 0
    assert reports[1].metrics[own] + reports[1].metrics[given] == pytest.approx(1.0)
    assert any(MADE_FROM in task.given for task in first)


def test_prompts_of_the_run_are_scored_by_the_majority_where_the_verifier_cannot_know_them(small_model: Path) -> None:
    task = source("sort:1")
    who = "policy(temperature=1, max_tokens=6)"
    method = drawn(find("rloo").build(task, n=4), f"eva(creator={who}, every=1, evolved=1, words=brief)", task)
    pool = method.stateful()["eva"]
    assert isinstance(pool, Pool)
    row = task.task("train", 0)
    pool.evolved = [made_task(row, "Sort up: b a")]
    models = build_cast(method, small_model)
    report = next(loop(method, models, SMALL, steps=1))
    traces = [trace for group in report.groups["main"] for trace in group.traces]
    assert report.metrics["draw/evolved"] == 1.0 and 0 < report.metrics["majority_share"] <= 1
    assert all("reward" in trace.scores and "correct" not in trace.scores for trace in traces)


def test_what_cannot_be_made_anew_is_refused() -> None:
    games = source("guess")
    with pytest.raises(ValueError, match="is a game, whose prompts cannot be made anew"):
        drawn(find("gigpo").build(games), "eva", games)
    task = coins()
    with pytest.raises(ValueError, match="dpo does not draw prompts, so eva cannot draw them"):
        drawn(find("dpo").build(task), "eva", task)
    with pytest.raises(ValueError, match="between 1 and 10"):
        drawn(find("grpo").build(task), "eva(variants=11)", task)
    with pytest.raises(ValueError, match="asks a model for prompts after each step; leave out --lag"):
        require_pipelined(drawn(find("grpo").build(task), "serl", task), 1, 4)
    with pytest.raises(ValueError, match="no mean score is between"):
        between(0.8, 0.2)


# ----------------------------------------------------------------------------------------------------------------- SeRL


def test_agreement_with_the_largest_class() -> None:
    """4, 4, 5, 4: 1, 1, 0, 1. Of an agreement that is not transitive, the row with most hits counts."""
    assert agreement(["4", "4", "5", "4"]) == [1, 1, 0, 1]
    assert agreement(["4", "4.0", "", "5"]) == [1, 1, 0, 0] and agreement(["", ""]) == [0, 0]
    near = lambda a, b: abs(int(a) - int(b)) <= 1  # noqa: E731
    assert agreement(["1", "2", "3", "9"], near) == [1, 1, 1, 0], "2 agrees with 1 and 3, which do not agree"
    assert agreement(["7", "8"], same_answer) == [1, 0], "of equal classes the first"


def test_prompts_of_middle_difficulty_stay() -> None:
    """Mean rewards 3/4, 1 and 0: the first is in [.2, .8]."""
    groups = [group_of(1, 1, 0, 1), group_of(1, 1, 1, 1), group_of(0, 0, 0, 0)]
    step = step_of()
    kept = between(0.2, 0.8).call(groups, step)
    assert kept == groups[:1] and all("between" in trace.tags for trace in kept[0].traces)
    assert step.notes.means()["dropped/difficulty"] == pytest.approx(2 / 3)


def test_similar_long_and_unfit_prompts_are_dropped() -> None:
    """The longest common subsequence of "sort these five words" and "sort these six words" is 3: F1 = 3/4."""
    others = [["sort", "these", "five", "words"]]
    assert rewrites.too_similar("Sort these six words", others, 0.7)
    assert not rewrites.too_similar("Sort these six words", others, 0.75)
    assert not rewrites.fit_for_text("Add these", 3, 150) and rewrites.fit_for_text("Add these two", 3, 150)
    assert not rewrites.fit_for_text("Describe the picture above", 3, 150)
    assert not rewrites.fit_for_text("- add these two", 3, 150)


def test_a_verdict_of_an_unscored_source_for_a_prompt_of_the_run() -> None:
    from burnish.tasks.task_set import unscored

    task = source("sort:1")
    row = task.task("train", 0)
    made = made_task(row, "Sort up: b a")
    known, unknown = unscored(task).verdicts([row, made], [row.given["demo"]] * 2)
    assert known.correct and unknown == Verdict(0.0, False)
