"""`burnish recipe`: run, stop, resume, refuse what changed, run again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from guards import guards

import burnish
from burnish.cli import main
from burnish.commands import recipe as command
from burnish.commands.papers import index
from burnish.core.loop import Report
from burnish.recipes.box import boxed
from burnish.recipes.plan import plan_recipe
from burnish.recipes.recipe import parse
from burnish.recipes.runner import RecipeResult, run_recipe
from burnish.run.observers import Observer

pytestmark = guards("recipes")

TOLD: dict[str, Any] = {
    "task": "add",
    "options": {"prompts": 4, "eval_tasks": 4, "eval_every": 0, "seed": 1},
    "stages": {
        "sft": {"method": "sft", "steps": 2},
        "prefs": {"command": "pairs", "model": "sft", "n": 4, "count": 12, "temperature": 2},
        "dpo": {"method": "dpo", "model": "sft", "task": "prefs", "steps": 4, "save_every": 1, "eval_tasks": 0},
        "measured": {"command": "eval", "model": "dpo", "tasks": 4, "k": 2},
    },
}


class Watching(Observer):
    """Stops the run after a step, by Ctrl-C or by a crash."""

    def __init__(self, at: tuple[str, int] | None = None, crash: bool = False) -> None:
        self.at, self.crash, self.steps = at, crash, list[tuple[str, int]]()
        self.method = ""

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None: ...

    def started(self, run: Any) -> None:
        self.method = run.config.method

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self.steps.append((self.method, report.clock.step))
        if self.steps[-1] == self.at:
            if self.crash:
                raise MemoryError("crashed")
            os.kill(os.getpid(), signal.SIGINT)


def run(folder: Path, watching: Watching, told: dict[str, Any] = TOLD, **more: Any) -> RecipeResult:
    recipe = parse(told, "here", "mine")
    return run_recipe(recipe, folder, command.makers(), display=lambda: watching, say=lambda text: None, **more)


def weights(folder: Path) -> bytes:
    return (folder / "dpo" / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that ran without interruption."""
    folder = tmp_path_factory.mktemp("recipe") / "whole"
    result = run(folder, Watching())
    assert not result.stopped and all(one.done for one in result.stages)
    return folder


@pytest.mark.parametrize("crash", [False, True], ids=["Ctrl-C", "crash"])
def test_a_recipe_continues_in_the_middle_of_a_stage_bit_for_bit(whole: Path, tmp_path: Path, crash: bool) -> None:
    folder, first, second = tmp_path / "half", Watching(("dpo", 1), crash), Watching()
    if crash:
        with pytest.raises(MemoryError):
            run(folder, first)
    else:
        assert run(folder, first).stopped
    result = run(folder, second, resumed=True)
    assert first.steps == [("sft", 0), ("sft", 1), ("dpo", 0), ("dpo", 1)]
    assert [one for one in second.steps if one[1] > 1] == [("dpo", 2), ("dpo", 3)] and ("sft", 0) not in second.steps
    assert weights(folder) == weights(whole)
    assert (folder / "prefs/prefs.jsonl").read_text().replace(str(folder), "") == (
        whole / "prefs/prefs.jsonl"
    ).read_text().replace(str(whole), "")
    told = json.loads((whole / "state.json").read_text())
    assert result["sft"].tokens == told["sft"]["tokens"] > 0 and result["dpo"].tokens == told["dpo"]["tokens"] > 0
    assert result.model_path == folder / "dpo/model" and "measured" in repr(result)
    assert result["measured"].numbers["measure"] == "accuracy"


def test_a_finished_recipe_does_nothing_more(whole: Path) -> None:
    watching = Watching()
    before = weights(whole)
    assert not run(whole, watching, resumed=True).stopped
    assert watching.steps == [] and weights(whole) == before


