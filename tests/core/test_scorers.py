"""Scorers by name: how they are read, where they stand in a method, what becomes of failures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import OF_THE_RUN, SMALL, build_cast, make_model
from transformers import AutoModelForSequenceClassification

from burnish.compose.rewards import with_scorers
from burnish.core.call_syntax import Call, read_call, split_outside
from burnish.core.loop import loop
from burnish.core.method import Method, Part, frozen
from burnish.core.scorer import Named, Scorer, mark_failed
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.methods.table import METHODS, find
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.rewards.read import named_rewards, named_shapes, split_rewards
from burnish.rewards.table import load_scorers
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored
from burnish.verifiers.table import load_verifiers

TASK = source("sort")


def constant(name: str, value: float) -> Scorer:
    """A reward that gives every reply the same score."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            trace.scores[f"reward/{name}"] = value
        return groups

    return Scorer(part=Part(name=name, call=call, writes=frozenset({f"score:reward/{name}"})))


def dense(name: str, value: float) -> Scorer:
    """A reward of `value` at every token of the policy."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            mask = trace.by("policy")
            trace.streams[f"dense/{name}"] = torch.where(mask, value, math.nan)
        return groups

    return Scorer(part=Part(name=name, call=call, writes=frozenset({f"stream:dense/{name}"})), dense=True)


def halved() -> Scorer:
    """A shape that halves the reward."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            trace.scores["reward"] /= 2
        return groups

    reads = frozenset({"score:reward"})
    return Scorer(part=Part(name="halved", call=call, reads=reads, updates=reads))


def one_step(method: Method, model: Path) -> tuple[dict[str, float], list[Group]]:
    report = next(loop(method, build_cast(method, model), SMALL, steps=1))
    return report.metrics, report.groups["main"]


def test_a_call_is_read_with_its_arguments() -> None:
    assert read_call("f1") == Call("f1")
    assert read_call("rm(runs/a/model, weight=0.5, how='min')") == Call(
        "rm", ("runs/a/model",), {"weight": 0.5, "how": "min"}
    )
    assert read_call("file.py:f") is None and read_call("a/b.py:f(2)") is None
    for text in ("a", "a(1, 'b', c=[1, 2])"):
        call = read_call(text)
        assert call is not None and read_call(call.text()) == call


def test_commas_in_brackets_do_not_separate() -> None:
    assert split_outside("a(1, 2)*0.5, b, c('x,y')") == ["a(1, 2)*0.5", "b", "c('x,y')"]
    with pytest.raises(ValueError, match="not closed"):
        split_outside("a(1, b")


def test_rewards_are_split_into_texts_and_scorers() -> None:
    parts = read_rewards("math*2,rm(tiny)*0.5")
    functions, scorers = split_rewards(parts)
    assert [(p.name, p.weight) for p in functions] == [("math", 2.0)]
    assert [(p.name, p.weight) for p in scorers] == [("rm", 0.5)]
    assert read_rewards(",".join(part.text() for part in parts)) == parts


def test_names_of_verifiers_and_scorers_differ() -> None:
    assert not load_verifiers().keys() & load_scorers().keys()


def test_a_verifier_by_name_scores_in_the_sandbox_with_its_reason() -> None:
    reward = make_reward(read_rewards("math"))
    right, wrong = reward(["1+1?", "1+1?"], ["It is 2", "It is 3"], {"answer": ["2", "2"]})
    assert (right.score, right.correct) == (1.0, True)
    assert (wrong.score, wrong.correct, wrong.reason) == (0.0, False, "the answer is '2', not '3'")
    both = make_reward(read_rewards("math,exact*0.5"))(["?"], ["2.0"], {"answer": ["2"]})
    assert both[0].score == 1.0 and both[0].parts == {"math": 1.0, "exact": 0.0}
    with pytest.raises(ValueError, match="needs a column 'answer'"):
        reward(["?"], ["2"], {})
    with pytest.raises(ValueError, match="there is no verifier 'mth'.*did you mean math"):
        make_reward(read_rewards("mth"))
    with pytest.raises(ValueError, match="its options are math"):
        make_reward(read_rewards("math(tolerance=1)"))


