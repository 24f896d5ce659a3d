"""Rewards and shapes by name, whoever wrote the replies: past policies, the reference, mixtures, the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, make_model, scoring_model
from judge_server import serving
from test_judge_scorers import at, judging

from burnish.compose.rewards import with_scorers
from burnish.compose.writers import for_writer
from burnish.core.loop import run_phase
from burnish.core.method import Method
from burnish.core.parts import Part
from burnish.core.scorer import is_failed
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.learn.learn import Learn
from burnish.methods.table import find
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.read import named_rewards, named_shapes, split_rewards
from burnish.score.reading import end_scores
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored

TASK = unscored(source("sort"))
WRITERS = {  # method -> who writes the replies that it scores
    **dict.fromkeys(("ipo_md",), "mixture"),
    **dict.fromkeys(("rso", "lipo", "nca_rewards", "exo_rewards"), "ref"),
    **dict.fromkeys(("pro", "tpo"), "start"),
    **dict.fromkeys(("semi_online_dpo", "online_iterative_dpo", "dpo_vp", "sppo", "inpo", "mnpo", "dno"), "past"),
    **dict.fromkeys(("dno_soft", "accelerated_po", "selm", "brain"), "past"),
    **dict.fromkeys(("online_dpo", "nash_md", "xpo"), "policy"),
}
OPTIONS = {"rso": {"n": 4}}


def with_rewards(name: str, rewards: str = "", shapes: str = "") -> Method:
    built = find(name).build(TASK, **OPTIONS.get(name, {}))
    scorers = named_rewards(split_rewards(read_rewards(rewards))[1], TASK) if rewards else []
    return with_scorers(built, scorers, named_shapes(shapes, TASK) if shapes else [])


def scored(method: Method, model: Path) -> tuple[list[Group], Step]:
    """The groups of the first phase after its score stage."""
    phase = replace(method.phases[0], select=(), credit=(), learn=Learn())
    step = Step(Clock(0, 10), build_cast(method, model), SMALL)
    return run_phase(phase, step, {}, []), step


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("writers"))


@pytest.mark.parametrize("name", WRITERS)
def test_a_reward_model_scores_the_replies_of_any_author(name: str, small: Path) -> None:
    """scores["reward"] is the weight times what the model says at the end of each reply, whose author stays."""
    method = with_rewards(name, f"rm({scoring_model(small)})*0.5", "overlong(0.5)")
    groups, step = scored(method, small)
    traces = [trace for group in groups for trace in group.traces]
    assert traces and WRITERS[name] in {author for trace in traces for author in trace.authors()}
    assert not any(map(is_failed, traces))
    found = end_scores(traces, step.models["rm"], 10_000)
    shape = "reward/overlong"
    for trace, score in zip(traces, found, strict=True):
        assert trace.scores["reward/rm"] == pytest.approx(float(score), abs=1e-4)
        own = 0.5 * float(score) + trace.scores.get(shape, 0.0)
        assert trace.scores["reward"] == pytest.approx(own, abs=1e-4)
    assert any(abs(trace.scores["reward/rm"]) > 1e-3 for trace in traces)


@pytest.mark.parametrize("name", ["sppo", "lipo", "ipo_md", "tpo"])
def test_judges_and_steps_read_them(name: str, small: Path) -> None:
    with serving(judging(lambda blocks: "Score: 7")) as server:
        groups, _ = scored(with_rewards(name, f"rubric({at(server)})"), small)
        assert server.requests
    traces = [trace for group in groups for trace in group.traces]
    assert not any(map(is_failed, traces))
    grades = {round(trace.scores["reward"], 6) for trace in traces}
    assert round(6 / 9, 6) in grades and grades <= {round(6 / 9, 6), 0.0}, "replies without content have 0"
    groups, _ = scored(with_rewards(name, f"prm({scoring_model(small)}, min, steps=2)"), small)
    assert all(0 < trace.scores["reward"] < 1 for group in groups for trace in group.traces)


def test_a_part_sees_the_policy_and_writes_on_the_trace() -> None:
    """Traces of one other author are shown as the policy's; of several, or of the policy, as they are."""
    prompt = Turn(torch.tensor([1, 2]), "task")

    def turn(author: str, before: Turn) -> Turn:
        return Turn(torch.tensor([5, 6, 7]), author, parent=before)

    past, again = turn("past", prompt), Turn(torch.tensor([9]), "env")
    traces = [
        Trace((prompt, past)),
        Trace((prompt, past, again, turn("past", again))),
        Trace((prompt, turn("policy", prompt))),
        Trace((prompt, turn("guide", prompt), turn("policy", prompt))),
    ]
    seen: list[tuple[tuple[str, ...], ...]] = []

    def call(groups: list[Group], step: Step) -> list[Group]:
        (group,) = groups
        seen.append(tuple(tuple(turn.author for turn in trace.turns) for trace in group.traces))
        assert group.traces[0].turns[1] is group.traces[1].turns[1], "a shared turn is shared"
        for trace in group.traces:
            trace.streams["dense/x"] = trace.by("policy").float()
            trace.scores["reward/x"] = float(trace.by("policy").sum())
            trace.tags = trace.tags | {"seen"}
        group.traces = group.traces[::-1][:3]
        return groups

    part = for_writer(Part(name="x", call=call, reads=frozenset({"tokens:policy", "model:rm.score"})), "past")
    assert part.reads == {"tokens:past", "model:rm.score"}
    (group,) = part.call([Group(Task("question", "?", {}, "k"), list(traces))], None)  # type: ignore[arg-type]
    task = ("task",)
    assert seen == [
        ((*task, "policy"), (*task, "policy", "env", "policy"), (*task, "policy"), (*task, "guide", "policy"))
    ]
    assert group.traces == traces[::-1][:3], "the traces themselves, without the one that the part dropped"
    assert [trace.scores["reward/x"] for trace in group.traces] == [3, 3, 6]
    assert all("seen" in trace.tags for trace in group.traces)
    assert traces[1].turns[1] is past and traces[1].authors() == ("task", "past", "env")


def test_what_the_data_scores_is_not_scored_again() -> None:
    for name in ("dpo", "kto"):
        with pytest.raises(ValueError, match="does not score sampled replies"):
            with_scorers(find(name).build(source("sort")), [], named_shapes("overlong(0.5)", source("sort")))