def test_a_changed_stage_is_refused_and_run_again_with_what_depends_on_it(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    run(folder, Watching())
    told = json.loads(json.dumps(TOLD))
    told["stages"]["dpo"]["beta"] = 0.5
    with pytest.raises(ValueError, match="stage 'dpo' was run before, but beta was None and is now 0.5; .*--again dpo"):
        run(folder, Watching(), told, resumed=True)
    watching = Watching()
    run(folder, watching, told, resumed=True, again=["dpo"])
    assert {name for name, _ in watching.steps} == {"dpo"} and weights(folder) != weights(whole)
    assert (
        (folder / "dpo.1" / "model").is_dir() and (folder / "measured.1").is_dir() and not (folder / "sft.1").exists()
    )


def test_changed_data_and_lost_products_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{i}+1=?", "completion": f"answer: {i + 1}", "answer": str(i + 1)} for i in range(20)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = {**TOLD, "task": str(data), "stages": {"sft": TOLD["stages"]["sft"]}}
    folder = tmp_path / "run"
    run(folder, Watching(), told)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    with pytest.raises(ValueError, match="stage 'sft' was run before, but its data or model has changed"):
        run(folder, Watching(), told, resumed=True)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sft" / "model").rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="is done, but .*model is gone; --again sft makes it again"):
        run(folder, Watching(), told, resumed=True)


def test_a_stage_that_fails_is_named_and_the_recipe_can_continue(tmp_path: Path) -> None:
    """The coolest replies are all alike, so there is no pair; with another temperature the recipe goes on."""
    told = json.loads(json.dumps(TOLD))
    told["stages"]["prefs"] |= {"temperature": 0.001, "n": 2, "count": 2}
    folder, watching = tmp_path / "run", Watching()
    with pytest.raises(ValueError, match="stage 'prefs': none of the 2 prompts gave a row.*--resume .*run continues"):
        run(folder, Watching(), told)
    assert run(folder, watching, TOLD, resumed=True, again=["prefs"])["measured"].done
    assert {name for name, _ in watching.steps} == {"dpo"}


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "mine.yaml", tmp_path / "out"
    told = {**TOLD, "stages": {"sft": {"method": "sft", "steps": 50}, "rl": {"method": "grpo", "model": "sft", "n": 2}}}
    file.write_text(yaml.safe_dump(told, sort_keys=False))
    sets = ["--set", "sft.steps=1", "--set=rl.steps=1", "--set", "prompts=2"]
    assert main(["recipe", str(file), "--check"]) == 0 and "as they should be" in capsys.readouterr().out
    assert main(["recipe", str(file), "--out", str(out), *sets]) == 0
    said = capsys.readouterr().out
    assert "stage 1 of 2, sft: sft --model tiny --task add" in said
    assert "stage 2 of 2, rl: grpo --model sft --task add" in said
    last = [line.split() for line in said.splitlines()[-3:-1]]
    assert [line[:3] for line in last] == [["sft", "sft", "sft/nll"], ["rl", "grpo", "sampled_accuracy"]]
    assert main(["recipe", "--resume", str(out), "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [one["done"] for one in stages] == [True, True] and stages[0]["same"]["prompts"] == 2
    assert main(["recipe", str(file), "--out", str(out)]) == 2
    assert "exists already; continue it with --resume" in capsys.readouterr().err.replace("\n", " ")
    assert main(["recipe", str(file), "--set", "steps"]) == 2
    assert main(["recipe", "--resume", str(tmp_path)]) == 2


PAPERS = {"rlaif": ["online-dpo", "pairwise-rl"], "constitutional": ["constitutional-ai"]}  # of more than one name


@pytest.mark.parametrize("name", sorted(boxed()))
def test_every_recipe_in_the_box_passes_its_checks(name: str) -> None:
    one = boxed()[name]
    assert one.recipe.about and one.recipe.represents and one.recipe.leaves_out
    assert [paper.id for paper in one.papers] == PAPERS.get(name, [name])
    planned = plan_recipe(one.recipe, command.makers())
    assert planned[-1].stage.command in ("eval", "eval-reward") and any(stage.product for stage in planned)


SMALLEST = {"steps": 1, "count": 24, "tasks": 4, "prompts": 4, "max_new_tokens": 40, "eval_tasks": 0}


def smallest(name: str) -> dict[str, Any]:
    """The recipe with one step, few prompts and no evaluation in each stage."""
    changes: dict[str, Any] = {}
    for one in plan_recipe(boxed()[name].recipe, command.makers()):
        own = {"steps", "count", "tasks", "max_new_tokens"} & set(one.stage.options)
        changes |= {f"{one.name}.{option}": SMALLEST[option] for option in own}
    return {**changes, "prompts": 4, "eval_tasks": 0}


@pytest.mark.parametrize("name", ["confucius3-math", "mimo-7b"])
def test_recipes_of_the_box_run(name: str, tmp_path: Path) -> None:
    result = burnish.recipe(name, out=tmp_path / "out", **{k.replace(".", "__"): v for k, v in smallest(name).items()})
    assert all(one.done for one in result.stages) and result.stages[-1].numbers


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(set(boxed()) - {"confucius3-math", "mimo-7b"}))
def test_the_other_recipes_of_the_box_run(name: str, tmp_path: Path) -> None:
    test_recipes_of_the_box_run(name, tmp_path)


def test_the_list_and_the_papers_name_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe"]) == 0 and "12 recipes" in (said := capsys.readouterr().out)
    assert all(name in said for name in boxed())
    assert main(["recipe", "show", "tulu3"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["stages"]["dpo"]["method"] == "dpo_norm"
    rows = {(row["id"], row["kind"]): row["command"] for row in index()}
    assert rows["tulu3", "recipe"] == "burnish recipe tulu3" and "--chunk" in rows["chunk-rollout", "flag"]
    assert ("asyncflow", "flag") in rows


def test_from_python(tmp_path: Path) -> None:
    told = {**TOLD, "stages": {"sft": {"method": "sft"}}}
    result = burnish.recipe(told, out=tmp_path / "out", sft__steps=1, prompts=2)
    assert result["sft"].same["prompts"] == 2 and result.model_path.is_dir()
    with pytest.raises(KeyError, match="no stage 'rl'; there are sft"):
        result["rl"]
