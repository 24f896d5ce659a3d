"""Recipes: reading, references, overrides, and the checks before the first stage."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from burnish.commands.recipe import makers
from burnish.recipes.box import file_of
from burnish.recipes.plan import fingerprint, plan_recipe
from burnish.recipes.recipe import Recipe, changed, filled, parse, read_recipe
from burnish.recipes.state import StageState, State
from burnish.recipes.table import lines, table

TOLD: dict[str, Any] = {
    "task": "add",
    "options": {"prompts": 4, "eval_tasks": 4},
    "stages": {
        "sft": {"method": "sft", "steps": 2},
        "prefs": {"command": "pairs", "model": "sft", "n": 4},
        "dpo": {"method": "dpo", "model": "sft", "task": "prefs", "steps": 2},
        "rm": {"method": "reward_model", "model": "sft", "task": "prefs", "steps": 2},
        "rl": {"method": "grpo", "model": "dpo", "reward": "rm({rm})", "steps": 2},
        "measured": {"command": "eval", "model": "rl"},
    },
}


def told(**changes: Any) -> dict[str, Any]:
    """TOLD with options of stages added: sft={"lr": 1}."""
    found = copy.deepcopy(TOLD)
    for stage, options in changes.items():
        found["stages"].setdefault(stage, {}).update(options)
    return found


def read(stored: dict[str, Any]) -> Recipe:
    return parse(stored, "here", "mine")


def test_a_recipe_survives_writing_and_reading(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(read(TOLD).to_dict(), sort_keys=False))
    assert read_recipe(file) == read(TOLD)


def test_references_are_the_bare_name_of_a_model_or_task_and_braces_elsewhere() -> None:
    recipe = read(TOLD)
    assert recipe.uses(recipe["dpo"]) == ["sft", "prefs"]
    assert recipe.uses(recipe["rl"]) == ["dpo", "rm"]
    made = {"sft": "D/sft/model", "rm": "D/rm/model"}
    options = {"model": "sft", "reward": "rm({rm})*0.5,math", "rule": "sft", "method": "sft"}
    assert filled(options, made) == {**options, "model": "D/sft/model", "reward": "rm(D/rm/model)*0.5,math"}
    assert filled({"reward": "regex({2})"}, made) == {"reward": "regex({2})"}  # braces of something else stay


def test_what_depends_on_a_stage_follows_it() -> None:
    assert read(TOLD).following(["prefs"]) == ["prefs", "dpo", "rm", "rl", "measured"]
    assert read(TOLD).following(["measured"]) == ["measured"]


def test_changes_reach_one_stage_or_all() -> None:
    recipe = changed(read(TOLD), {"rl.steps": "7", "seed": "3", "model": "other", "rl.max-new-tokens": "9"})
    assert recipe["rl"].options["steps"] == "7" and recipe["rl"].options["max_new_tokens"] == "9"
    assert recipe.options["seed"] == "3" and recipe.model == "other"
    assert "steps" not in changed(read(TOLD), {"rl.epochs": 1})["rl"].options  # one of the two says how long


def test_everything_is_checked_before_the_first_stage() -> None:
    planned = {one.name: one for one in plan_recipe(read(TOLD), makers())}
    assert [one.product for one in planned.values()] == [
        "sft/model",
        "prefs/prefs.jsonl",
        "dpo/model",
        "rm/model",
        "rl/model",
        "",
    ]
    assert planned["rm"].reward and not planned["rl"].reward
    assert planned["prefs"].options["task"] == "add" and "prompts" not in planned["prefs"].options
    assert planned["dpo"].options["prompts"] == 4


WRONG = [
    ({"sft": {"stepps": 3}}, "stage 'sft': sft has no option 'stepps'; did you mean 'steps'"),
    ({"sft": {"steps": "many"}}, "stage 'sft': option 'steps' takes a whole number, not 'many'"),
    ({"sft": {"method": "sfft"}}, "sfft"),
    ({"prefs": {"n": 0}}, "stage 'prefs': option 'n' is 0"),
    ({"prefs": {"format": "labels"}}, "stage 'dpo'"),  # DPO reads pairs
    ({"prefs": {"task": "nothing.jsonl"}}, "stage 'prefs'"),
    ({"dpo": {"model": "prefs"}}, "model is 'prefs', a stage that makes a file; name one that makes a model"),
    ({"dpo": {"task": "sft"}}, "task is 'sft', a stage that makes a model; name one that makes a file"),
    ({"rl": {"model": "rm"}}, "model is 'rm', which is a reward model; it cannot give replies"),
    ({"sft": {"model": "no/such/model/here"}}, "stage 'sft': no model"),
    ({"rl": {"reward": "nothing.py:f"}}, "stage 'rl'"),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=lambda one: str(one)[:40])
def test_mistakes_are_found_before_the_first_stage(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=".") as error:
        plan_recipe(read(told(**change)), makers())
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([], "is no recipe"),
        ({"stages": {}}, "is no recipe"),
        ({**TOLD, "stage": 1}, "has 'stage', which a recipe does not know; did you mean 'stages'?"),
        (told(x={"steps": 3}), "stage 'x' needs either `method: NAME`"),
        (told(x={"method": "sft", "command": "pairs"}), "stage 'x' needs either"),
        (told(add={"method": "sft"}), "a stage cannot be called 'add', because this is a task or a model"),
        (told(tiny={"method": "sft"}), "a stage cannot be called 'tiny'"),
        (told(**{"a b": {"method": "sft"}}), "a stage cannot be called 'a b'"),
        (told(sft={"out": "x"}), "has 'out', but each stage has its own folder"),
        (told(sft={"model": "dpo"}), "stage 'sft' uses 'dpo', which does not come before it"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(stored: Any, said: str) -> None:
    with pytest.raises(ValueError, match=".") as error:
        parse(stored, "here", "mine")
    assert said in str(error.value)


def test_a_shared_option_that_no_stage_has_is_refused() -> None:
    with pytest.raises(ValueError, match="options: .*'promptz'; did you mean 'prompts'"):
        plan_recipe(read({**TOLD, "options": {"promptz": 3}}), makers())


def test_unknown_stages_and_recipes_are_refused() -> None:
    with pytest.raises(ValueError, match="has no stage 'rll'.*did you mean 'rl'"):
        changed(read(TOLD), {"rll.steps": 3})
    with pytest.raises(ValueError, match="there is no recipe 'nothing-like-it' in the box"):
        file_of("nothing-like-it")


def test_the_fingerprint_of_a_model_changes_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"123")
    assert fingerprint(tmp_path) != before


def test_tokens_and_time_add_up_over_sessions_and_repeated_steps(tmp_path: Path) -> None:
    """Session a: two steps of 10 and 20 tokens, 2 s, then killed. Session b: the second again, 25 tokens, 3 s.

    Session a was written by an older burnish, which counted steps from 0.
    """
    (tmp_path / "steps.jsonl").write_text(
        '{"stage": "x", "session": "a", "step": 0, "tokens": 10, "seconds": 1.0}\n'
        '{"stage": "x", "session": "a", "step": 1, "tokens": 20, "seconds": 2.0}\n'
        '{"stage": "x", "session": "b", "done": 2, "tokens": 25, "seconds": 2.5}\n'
        '{"stage": "x", "session": "b", "done": 0, "tokens": 0, "seconds": 3.0}\n'
        '{"stage": "y", "session": "b", "done": 1, "tokens": 99, "seconds": 9.0}\n'
        '{"stage": "x", "session": "b", "st'
    )
    assert State(tmp_path).spent("x") == (5.0, 35)


def test_a_stage_set_back_keeps_what_it_made(tmp_path: Path) -> None:
    state = State(tmp_path)
    for _ in range(2):
        (tmp_path / "x").mkdir()
        state.stages["x"] = StageState("x", "sft", {}, done=True)
        state.forget("x")
    assert not (tmp_path / "x").exists() and (tmp_path / "x.1").exists() and (tmp_path / "x.2").exists()
    assert State(tmp_path).stages == {}


def test_the_table_has_a_row_for_each_stage() -> None:
    value = {"mean": 0.5, "low": 0.4, "high": 0.6}
    outcome = {"name": "held-out accuracy", "value": value, "shown": []}
    stages = [
        StageState(
            "sft", "sft", {}, True, 90.0, 1234, "sft/model", outcome, {**outcome, "value": {**value, "mean": 0.75}}
        ),
        StageState("prefs", "pairs", {}, True, 30.0, numbers={"rows": 22}),
    ]
    head, first, second = lines(stages)
    assert head.split() == ["stage", "what", "held-out", "before", "after", "minutes", "tokens"]
    assert first.split() == ["sft", "sft", "accuracy", "50.0%", "75.0%", "1.5", "1,234"]
    assert second.split() == ["prefs", "pairs", "rows", "22", "0.5"]
    terminal = Console(file=io.StringIO(), width=40)
    terminal.print(table([*stages, StageState("later", "sft", {}, False)]))
    assert len(terminal.file.getvalue().splitlines()) == 4, "in a narrow terminal, too, a row is a line"