def test_rewards_are_added_with_weights_and_shapes_follow(small_model: Path) -> None:
    method = find("grpo").build(unscored(TASK), n=4)
    rewards = [Named("one", constant("one", 1.0), 2.0), Named("two", constant("two", 3.0), 0.5)]
    metrics, groups = one_step(with_scorers(method, rewards, [Named("halved", halved())]), small_model)
    assert {trace.scores["reward"] for group in groups for trace in group.traces} == {(2 * 1 + 0.5 * 3) / 2}
    assert metrics["reward/one"] == 1.0 and metrics["reward/two"] == 3.0 and metrics["reward/halved"] == -1.75


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_token_rewards_count_by_token_or_as_their_sum(name: str, small_model: Path) -> None:
    method = find(name).build(unscored(TASK), n=4)
    changed = with_scorers(method, [Named("each", dense("each", 0.25), 2.0)], [])
    _, groups = one_step(changed, small_model)
    _, before = one_step(method, small_model)
    for trace, old in zip(groups[0].traces, before[0].traces, strict=True):
        mask = trace.by("policy")
        if name == "grpo":
            assert trace.scores["reward"] == pytest.approx(0.5 * int(mask.sum()))
        else:
            gained = trace.streams["reward"][mask] - old.streams["reward"][mask]
            assert torch.allclose(gained, torch.full_like(gained, 0.5), atol=1e-6)


def test_a_method_that_scores_no_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="dpo does not score sampled replies"):
        with_scorers(find("dpo").build(TASK), [Named("one", constant("one", 1.0))], [])


def test_a_second_model_of_one_name_is_refused() -> None:
    method = find("grpo").build(TASK)
    other = replace(constant("one", 1.0), models={"ref": frozen("tiny", outputs=1)})
    with pytest.raises(ValueError, match="brings a model 'ref', and grpo has another"):
        with_scorers(method, [Named("one", other)], [])


@pytest.mark.parametrize("drop", [False, True])
def test_what_cannot_be_scored_costs_itself_alone(drop: bool, small_model: Path) -> None:
    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                trace.scores["reward/some"] = 1.0
            mark_failed(group.traces[0], "it hung")
        return groups

    scorer = Scorer(part=Part(name="some", call=call, writes=frozenset({"score:reward/some"})))
    method = with_scorers(find("grpo").build(unscored(TASK), n=4), [Named("some", scorer)], [], drop)
    metrics, groups = one_step(method, small_model)
    assert metrics["reward_failures"] == SMALL.prompts
    assert [len(group.traces) for group in groups] == [4 - drop] * SMALL.prompts
    expected = [1.0] * 3 if drop else [0.0, 1.0, 1.0, 1.0]
    assert [trace.scores["reward"] for trace in groups[0].traces] == expected


def test_a_reward_model_by_name(tmp_path: Path, small_model: Path) -> None:
    other = make_model(tmp_path / "rm", seed=3)
    scoring = AutoModelForSequenceClassification.from_pretrained(other, num_labels=1, trust_remote_code=False)
    torch.nn.init.normal_(scoring.score.weight)
    scoring.save_pretrained(other)
    functions, scorers = split_rewards(read_rewards(f"rm({other})*0.5"))
    assert not functions
    method = with_scorers(find("grpo").build(unscored(TASK), n=2), named_rewards(scorers, TASK), [])
    assert method.models["rm"].outputs == 1
    _, groups = one_step(method, small_model)
    for trace in groups[0].traces:
        assert trace.scores["reward"] == pytest.approx(0.5 * trace.scores["reward/rm"])
    assert len({trace.scores["reward/rm"] for group in groups for trace in group.traces}) > 1


def test_an_unknown_shape_is_answered() -> None:
    with pytest.raises(ValueError, match=r"no reward shape 'overlon\(2\)'; did you mean overlong"):
        named_shapes("overlon(2)", TASK)
    with pytest.raises(ValueError, match="overlong: buffer' is 2; it must be above 0 and at most 1"):
        named_shapes("overlong(2)", TASK)
    with pytest.raises(ValueError, match="rm is used as --reward rm, not as --shape"):
        named_shapes("rm(tiny)", TASK)


def test_the_version_of_a_scorer_changes_with_its_options() -> None:
    first, again, other = (
        named_shapes(text, TASK)[0].scorer.version for text in ("overlong", "overlong", "overlong(0.3)")
    )
    assert first == again != other and len(first) == 10


def test_every_method_that_verifies_takes_a_shape() -> None:
    taken = 0
    for entry in METHODS.values():
        try:
            method = entry.build(TASK, **{k: v for k, v in entry.trial.items() if k not in OF_THE_RUN})
        except ValueError:
            continue
        atoms = [atom for phase in method.phases for atom in phase.score if atom.name.startswith("verify")]
        if any("tokens:policy" in atom.reads for atom in atoms):
            with_scorers(method, [], named_shapes("overlong(0.5)", TASK))
            taken += 1
    assert taken > 80
