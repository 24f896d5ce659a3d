"""Options carry help and range: each flag's help is its type's, and a value outside of the range is
refused beforehand.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import typing
from pathlib import Path
from typing import Annotated, Any

import pytest
from at_once import at_once
from conftest import task_for

import burnish
from burnish import credit, draw, learn, rollout, score, select
from burnish.cli import main
from burnish.compose.swap import PARTS, factories
from burnish.config.flags import flags_of_method
from burnish.config.options import Options, configure, method_fields, method_types, renamed
from burnish.core.method import Method, method, roles
from burnish.core.option import ANY, Option, options_of, typed
from burnish.methods.table import METHODS, entry_of, find

SHARE = Option("A share.", at_least=0, at_most=1)
UNRANGED = {  # numbers of which every finite one makes sense
    *(
        "copo.centre",
        "copo.gate",
        "aapo.margin_low",
        "aapo.margin_high",
        "aepo.above",
        "topr.baseline",
        "temporal_r1.least",
    ),
    *("clip_cov.low", "clip_cov.high", "cpgd.cut", "alphapo.alpha", "dno.floor", "arpo.alpha", "arpo.tau"),
    *("playpen_sft.win", "playpen_dpo.win", "playpen_grpo.win", "eef.win", "itool.enough"),  # rewards
    *("arpo_replay.above", "arpo_replay.flat", "arpo_replay.low", "agent_r.alpha", "agent_r.final"),
    "armap_reflexion.threshold",
    *("rest_mcts.gate", "rest_mcts_search.gate", "r_mcts_distill.above"),  # values and rewards
}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        (Option(at_least=1), 0, "it must be at least 1"),
        (Option(above=0), 0.0, "it must be above 0"),
        (Option(at_most=1), 2, "it must be at most 1"),
        (Option(below=0.5), 0.5, "it must be below 0.5"),
        (Option(above=0, at_most=1), 1.5, "it must be above 0 and at most 1"),
        (SHARE, -0.25, "it must be between 0 and 1"),
        (SHARE, math.nan, "it must be a finite number"),
        (SHARE, math.inf, "it must be a finite number"),
        (Option(at_least=0, unlimited=True), -math.inf, "it must be a finite number"),
        (Option(choices=("a", "b", "c")), "d", "it must be a, b or c"),
    ],
)
def test_a_value_outside_is_refused_in_one_sentence(option: Option, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^option 'x' is {re.escape(repr(value))}; {said}$"):
        option.check("x", value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (Option(at_least=1), 1),
        (SHARE, 0),
        (SHARE, 1.0),
        (SHARE, None),
        (Option(above=0), lambda clock: -1.0),  # a schedule
        (Option(at_least=0, unlimited=True), math.inf),
        (Option(choices=("a", "b")), "b"),
        (Option(choices=("a", "b")), None),
        (Option(at_least=1), True),
        (ANY, -5.0),
    ],
)
def test_a_value_inside_is_accepted(option: Option, value: Any) -> None:
    option.check("x", value)


def test_an_option_is_found_in_its_type() -> None:
    assert typed(Annotated[float, SHARE]) == (float, SHARE) and typed(int) == (int, ANY)
    assert typed(Annotated[int | None, "other", SHARE]) == (int | None, SHARE)


# ------------------------------------------------------------------------------------------------------- every method


@at_once("name", sorted(METHODS))
def test_every_option_of_a_method_has_its_help_and_its_range(name: str) -> None:
    kinds = {key: typed(kind) for key, kind in method_types(METHODS[name]).items()}
    for key in method_fields(METHODS[name]):
        kind, option = kinds[key]
        assert option.help.endswith(".") and option.help[0].isupper(), f"--{key} of {name} has no help: {option.help!r}"
        number = {int, float} & {kind, *typing.get_args(kind)}
        assert option.limited or not number or f"{name}.{key}" in UNRANGED, f"--{key} of {name} has no range"


@at_once("name", sorted(METHODS))
def test_a_default_lies_within_its_own_range(name: str) -> None:
    options = options_of(METHODS[name].build)
    for key, parameter in method_fields(METHODS[name]).items():
        if parameter.default is not parameter.empty:
            options[key].check(key, parameter.default)


@at_once("name", sorted(METHODS))
def test_the_help_of_a_flag_is_that_of_its_type(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = options_of(METHODS[name].build)
    assert {flag.name: flag.help for flag in flags_of_method(METHODS[name])} == {
        key: options[key].help for key in method_fields(METHODS[name])
    }
    page = (Path(burnish.__file__).parents[2] / "docs" / "methods" / f"{name}.md").read_text()
    for option in options.values():
        assert f"| {option.help} |" in page, f"docs/methods/{name}.md is old; run scripts/write_method_docs.py"


def test_show_and_help_print_the_types_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for words in (["show", "grpo"], ["train", "grpo", "--help"]):
        assert main(words) == 0
        printed = capsys.readouterr().out
        for flag in flags_of_method(METHODS["grpo"]):
            assert flag.help in printed


# ----------------------------------------------------------------------------------------------------- refused values

BAD = [
    ("grpo", "lr", -1, "at least 0"),
    ("grpo", "clip", -1, "at least 0"),
    ("grpo", "weight_decay", -0.1, "at least 0"),
    ("grpo", "eval_tasks", -1, "at least 0"),
    ("grpo", "eval_every", -1, "at least 0"),
    ("grpo", "save_every", -1, "at least 0"),
    ("grpo", "record", -1, "at least 0"),
    ("grpo", "lag", -1, "at least 0"),
    ("grpo", "lr_warmup", -1, "at least 0"),
    ("grpo", "steps", 0, "at least 1"),
    ("grpo", "prompts", 0, "at least 1"),
    ("grpo", "max_new_tokens", 0, "at least 1"),
    ("grpo", "keep", 0, "at least 1"),
    ("grpo", "token_budget", 0, "at least 1"),
    ("grpo", "lora", 0, "at least 1"),
    ("grpo", "kv_gib", 0, "above 0"),
    ("grpo", "lr_schedule", "zigzag", "constant, linear or cosine"),
    ("grpo", "on_nan", "cry", "skip or stop"),
    ("grpo", "engine", "sglang", "local, process or vllm"),
    ("grpo", "temperature", 0, "above 0"),
    ("grpo", "temperature", -1, "above 0"),
    ("grpo", "beta", -5, "at least 0"),
    ("grpo", "eps", -0.2, "at least 0"),
    ("grpo", "n", 1, "at least 2"),
    ("rloo", "n", 1, "at least 2"),
    ("dapo", "n", 1, "at least 2"),
    ("online_dpo", "n", 1, "at least 2"),
    ("ppo", "n", 0, "at least 1"),
    ("ppo", "updates", 0, "at least 1"),
    ("ppo", "minibatches", 0, "at least 1"),
    ("ppo", "lam", 1.5, "between 0 and 1"),
    ("ppo", "gamma", -0.1, "between 0 and 1"),
    ("ppo", "critic_lr", 9e-6, "at least 0.01: it is a factor of --lr"),
    ("dpo", "beta", 0, "above 0"),
    ("tis", "level", "word", "token or sequence"),
]


@at_once(("name", "key", "value", "said"), BAD)
def test_a_bad_value_is_refused_before_anything_is_loaded(
    name: str, key: str, value: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = f"option {key!r} is {value!r}; it must be {said}"
    flag = f"--{key.replace('_', '-')}={value}"
    assert main(["train", name, "--model", "no-such-model", "--out", str(tmp_path / "run"), flag]) == 2
    printed = capsys.readouterr().err
    shown = (
        sentence if isinstance(value, str) else f"option {key!r} is {_as_typed(name, key, value)}; it must be {said}"
    )
    assert shown in " ".join(printed.split()) and "Traceback" not in printed
    (tmp_path / "run.yaml").write_text(f"method: {name}\n{key}: {value}\n")
    assert main(["train", str(tmp_path / "run.yaml"), "--model", "no-such-model"]) == 2
    assert shown in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match=re.escape(shown)):
        burnish.train(name, model="no-such-model", out=str(tmp_path / "run"), **{key: value})
    if key in method_fields(find(name)):
        with pytest.raises(ValueError, match=re.escape(f"{name}: {sentence}")):
            find(name).build(task_for(name), **{key: value})
    assert not (tmp_path / "run").exists()


def _as_typed(name: str, key: str, value: Any) -> Any:
    """The value as its option holds it: -1 is -1.0 for a float."""
    kinds = {**typing.get_type_hints(Options, include_extras=True), **method_types(find(name))}
    kind, _ = typed(kinds[key])
    return float(value) if float in {kind, *typing.get_args(kind)} else value


def test_every_number_among_the_options_of_a_run_has_a_range() -> None:
    kinds = typing.get_type_hints(Options, include_extras=True)
    for field in dataclasses.fields(Options):
        kind, option = typed(kinds[field.name])
        number = {int, float} & {kind, *typing.get_args(kind)}
        unbounded = ("seed", "stop_at")  # a held-out score may be any number
        assert option.limited or not number or field.name in unbounded, f"--{field.name} has no range"
        option.check(field.name, field.default)


def test_a_users_function_is_checked_like_a_registered_method() -> None:
    def mine(task: draw.Source, *, n: Annotated[int, Option("Replies.", at_least=2)] = 4, plain: int = 3) -> Method:
        learned = learn.Learn(learn.imitate(on="demo"))
        return method(draw=draw.demos(task), rollout=rollout.given("demo"), learn=learned, models=roles())

    mine.__annotations__ = typing.get_type_hints(mine, include_extras=True, localns=locals())
    entry = entry_of(mine)
    assert entry.build(task_for("sft"), n=2, plain=-1).name == "mine"
    with pytest.raises(ValueError, match="mine: option 'n' is 1; it must be at least 2"):
        entry.build(task_for("sft"), n=1)
    with pytest.raises(ValueError, match="option 'n' is 1; it must be at least 2"):
        configure(entry, "mine", {"n": "1"})
    assert [flag.help for flag in flags_of_method(entry)] == ["Replies.", ""]


# -------------------------------------------------------------------------------------------------------- public names

STAGES = {"draw": draw, "rollout": rollout, "score": score, "select": select, "credit": credit, "learn": learn}


@pytest.mark.parametrize("stage", STAGES)
def test_every_public_factory_of_a_stage_is_documented_and_has_one_name(stage: str) -> None:
    package = STAGES[stage]
    assert package.__doc__ and sorted(package.__all__) == sorted(set(package.__all__))
    for module in pkgutil.walk_packages(package.__path__, f"burnish.{stage}."):
        for name, found in vars(importlib.import_module(module.name)).items():
            own = inspect.isfunction(found) and found.__module__ == module.name and not name.startswith("_")
            if own and inspect.signature(found).return_annotation in PARTS:
                assert inspect.getdoc(found), f"{module.name}.{name} has no docstring"
                if name in package.__all__:  # which names a stage exports: tests/laws/test_zoo.py
                    assert getattr(package, name) is found and factories()[name] is found


def test_a_stages_names_are_listed_on_the_page_of_parts() -> None:
    page = (Path(burnish.__file__).parents[2] / "docs" / "methods" / "parts.md").read_text()
    for stage, package in STAGES.items():
        for name in package.__all__:
            assert f"`{stage}.{name}" in page, (
                f"docs/methods/parts.md lacks {stage}.{name}; run scripts/write_method_docs.py"
            )


# ------------------------------------------------------------------------------------------------------------ old runs


def test_updates_had_another_name_before() -> None:
    assert renamed(find("ppo"), {"epochs": 3, "n": 2}) == {"updates": 3, "n": 2}
    assert renamed(find("ppo"), {"epochs": 3, "updates": 4}) == {"epochs": 3, "updates": 4}
    assert renamed(find("dpo"), {"epochs": 3}) == {"epochs": 3}
