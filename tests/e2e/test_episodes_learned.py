"""Methods over episodes do on the embedded model what their papers say, against a baseline with as many episodes.

The numbers in the docstrings were measured with the same options (docs/agent-search.md, agent-credit.md and
offline-agents.md); the margins are wide.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import burnish

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
COMMON: dict[str, Any] = {"eval_tasks": 0, "eval_every": 0, "save_every": 0, "seed": 0}


def trained(method: str, out: Path, **options: Any) -> str:
    """The directory of a trained model."""
    return str(burnish.train(method, out=str(out), **{**COMMON, **options}).model)


def played(model: str, out: Path, **options: Any) -> dict[str, float]:
    """Metrics of 200 episodes at temperature 1, without training; with n above 1 the best of n is chosen."""
    options = {"n": 1, "steps": 1, "prompts": 200, **COMMON, "seed": 7, **options}
    return burnish.train("armap_best_of_n", model=model, out=str(out), **options).metrics[-1]


def taught(example: str, folder: Path, **options: Any) -> str:
    """The embedded model after SFT on the rows of an example."""
    runpy.run_path(str(EXAMPLES / example))["main"](str(folder / "rows.jsonl"))
    return trained("sft", folder / "sft", task=str(folder / "rows.jsonl"), prompts=32, lr=1e-3, **options)


@pytest.fixture(scope="module")
def nim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A beginner: it wins about two of three games of nim:1."""
    return trained("sft", tmp_path_factory.mktemp("nim") / "run", task="nim:1", steps=15, max_new_tokens=12)


@pytest.mark.slow
def test_lspo_learns_nim_and_one_latent_action_does_not(nim: str, tmp_path: Path) -> None:
    """Measured: 66% of games before, 85% to 98% after 12 steps (three seeds); with one cluster there are no pairs."""
    game = {"task": "nim:1", "max_new_tokens": 6}
    options = {**game, "model": nim, "steps": 12, "prompts": 12, "rounds": 8, "lr": 1e-4}
    before = played(nim, tmp_path / "before", **game)["reward"]
    after = played(trained("lspo", tmp_path / "many", clusters=8, **options), tmp_path / "after", **game)["reward"]
    one = played(trained("lspo", tmp_path / "one", clusters=1, **options), tmp_path / "none", **game)["reward"]
    assert after > before + 0.08 and one == before


@pytest.mark.slow
def test_refuel_learns_a_game_of_several_turns_and_rebel_of_one_turn_does_not(tmp_path: Path) -> None:
    """Measured: 47% to 68% of 200 games; with longest = 1, where a pair is two first guesses, 47% to 42%."""
    options = {"prompts": 64, "temperature": 1.0, "lr": 3e-5, "task": "guess:1", "steps": 20, "max_new_tokens": 8}
    wins = {
        turns: burnish.train(
            "refuel",
            out=str(tmp_path / str(turns)),
            **{**COMMON, "eval_tasks": 200},
            **options,
            shortest=turns,
            longest=turns,
        )
        for turns in (1, 3)
    }
    assert wins[3].after.as_sampled.mean > wins[3].before.as_sampled.mean + 0.1
    assert wins[3].after.as_sampled.mean > wins[1].after.as_sampled.mean + 0.1


@pytest.mark.slow
def test_armap_learns_without_rewards_which_episode_does_what_was_asked(tmp_path: Path) -> None:
    """Measured: the policy wins 36% of episodes; of eight the reward model chooses one that is won in 95% of tasks."""
    model = taught("levers.py", tmp_path, steps=40, max_new_tokens=12)
    game = {"task": f"{EXAMPLES}/levers.py:Levers", "max_new_tokens": 12}
    options = {**game, "model": model, "steps": 8, "prompts": 24, "updates": 4, "lr": 5e-4}
    judge = trained("armap", tmp_path / "rm", **options)
    found = played(model, tmp_path / "best", n=8, reward_model=judge, **game)
    assert found["reward"] < 0.6 and found["score/chosen_reward"] > found["reward"] + 0.25


@pytest.mark.slow
def test_contributions_of_turns_teach_nim(nim: str, tmp_path: Path) -> None:
    """Measured: 66% of games before, 91% after 5 steps of the estimator and 11 of PPO that sees no outcome."""
    game = {"task": "nim:1", "max_new_tokens": 6}
    options = {**game, "model": nim, "steps": 16, "n": 8, "prompts": 16, "beta": 0.0, "first": 5, "estimator_lr": 5.0}
    before = played(nim, tmp_path / "before", **game)["reward"]
    after = played(trained("spa_rl", tmp_path / "run", **options), tmp_path / "after", **game)["reward"]
    assert after > before + 0.1


@pytest.mark.slow
def test_a_manager_chooses_among_replies_and_the_policy_learns_its_choices(nim: str, tmp_path: Path) -> None:
    """Measured: the manager wins 62% of its games in the first step and 91% in the last; the policy 66%, then 93%."""
    game = {"task": "nim:1", "max_new_tokens": 6}
    options = {"steps": 16, "n": 2, "prompts": 16, "experts": "|||", "choice": 0.05, "lr": 1e-4, "critic_lr": 5.0}
    options |= {"critic_warmup": 8, "critic_updates": 10, "batch": 32}
    before = played(nim, tmp_path / "before", **game)["reward"]
    after = played(trained("moe_lm", tmp_path / "run", model=nim, **game, **options), tmp_path / "after", **game)
    assert after["reward"] > before + 0.12


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_agent_r_learns_to_mend_its_mistakes_without_losing_success(tmp_path: Path) -> None:
    """Measured with three seeds: 47% of episodes won before, 99.5% to 100% after; mended were none, then 30 of 31."""
    model = taught("keys.py", tmp_path, steps=60, max_new_tokens=24)
    game = {"task": f"{EXAMPLES}/keys.py:Keys", "max_new_tokens": 12}
    options = {**game, "revision": "?", "rounds": 8, "width": 3, "lr": 3e-4, "prompts": 32, "steps": 4}
    before = played(model, tmp_path / "before", **game)
    after = played(trained("agent_r", tmp_path / "run", model=model, **options), tmp_path / "after", **game)
    assert after["reward"] > before["reward"] + 0.25
    assert before["env/mended"] == 0 and after["env/mended"] > 0.2
