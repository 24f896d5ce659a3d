"""Runs with environments, tools, agents and curricula, through the options of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from guards import guards

import burnish

pytestmark = guards("serve", "rollout", "envs")

SMALL = {"steps": 2, "prompts": 2, "n": 2, "max_new_tokens": 6, "eval_tasks": 2, "eval_every": 0, "lr": 1e-3}
FILES = '''
class Corridor:
    def reset(self, task, seed):
        self.left = 3
        return "go"

    def step(self, action):
        self.left -= 1
        return f"{self.left} left", float(len(action) % 2), self.left == 0, False, {}


class Slow(Corridor):
    def step(self, action):
        import time
        time.sleep(0.05 if self.left > 2 else 30)
        return super().step(action)


def look(where: str) -> str:
    """Look somewhere."""
    return "nothing there"


def agent(task, base_url, api_key):
    import json
    import urllib.request
    body = {"messages": [dict(message) for message in task["prompt"]]}
    request = urllib.request.Request(
        base_url + "/chat/completions", json.dumps(body).encode(), {"Authorization": f"Bearer {api_key}"}
    )
    said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    return float(len(said) % 2)
'''


@pytest.fixture()
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILES)
    return path


def test_an_environment_of_a_file_with_a_limit_of_turns(file: Path, small_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = burnish.train("grpo", model=small_model, task=f"{file}:Corridor", turns=2, out=str(out), **SMALL)
    assert [step["turns"] for step in result.metrics] == [2.0, 2.0]
    assert [step["episode_ended"] for step in result.metrics] == [0.0, 0.0]
    again = burnish.resume(out, steps=3)
    assert len(again.metrics) == 3


def test_a_hung_environment_is_a_sentence(file: Path, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"every environment failed; the first: step\(\) .* after 0.5 s"):
        burnish.train(
            "grpo", model=small_model, task=f"{file}:Slow", env_timeout=0.5, out=str(tmp_path / "run"), **SMALL
        )


def test_tools_and_agents_are_named_on_the_command_line(file: Path, small_model: Path, tmp_path: Path) -> None:
    result = burnish.train(
        "grpo", model=small_model, task="sort", tools=f"{file}:look", out=str(tmp_path / "tools"), **SMALL
    )
    assert result.metrics[0]["turns"] >= 1
    result = burnish.train(
        "grpo",
        model=small_model,
        task="sort",
        agent=f"{file}:agent",
        agent_pays=True,
        out=str(tmp_path / "agent"),
        **SMALL,
    )
    assert 0 <= result.metrics[0]["reward"] <= 1 and result.metrics[0]["restarts"] == 0
    assert (tmp_path / "agent" / "model").is_dir()


def test_a_curriculum_is_part_of_a_run_and_its_resume(small_model: Path, tmp_path: Path) -> None:
    common = {"model": small_model, "task": "sort:1*1,sort:2*1", "draw": "sec(temperature=0.1)", **SMALL}
    straight = burnish.train("grpo", out=str(tmp_path / "straight"), **{**common, "steps": 4})
    burnish.train("grpo", out=str(tmp_path / "stopped"), **{**common, "steps": 2})
    resumed = burnish.resume(tmp_path / "stopped", steps=4)
    key = "draw/sort:1"
    assert [step[key] for step in resumed.metrics] == [step[key] for step in straight.metrics]


def test_a_reward_named_twice_is_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the reward 'rubric' is there twice"):
        burnish.train(
            "grpo", model=small_model, task="sort", reward="rubric(policy),rubric(policy)", out=str(tmp_path), **SMALL
        )
