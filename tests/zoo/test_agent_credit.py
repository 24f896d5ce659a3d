"""Credit of turns: bi-level GAE, contributions, a chain through agents. Numbers by hand, and what each becomes without
its idea.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, Tossed, build_cast
from test_agent_turns import TASK, episode, nothing, turn

from burnish.compose.swap import swapped
from burnish.core.loop import loop, run_phase
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace
from burnish.credit.gae import advantages_and_returns, token_rewards
from burnish.credit.turn_gae import bi_level_advantages, bi_level_gae
from burnish.credit.turns import turn_rewards
from burnish.envs.protocol import Outcome
from burnish.learn.learn import Learn
from burnish.learn.term import Live
from burnish.learn.terms.policy import pg_clip
from burnish.methods.agent_turns import starpo
from burnish.rollout.play import play
from burnish.select.turn_rows import by_turn
from burnish.tasks.table import source
from burnish.zoo.marft import InTurn, chain_gae, marft, pg_whole, read_seats, standardised_turns
from burnish.zoo.spa_rl import contribution_rewards, executed, redistribution, spa_rl


def live(logp: list[float], rows: list[int], **streams: list[float]) -> Live:
    """What a term sees of these tokens."""
    outputs = {"logp": torch.tensor(logp), "score": torch.tensor(logp), "entropy": torch.zeros(len(logp))}
    held = {name: torch.tensor(values) for name, values in streams.items()}
    n = max(rows) + 1
    none = torch.zeros(0, 2, dtype=torch.long)
    return Live(outputs, held, torch.tensor(rows), n, none, [], torch.arange(n), Clock(0, 1))


def test_bi_level_gae_by_hand() -> None:
    """Two turns of 2 and 1 tokens; turns: G_2 = 1, G_1 = .5 + .5 x 1; tokens: G - V with lambda 1."""
    rewards, values = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.1, 0.2, 0.4])
    adv, returns = bi_level_advantages(rewards, values, [2, 1], gamma=1.0, lam=1.0, turn_gamma=0.5)
    assert adv.tolist() == pytest.approx([0.9, 0.8, 0.6])
    assert returns.tolist() == pytest.approx([1.0, 1.0, 1.0])
    adv, _ = bi_level_advantages(rewards, values, [2, 1], gamma=1.0, lam=0.0, turn_gamma=0.5)
    assert adv.tolist() == pytest.approx([0.1, 0.5, 0.6])  # V(2) - V(1);  r + .5 V(3) - V(2);  r - V(3)


def test_bi_level_gae_of_one_turn_is_gae() -> None:
    rewards, values = torch.rand(5), torch.rand(5)
    for gamma, lam in ((1.0, 1.0), (0.9, 0.8), (1.0, 0.0)):
        two = bi_level_advantages(rewards, values, [5], gamma, lam, 0.3)
        assert torch.allclose(torch.stack(two), torch.stack(advantages_and_returns(rewards, values, gamma, lam)))


def test_a_turn_without_reward_is_still_a_turn() -> None:
    trace = episode([0.0, 0.0, 1.0], [])
    trace.streams["value"] = torch.zeros(len(trace))
    turn_rewards().call([Group(TASK, [trace])], nothing())
    bi_level_gae(turn_gamma=0.5).call([Group(TASK, [trace])], nothing())
    assert trace.streams["returns"][trace.by("policy")].tolist() == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]


def test_starpo_takes_bi_level_gae(small_model: Path) -> None:
    method = swapped(
        starpo(Tossed(source("guess")), n=3, share=1.0), "token_rewards=turn_rewards(); gae=bi_level_gae()"
    )
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    assert report.metrics["traces"] == 9


def test_each_turn_becomes_a_row() -> None:
    trace = episode([0.0, 2.0], [])
    (group,) = by_turn().call([Group(TASK, [trace])], nothing())
    assert [len(row) for row in group.traces] == [3, 6] and group.traces[1].id == trace.id
    assert [row.turn_scores["reward"][-1] for row in group.traces] == [0.0, 2.0]
    assert all(row.scores["reward"] == 2.0 and "turn" in row.tags for row in group.traces)
    assert group.traces[0].turns[1] is group.traces[1].turns[1]


def rows_of(rewards: list[float], values: list[float]) -> Group:
    (group,) = by_turn().call([Group(TASK, [episode(rewards, [])])], nothing())
    for row, value in zip(group.traces, values, strict=True):
        row.streams["value"] = torch.full((len(row),), 99.0)
        row.streams["value"][len(row) - 2] = value  # the first token of its own turn
    return group


def test_a_chain_runs_through_the_agents() -> None:
    """Order a, b, gamma 1, V_a .2, V_b .5, terminal reward 1, lambda 0: A_a .3, A_b .5."""
    group = rows_of([0.0, 1.0], [0.2, 0.5])
    chain_gae(gamma=1.0, lam=0.0).call([group], nothing())
    assert [float(row.streams["adv"][-1]) for row in group.traces] == pytest.approx([0.3, 0.5])
    assert [float(row.streams["returns"][-1]) for row in group.traces] == pytest.approx([0.5, 1.0])
    standardised_turns().call([group], nothing())
    assert [float(row.streams["adv"][-1]) for row in group.traces] == pytest.approx([-1.0, 1.0])


def test_an_utterance_of_one_token_has_the_ratio_of_its_token() -> None:
    one = live([-1.0, -2.0], [0, 1], old=[-1.5, -1.6], adv=[1.0, -2.0])
    assert torch.equal(pg_whole(0.2, 0.2).loss(one), pg_clip(0.2).loss(one))
    two = live([-1.0, -2.0], [0, 0], old=[-1.1, -2.05], adv=[1.0, 1.0])
    assert pg_whole(0.2, 0.2).loss(two).tolist() == pytest.approx([-torch.tensor(0.15).exp().item()])


class Counter:
    """An environment that records what it is told."""

    def reset(self) -> str:
        self.told: list[str] = []
        return "go"

    def step(self, action: str) -> tuple[str, float, bool]:
        self.told.append(action)
        return f"heard {action}", 1.0, len(self.told) == 2


def table(words: str) -> Any:
    task = Task("game", "go", {"env": Counter}, "k")

    class One:
        name, summary, gives = "one", "", frozenset({"env"})

        def size(self, split: str) -> int:
            return 1

        def task(self, split: str, index: int) -> Task:
            return task

    return InTurn(One(), read_seats(words)).task("train", 0)  # type: ignore[arg-type]


def test_the_last_seat_acts_and_all_read_what_was_said() -> None:
    task = table("planner: Plan. | actor: Act.")
    assert task.prompt == "go\nPlan."
    env = task.given["env"]()
    env.reset()
    assert env.step("a plan") == Outcome("Act.", 0.0) and env.inner.told == []
    assert "actor" in env.key() and "a plan" in env.key()
    assert env.step("an act") == Outcome("heard an act\nPlan.", 1.0)
    assert env.inner.told == ["an act"]
    env.step("another plan")
    assert env.step("the end").terminated


def test_one_seat_without_words_is_the_task_itself() -> None:
    task = table("agent:")
    env, plain = task.given["env"](), Counter()
    env.reset(), plain.reset()
    assert task.prompt == "go"
    for said in ("x", "y"):
        text, reward, over = plain.step(said)
        assert env.step(said) == Outcome(text, reward, over)


@pytest.mark.parametrize("words", ["planner", "a: x | a: y", ": x"])
def test_seats_that_cannot_be_read_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match="seat"):
        read_seats(words)


def test_seats_need_an_environment() -> None:
    with pytest.raises(ValueError, match="no environment"):
        marft(source("sort"))


def test_contributions_are_fitted_to_their_sum() -> None:
    """c (.2, .5, .3) and R 1: no loss; a second row with c .5 and R 0: .25."""
    seen = live([0.2, 0.5, 0.3, 0.5], [0, 0, 0, 1], outcome=[1.0, 1.0, 1.0, 0.0])
    assert redistribution().loss(seen).tolist() == pytest.approx([0.0, 0.25])


def paid(rewards: list[float], contributions: list[float], *given: float, **named: Any) -> list[float]:
    trace = episode(rewards, [])
    ends = [end for one, _, end in trace.spans() if one.author == "policy"]
    trace.streams["contribution"] = torch.zeros(len(trace))
    trace.streams["contribution"][[end - 1 for end in ends]] = torch.tensor(contributions)
    trace.note["valid"] = named.pop("valid", [True] * len(ends))

    class Models:
        def __getitem__(self, name: str) -> Any:
            return type("Speaks", (), {"chat": None})

    step = Step(Clock(0, 1), Models(), SMALL)  # type: ignore[arg-type]
    contribution_rewards(*given, **named).call([Group(TASK, [trace])], step)
    token_rewards(kl=None).call([Group(TASK, [plain := episode(rewards, [])])], step)
    if given == (0.0, 0.0):
        assert torch.equal(trace.streams["reward"].nan_to_num(-9), plain.streams["reward"].nan_to_num(-9))
    return trace.streams["reward"][[end - 1 for end in ends]].tolist()


def test_turns_are_paid_for_contributions_and_execution() -> None:
    """c (.2, .5, .3), alpha 1, beta .5, all executed: .7, 1, .8; the second refused: .5."""
    assert paid([0, 0, 1], [0.2, 0.5, 0.3], 1.0, 0.5) == pytest.approx([0.7, 1.0, 0.8])
    assert paid([0, 0, 1], [0.2, 0.5, 0.3], 1.0, 0.5, valid=[True, False, True]) == pytest.approx([0.7, 0.5, 0.8])
    assert sum(paid([0, 0, 1], [0.2, 0.5, 0.3], 1.0, 0.0)) == pytest.approx(1.0)


def test_spa_without_contributions_is_paid_at_the_end() -> None:
    assert paid([0, 0, 1], [0.2, 0.5, 0.3], 0.0, 0.0, final=1.0) == [0.0, 0.0, 1.0]


def test_refusals_are_read_in_the_environments_answer() -> None:
    class Chat:
        def text(self, tokens: torch.Tensor) -> str:
            return "Nothing happens." if len(tokens) == 3 else "You go."

    trace = Trace((turn(1, "task"), turn(2, "policy"), turn(3, "env"), turn(2, "policy"), turn(1, "env")))
    assert executed(trace, Chat(), "Nothing happens") == [False, True]  # type: ignore[arg-type]
    assert executed(trace, Chat(), "") == [True, True]  # type: ignore[arg-type]


def test_play_notes_which_actions_were_executed(small_model: Path) -> None:
    class Strict:
        def reset(self) -> str:
            return "go"

        def step(self, action: str) -> Outcome:
            return Outcome("no", 0.0, info={"valid": False})

    method = spa_rl(source("guess"))
    step = Step(Clock(0, 1), build_cast(method, small_model), SMALL)
    (group,) = play(1, turns=2).call([Task("game", "go", {"env": Strict}, "k")], step)
    assert group.traces[0].note["valid"] == [False, False]


def test_the_estimator_learns_which_turn_contributes(small_model: Path) -> None:
    """Its loss on one batch falls to less than a quarter within 30 updates."""
    method = spa_rl(Tossed(source("guess")), n=3, first=1, estimator_updates=1, estimator_lr=3.0)
    phase, models = method.phases[0], build_cast(method, small_model)
    first = Step(Clock(0, 2), models, SMALL)
    groups = run_phase(phase, first, {}, [])
    last = Step(Clock(0, 2), models, SMALL)
    Learn(*phase.learn.terms, updates=30).call(groups, last)
    end = Step(Clock(0, 2), models, SMALL)
    Learn(*phase.learn.terms).call(groups, end)
    loss = "redistribution/loss"
    assert end.notes.means()[loss] < 0.25 * first.notes.means()[loss]


@pytest.mark.slow
def test_games_are_learned_with_the_outcome_at_the_end(tmp_path: Path) -> None:
    from burnish import train

    options = {"prompts": 16, "max_new_tokens": 8, "eval_tasks": 100, "eval_every": 0, "seed": 0}
    sparse: dict[str, Any] = {"alpha": 0.0, "beta": 0.0, "final": 1.0, "first": 0}
    result = train("spa_rl", task="guess:1", steps=20, out=str(tmp_path / "run"), **options, **sparse)
    before, after = (outcome.sampled.accuracy for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.1
