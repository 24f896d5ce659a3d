"""Process reward models: how they are trained, saved and used as rewards of replies and of tokens."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, make_model
from conftest import scoring_model as with_head
from guards import guards
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.task import Task
from burnish.core.types import Clock, Group
from burnish.draw.labelled import labelled_steps
from burnish.learn.term import Live
from burnish.learn.terms.process import step_chance, step_regression
from burnish.methods.table import find
from burnish.models.load import load_chat
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.read import named_rewards, split_rewards
from burnish.rollout.given_steps import given_steps, joined
from burnish.score.process import centred_chance, chance, number, sign
from burnish.score.segments import segmentation, step_ends
from burnish.tasks.data.preferences import ranked
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored

pytestmark = guards("score", "rewards")

TASK = source("sort")


@pytest.fixture(scope="module")
def scoring_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a head of one output, and the tokenizer of `small_model`."""
    return with_head(make_model(tmp_path_factory.mktemp("prm"), seed=3))


def groups_of(reward: str, method: str, model: Path) -> tuple[dict[str, float], list[Group]]:
    """One step of a method with this reward alone."""
    functions, scorers = split_rewards(read_rewards(reward))
    assert not functions
    task = unscored(TASK)
    built = with_scorers(find(method).build(task, n=2), named_rewards(scorers, task), [])
    report = next(loop(built, build_cast(built, model), SMALL, steps=1))
    return report.metrics, report.groups["main"]


def heads(groups: list[Group], scoring: Path, steps: str | int) -> list[tuple[list[int], Tensor]]:
    """The ends of steps and the head of the model there, by transformers itself, one reply at a time."""
    model = AutoModelForSequenceClassification.from_pretrained(scoring, trust_remote_code=False).eval()
    chat, found = load_chat(scoring), []
    for trace in (trace for group in groups for trace in group.traces):
        ends = step_ends(trace, segmentation(steps), chat)
        with torch.no_grad():
            states = model.model(trace.tokens[None]).last_hidden_state[0]
            found.append((ends, model.score(states)[ends, 0]))
    return found


def test_a_reply_is_scored_by_its_worst_step(small_model: Path, scoring_model: Path) -> None:
    _, groups = groups_of(f"prm({scoring_model}, min, steps=3)*2", "grpo", small_model)
    traces = [trace for group in groups for trace in group.traces]
    for trace, (ends, head) in zip(traces, heads(groups, scoring_model, 3), strict=True):
        assert len(ends) > 1 or len(trace.turns[1]) <= 3
        assert trace.scores["reward/prm"] == pytest.approx(float(head.sigmoid().min()), abs=1e-5)
        assert trace.scores["reward"] == pytest.approx(2 * trace.scores["reward/prm"])


def test_one_step_is_an_outcome_reward(small_model: Path, scoring_model: Path) -> None:
    """steps=whole: the sigmoid of what rm(...) says, whatever the aggregate."""
    for aggregate in ("min", "prod", "last", "mean"):
        _, groups = groups_of(f"prm({scoring_model}, {aggregate}, steps=whole)", "grpo", small_model)
        _, outcome = groups_of(f"rm({scoring_model})", "grpo", small_model)
        for trace, other in zip(groups[0].traces, outcome[0].traces, strict=True):
            expected = 1 / (1 + math.exp(-other.scores["reward/rm"]))
            assert trace.scores["reward/prm"] == pytest.approx(expected, abs=1e-5)


def test_delta_and_clip_stand_on_the_tokens_that_end_steps(small_model: Path, scoring_model: Path) -> None:
    metrics, groups = groups_of(f"prm_clip_delta({scoring_model}, limit=0.6, steps=3)*0.5", "ppo", small_model)
    _, plain = groups_of("success*0", "ppo", small_model)
    traces = [trace for group in groups for trace in group.traces]
    before = [trace for group in plain for trace in group.traces]
    total = 0.0
    for trace, old, (ends, head) in zip(traces, before, heads(groups, scoring_model, 3), strict=True):
        clipped = [min(float(p) - 0.6, 0.0) for p in head.sigmoid()][:-1]
        expected = torch.zeros(len(trace))
        for k, end in enumerate(ends[:-1]):
            expected[end] = clipped[k] - (clipped[k + 1] if k + 1 < len(clipped) else 0.0)
        gained = trace.streams["reward"] - old.streams["reward"]
        mask = trace.by("policy")
        assert torch.allclose(gained[mask], 0.5 * expected[mask], atol=1e-5)
        total += float(expected.sum())
    assert metrics["dense/prm_clip_delta"] == pytest.approx(total / len(traces), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "read", "answers"),
    [("prm_steps", centred_chance, 0), ("prm_delta", chance, 1), ("prm_per_line", centred_chance, 0)],
)
def test_a_method_without_token_rewards_adds_the_sum(
    name: str, read: object, answers: int, small_model: Path, scoring_model: Path
) -> None:
    _, groups = groups_of(f"{name}({scoring_model}, steps=3)", "grpo", small_model)
    traces = [trace for group in groups for trace in group.traces]
    for trace, (_, head) in zip(traces, heads(groups, scoring_model, 3), strict=True):
        scores = read(head).tolist()  # type: ignore[operator]
        process = scores[: len(scores) - answers]
        expected = {
            "prm_steps": sum(process),
            "prm_delta": process[0] if process else 0.0,
            "prm_per_line": sum(process) / len(process) if process else 0.0,
        }[name]
        assert trace.scores["reward"] == pytest.approx(expected, abs=1e-5)


