"""Preference oracles: chances of pairs, by hand; Bradley-Terry bit for bit; methods told of an intransitive game."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, scoring_model
from judge_server import serving
from test_encoders import bert
from test_judge_scorers import at, judging

from burnish.compose.oracle import with_oracle
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.preferences import NOTE, by_bradley_terry, chance, cycles, mean_wins, write_chances
from burnish.core.scorer import ScoringStops, is_failed
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.methods.table import find
from burnish.models.build import Models
from burnish.rewards.oracles import compares, named_oracle
from burnish.rewards.preference_table import read_table
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored

TASK = unscored(source("sort"))
GAME = {"a": {"b": 0.9}, "b": {"c": 0.6}, "c": {"a": 0.8}}
SMALL_TOKENS = torch.tensor([1, 2])
NASH = ("sppo", "inpo", "mnpo", "dno", "dno_soft", "online_ipo", "ipo_md", "nash_md", "nash_ema", "xpo", "lipo")


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("game") / "game.json"
    path.write_text(json.dumps(GAME))
    return path


@pytest.fixture(scope="module")
def models(small_model: Path) -> Models:
    return build_cast(find("grpo").build(TASK, n=2), small_model)


def compared(preference: str, models: Models, replies: list[str], rewards: list[float] | None = None) -> list[Trace]:
    """The traces of these replies after the oracle."""
    oracle = named_oracle(preference, TASK)
    assert oracle is not None
    chat, task = models["policy"].chat, Task("question", "which?", {"answer": "b"}, "k")
    prompt = Turn(chat.prompt(task), "task")
    traces = [Trace((prompt, Turn(chat.reply(text), "policy", parent=prompt)), i) for i, text in enumerate(replies)]
    for trace, reward in zip(traces, rewards or [0.0] * len(traces), strict=True):
        trace.scores["reward"] = reward
    step = Step(Clock(0, 1), models, SMALL)
    oracle.scorer.part.call([Group(task, traces)], step)
    compared.cycles = step.notes.values().get("preference_cycles")  # type: ignore[attr-defined]
    return traces


def chances(traces: list[Trace]) -> list[list[float]]:
    return [trace.note[NOTE]["over"] for trace in traces]


def test_a_table_says_who_beats_whom(models: Models, game: Path) -> None:
    """P(a > .) = (1/2, 0.9, 0.2): a's reward is the mean against the others, (0.9 + 0.2) / 2; x loses to the three."""
    traces = compared(f"table({game})", models, ["a", "b", " c\n", "x"])
    assert chances(traces) == [
        pytest.approx(row) for row in ([0.5, 0.9, 0.2, 1], [0.1, 0.5, 0.6, 1], [0.8, 0.4, 0.5, 1], [0, 0, 0, 0.5])
    ]
    assert [t.scores["reward"] for t in traces] == pytest.approx([2.1 / 3, 1.7 / 3, 2.2 / 3, 0])
    assert compared.cycles == 1 / 4, "of four triples only a, b, c go round"  # type: ignore[attr-defined]
    again = [traces[2], traces[0]]  # what select drops and reorders keeps its chances
    assert chance(again[0], again[1], by_bradley_terry) == 0.8
    same = compared(f"table({game}, unlisted=0.25)", models, ["a", "a", "x"])
    assert chances(same)[0] == [0.5, 0.5, 0.75] and chances(same)[2] == [0.25, 0.25, 0.5]
    assert compared(f"table({game})", models, ["a"])[0].scores["reward"] == 0.5


def test_scores_give_bradley_terry_and_leave_the_reward(models: Models) -> None:
    """s(ln 3) = 3/4; the reward stays, as no comparison of replies took place."""
    traces = compared("bradley_terry", models, ["a", "b"], [1.0986122886681098, 0.0])
    assert chances(traces) == [[0.5, pytest.approx(0.75)], [pytest.approx(0.25), 0.5]]
    assert traces[0].scores["reward"] == 1.0986122886681098
    assert chances(compared("comparison", models, ["a", "b", "c"], [1.0, 0.0, 1.0]))[0] == [0.5, 1.0, 0.5]
    oracles = {name: named_oracle(name, TASK) for name in ("comparison", "bradley_terry")}
    assert not any(compares(oracle) for oracle in oracles.values() if oracle)


def test_a_function_is_asked_in_both_orders(models: Models, tmp_path: Path) -> None:
    """f likes whoever stands first by 0.2: (0.9 + 1 - 0.3) / 2 = 0.8. It gets the columns and the prompts."""
    file = tmp_path / "mine.py"
    file.write_text(
        "def longer(completions, rival, prompts, answer):\n"
        "    assert answer[0] == 'b' and len(prompts) == len(rival)\n"
        "    return [0.9 if len(a) > len(b) else 0.3 for a, b in zip(completions, rival)]\n\n"
        "def wild(completions, rival):\n    return [7.0] * len(rival)\n"
    )
    traces = compared(f"{file}:longer", models, ["abc", "c"])
    assert chances(traces) == [[0.5, pytest.approx(0.8)], [pytest.approx(0.2), 0.5]]
    with pytest.raises(ScoringStops, match="wild returned 7; return the chance"):
        compared(f"{file}:wild", models, ["abc", "c"])


def test_a_pair_model_and_judges_swap_positions(models: Models, tmp_path: Path) -> None:
    encoder = bert(tmp_path / "pair", 1)
    form = "form='{prompt} {first} {second}'"
    one, other = chances(compared(f"pair_rm({encoder}, {form})", models, ["abc", "c"]))
    assert 0 < one[1] < 1 and one[1] != 0.5 and one[1] + other[0] == pytest.approx(1)
    with serving(judging(lambda blocks: "Verdict: -2" if "x" in blocks["A"] else "Verdict: 1")) as server:
        where = at(server).removeprefix("judge=")
        # x first: A is better by 2; x second: B, x, is better by 1: 1/2 + (2 + 1) / 2 / 6
        traces = compared(f"verdicts({where})", models, ["a x", "a y", ":"])
        asked = len(server.requests)
    assert chances(traces)[0] == pytest.approx([0.5, 0.75, 1.0]) and chances(traces)[2] == [0, 0, 0.5]
    assert asked == 2, "a reply without content is not asked about"
    with serving(judging(lambda blocks: "no idea")) as server:
        traces = compared(f"verdicts({at(server).removeprefix('judge=')})", models, ["a x", "a y"])
    assert all(map(is_failed, traces)) and chances(traces)[0] == [0.5, 0.5]
    with pytest.raises(ValueError, match="judge is used as --preference judge, not as --reward"):
        from burnish.reward_functions.resolve import read_rewards
        from burnish.rewards.read import named_rewards, split_rewards

        named_rewards(split_rewards(read_rewards("judge(tiny)"))[1], TASK)


def first_groups(method: Method, model: Path) -> tuple[list[dict[str, float]], dict[str, list[float]]]:
    """Metrics of two steps, and the trained weights."""
    cast = build_cast(method, model)
    metrics = [report.metrics for _, report in zip(range(2), loop(method, cast, SMALL, steps=2), strict=False)]
    return metrics, {name: p.flatten()[:50].tolist() for name, p in cast["policy"].module.named_parameters()}


@pytest.mark.parametrize("name", ["sppo", "online_ipo", "nash_md", "inpo", "xpo"])
def test_bradley_terry_from_scores_is_what_runs_without_an_oracle(name: str, small_model: Path) -> None:
    """Bit for bit: the oracle's chances are those that the method would have made of the reward model's scores."""
    built = find(name).build(TASK, reward_model=str(scoring_model(small_model)))
    oracle = named_oracle("comparison" if name in ("inpo", "xpo") else "bradley_terry", TASK)
    assert first_groups(with_oracle(built, oracle), small_model) == first_groups(built, small_model)


@pytest.mark.parametrize("name", NASH)
def test_every_method_of_preferences_takes_an_oracle(name: str, game: Path, small_model: Path) -> None:
    """The chances of the oracle reach the method's own numbers: replies that the file lists beat all others."""
    built = find(name).build(source("sort"))
    method = with_oracle(built, named_oracle(f"table({game})", TASK))
    phase = method.phases[0]
    assert [part.name for part in phase.score].count("preference(table)") == 1
    group = Group(Task("question", "?", {}, "k"), [Trace((), scores={"reward": r}) for r in (0.3, 0.9)])
    write_chances(group.traces, [[0.5, 1.0], [0.0, 0.5]])
    for part in phase.score:
        if part.name == "win_rates":
            part.call([group], Step(Clock(0, 1), None, SMALL))  # type: ignore[arg-type]
            assert [t.scores["wins"] for t in group.traces] == [0.75, 0.25], "the scores say the opposite"
    if name in ("inpo", "mnpo", "online_ipo", "ipo_md"):
        (part,) = (part for part in phase.credit if part.name == "pair_preference")
        group.pairs = [(1, 0)]
        group.traces = [replace(trace, turns=(Turn(SMALL_TOKENS, "policy"),)) for trace in group.traces]
        part.call([group], Step(Clock(0, 1), None, SMALL))  # type: ignore[arg-type]
        assert group.traces[0].streams["preference"].tolist() == [0.0, 0.0]


def test_what_cannot_be_is_refused(game: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dpo does not score sampled replies, so --preference table has none"):
        with_oracle(find("dpo").build(source("sort")), named_oracle(f"table({game})", TASK))
    with pytest.raises(ValueError, match=r"there is no preference 'tabel\(x\)'; those by name are bradley_terry"):
        named_oracle("tabel(x)", TASK)
    for text, words in (
        ('{"a": {"b": 2}}', "is 2; it is from 0 to 1"),
        ('{"a": {"b": 0.6}, "b": {"a": 0.6}}', "must add to 1"),
        ('{"a": {"b": 0.6, "c": 1}}', "'b' over 'c' is missing"),
        ("[]", "a table of preferences is"),
        ("{}", "at least two replies"),
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match=words):
            read_table(str(tmp_path / "bad.json"))
    with pytest.raises(ValueError, match="cannot be read"):
        read_table(str(tmp_path / "none.json"))


def test_cycles_and_wins_by_hand() -> None:
    beats = [[0.5, 1.0, 0.0], [0.0, 0.5, 1.0], [1.0, 0.0, 0.5]]
    assert cycles(beats) == (1, 1) and cycles([[0.5, 1, 1], [0, 0.5, 1], [0, 0, 0.5]]) == (0, 1)
    assert mean_wins(beats) == [0.5] * 3 and mean_wins([[0.5]]) == [0.5]