def test_weight_0_leaves_the_success_reward(small_model: Path, scoring_model: Path) -> None:
    _, groups = groups_of(f"success,prm_delta({scoring_model})*0", "ppo", small_model)
    _, plain = groups_of("success", "ppo", small_model)
    for trace, other in zip(groups[0].traces, plain[0].traces, strict=True):
        assert trace.scores["reward"] == other.scores["reward"] == trace.scores["correct"]
        assert torch.equal(trace.streams["adv"].nan_to_num(), other.streams["adv"].nan_to_num())


def test_a_model_with_another_tokenizer_is_refused(small_model: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    swapped = text.replace('"a": ', '"\u0001": ').replace('"b": ', '"a": ').replace('"\u0001": ', '"b": ')
    assert swapped != text
    (other / "tokenizer.json").write_text(swapped)
    model = AutoModelForSequenceClassification.from_pretrained(other, num_labels=1, trust_remote_code=False)
    model.save_pretrained(other)
    with pytest.raises(ValueError, match="another tokenizer than the policy"):
        groups_of(f"prm({other})", "grpo", small_model)


def test_how_heads_are_read() -> None:
    head = torch.tensor([0.0, 2.0, -2.0])
    assert chance(head).tolist() == pytest.approx([0.5, 0.880797, 0.119203], abs=1e-6)
    assert centred_chance(head).tolist() == pytest.approx([0.0, 0.761594, -0.761594], abs=1e-6)
    assert sign(head).tolist() == [-1.0, 1.0, -1.0] and torch.equal(number(head), head)


def live_of(score: list[float], label: list[float]) -> Live:
    none = torch.zeros(0)
    return Live(
        outputs={"score": torch.tensor(score)},
        streams={"label": torch.tensor(label)},
        row=torch.zeros(len(score)).long(),
        rows=1,
        pairs=none,
        lists=[],
        group=none,
        clock=Clock(0, 1),
    )


def test_the_losses_of_steps_by_hand() -> None:
    """p = 0.8 and label 1: -log 0.8 = 0.223144; soft label 0.25: -0.25 log 0.8 - 0.75 log 0.2 = 1.262864.
    Regression of 0.5 to -1: 2.25."""
    logit = math.log(0.8 / 0.2)
    live = live_of([logit, logit], [1.0, 0.25])
    assert step_chance().loss(live).tolist() == pytest.approx([0.223144, 1.262864], abs=1e-6)
    assert live.noted["accuracy"][0].tolist() == [1.0, 0.0]
    assert step_regression().loss(live_of([0.5], [-1.0])).tolist() == [2.25]


def test_steps_are_joined_and_end_where_their_text_ends(small_model: Path) -> None:
    assert joined(["a", "bc"], "\n") == ("a\nbc", [2, 4]) and joined(["a"], "\n") == ("a", [1])
    method = find("process_reward_model").build(TASK)
    models = build_cast(method, small_model)
    task = Task("demo", "q", {"steps": ["ab", "", "cd", "e"], "labels": [1, 0.5, None, 0], "separator": "\n"}, "q")
    step = Step(Clock(0, 1), models, SMALL)
    (group,) = given_steps(reader="prm").call([task], step)
    (trace,) = group.traces
    at = len(trace.turns[0])
    assert models["prm"].chat.text(trace.turns[1].tokens) == "ab\n\ncd\ne"
    assert trace.note["ends"] == [at + 2, at + 3, at + 6, len(trace) - 1]
    (group,) = method.phases[0].credit.call([group], step)
    label = trace.streams["label"]
    assert label[trace.note["ends"]].nan_to_num(-1).tolist() == [1.0, 0.5, -1.0, 0.0]
    assert trace.streams["claim:step"].nonzero()[:, 0].tolist() == [at + 2, at + 3, len(trace) - 1]
    task.given["labels"] = [1, -1, None, -1]
    (group,) = method.phases[0].credit.call([group], step)
    found = group.traces[0].streams["label"][trace.note["ends"]].nan_to_num(-9).tolist()
    assert found == [1.0, 0.0, -9.0, 0.0], "signed labels: right and wrong"
    task.given["labels"] = [-1, 0.5, None, 0]
    with pytest.raises(ValueError, match="the label -1; labels of steps are between 0 and 1"):
        method.phases[0].credit.call([group], step)
    merged = Task("demo", "q", {"steps": ["ab", "", "cd"], "labels": [1, 1, 1], "separator": ""}, "q")
    with pytest.raises(ValueError, match="one token ends two of its steps"):
        given_steps(reader="prm").call([merged], step)


def test_labels_of_data_keep_their_numbers() -> None:
    steps = {"responses": ["a", "b", "c"], "labels": [0, 1.0, True]}
    assert ranked(steps, "row 1")["labels"] == [False, True, True]
    assert ranked({**steps, "labels": [0.25, -1, None]}, "row 1")["labels"] == [0.25, -1.0, None]
    with pytest.raises(ValueError, match="row 1: the label 'good' of a step is no boolean and no number"):
        ranked({**steps, "labels": ["good", 1, 1]}, "row 1")


def test_a_task_with_right_and_wrong_replies_trains_an_outcome_model(small_model: Path) -> None:
    draw = labelled_steps(TASK)
    models = build_cast(find("process_reward_model").build(TASK), small_model)
    tasks = [task for k in range(8) for task in draw.call(Step(Clock(k, 8), models, SMALL))]
    labels = [task.given["labels"] for task in tasks]
    assert {len(own) for own in labels} == {1} and {own[0] for own in labels} == {True, False}
    for task in tasks:
        assert TASK.verify(task, task.given["steps"][0]).correct == task.given["labels"][0]
