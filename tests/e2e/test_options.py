"""Every option of a run reaches what it is for. An option without a row in one of the tables here fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import COIN, function, go, saved, tensors

import burnish
from burnish.config.options import Config, Options, configure
from burnish.core.types import Clock
from burnish.learn.norms import token_mean
from burnish.methods.table import find
from burnish.run.train import Observer, Result, Run, prepare
from burnish.store.reader import open_store
from burnish.tasks.table import source

TESTS = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Reached:
    """A value that is not the default, and what it makes of a run before its first step."""

    value: Any
    seen: Callable[[Run], Any]
    wanted: Any
    beside: dict[str, Any] = dataclasses.field(default_factory=dict)


def at_step(step: int) -> Clock:
    return Clock(step, 2)


def policy(run: Run) -> Any:
    return run.models["policy"]


BUILT: dict[str, Reached] = {
    "lr": Reached(0.25, lambda run: policy(run).optimiser.lr(at_step(0)), 0.25),
    "lr_schedule": Reached("linear", lambda run: policy(run).optimiser.lr(at_step(1)), 0.5e-3),
    "lr_warmup": Reached(2, lambda run: policy(run).optimiser.lr(at_step(0)), 0.5e-3),
    "lr_min": Reached(0.5, lambda run: policy(run).optimiser.lr(at_step(1)), 0.75e-3, {"lr_schedule": "linear"}),
    "weight_decay": Reached(0.3, lambda run: policy(run).optimiser.settings.weight_decay, 0.3),
    "clip": Reached(0.3, lambda run: policy(run).optimiser.settings.clip, 0.3),
    "token_budget": Reached(123, lambda run: run.settings.token_budget, 123),
    "packed": Reached(False, lambda run: policy(run).packed, False),
    "kv_gib": Reached(0.5, lambda run: policy(run).kv_budget, 2**29),
    "exact": Reached(True, lambda run: policy(run).exact, True, {"model": "tiny"}),
    "checkpoint_activations": Reached(True, lambda run: policy(run).activations, "recompute"),
    "lag": Reached(1, lambda run: (run.pipeline is not None, run.settings.lag), (True, 1)),
    "chunk": Reached(2, lambda run: run.settings.chunk, 2),
    "lora": Reached(3, lambda run: _ranks(run), {3}),
    "engine": Reached("process", lambda run: policy(run).engine_spec is not None, True),
    "on_mismatch": Reached("warn", lambda run: policy(run).engine_spec.on_mismatch, "warn", {"engine": "process"}),
    "reward": Reached("COIN", lambda run: run.source.rewarded_by, "function"),
    "reward_timeout": Reached(7.0, lambda run: run.source.scoring.reward.seconds, 7.0, {"reward": "COIN"}),
    "reward_workers": Reached(2, lambda run: run.source.scoring.graders is not None, True, {"reward": "COIN"}),
    "on_reward_failure": Reached("drop", lambda run: run.source.drop_failed, True, {"reward": "COIN"}),
    "swap": Reached("pg=pg_clip(0.2)", lambda run: run.method.phases[0].learn.terms[0].norm, token_mean),
    "tool_parser": Reached("glm", lambda run: policy(run).chat.reader.format.name, "glm"),
    "tool_timeout": Reached(2.0, lambda run: tool_env(run).seconds, 2.0, {"tools": "textwrap:dedent"}),
    "device": Reached("cpu", lambda run: policy(run).device.type, "cpu"),
    "seed": Reached(5, lambda run: run.config.options.seed, 5),
}


def tool_env(run: Run) -> Any:
    return run.source.task("train", 0).given["env"]()


def _ranks(run: Run) -> set[int]:
    return {p.shape[0] for name, p in policy(run).module.named_parameters() if "lora_A" in name}


@pytest.mark.parametrize("name", sorted(BUILT))
def test_an_option_is_built_into_the_run(name: str, small_model: Path, tmp_path: Path) -> None:
    row = BUILT[name]
    if name == "lora":
        pytest.importorskip("peft")
    options: dict[str, Any] = {"task": "sort", "steps": 2, "prompts": 2, "max_new_tokens": 6, "lr": 1e-3, "n": 2}
    options |= {"device": "cpu", "model": str(small_model), "out": str(tmp_path / "run"), **row.beside, name: row.value}
    options = {
        key: function(tmp_path / "r.py", COIN, "coin") if value == "COIN" else value for key, value in options.items()
    }
    run = prepare(find("grpo"), configure(find("grpo"), "grpo", options))
    try:
        assert row.seen(run) == row.wanted
    finally:
        run.models.end()


def lengths(result: Result) -> list[int]:
    return [row["length"] for row in result.store.sql("SELECT length FROM traces")]


def texts(result: Result) -> list[str]:
    return [row["text"] for row in result.store.sql("SELECT text FROM traces ORDER BY id")]


def prompts(result: Result) -> list[str]:
    return [row["prompt"] for row in result.store.sql("SELECT prompt FROM groups ORDER BY id")]


def heldout(result: Result) -> list[int]:
    return [row["step"] for row in result.metrics if any(name.startswith("heldout/") for name in row)]


MEASURED: dict[str, Any] = {"eval_tasks": 2, "eval_every": 1, "steps": 4}  # a random model scores 0 at every step
RAN: dict[str, tuple[dict[str, Any], Callable[[Result], Any], Any]] = {
    "steps": ({"steps": 3}, lambda result: len(result.metrics), 3),
    "prompts": ({"prompts": 3}, lambda result: len(prompts(result)), 6),
    "max_new_tokens": ({"max_new_tokens": 3}, lambda result: max(lengths(result)), 3),
    "eval_tasks": ({"eval_tasks": 5}, lambda result: len(result.after.shown) if result.after else None, 5),
    "eval_every": ({"eval_tasks": 2, "eval_every": 2, "steps": 5}, heldout, [2, 4]),
    "save_every": ({"save_every": 2, "steps": 3}, lambda result: len(saved(result.folder)), 2),
    "keep": ({"keep": 1, "steps": 3}, lambda result: len(saved(result.folder)), 1),
    "keep_every": ({"keep": 1, "keep_every": 2, "steps": 5}, lambda result: len(saved(result.folder)), 3),
    "keep_best": ({**MEASURED, "keep": 1, "keep_best": False}, lambda result: len(saved(result.folder)), 1),
    "patience": ({**MEASURED, "patience": 2}, lambda result: len(result.metrics), 3),
    "stop_at": ({**MEASURED, "stop_at": 0.0}, lambda result: len(result.metrics), 1),
    "product": (
        {**MEASURED, "keep": 1, "product": "best"},
        lambda result: (
            tensors(result.folder / "model")
            == {name: t for name, t in tensors(result.folder / "best").items() if not name.startswith("optim")}
        ),
        True,
    ),
    "run_name": ({"run_name": "first"}, lambda result: result.store.config()["run_name"], "first"),
    "tag": ({"tag": "a,b"}, lambda result: result.store.config()["tag"], "a,b"),
    "record": ({"record": 2}, lambda result: len(texts(result)), 4),
}


@pytest.mark.parametrize("name", sorted(RAN))
def test_an_option_is_seen_in_what_a_run_leaves(name: str, small_model: Path, tmp_path: Path) -> None:
    more, seen, wanted = RAN[name]
    assert seen(go("grpo", small_model, tmp_path / "run", **more)) == wanted


@pytest.fixture(scope="module")
def plain(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return go("grpo", small_model, tmp_path_factory.mktemp("plain") / "run")


def test_seed_task_and_model_change_what_is_asked_and_said(
    plain: Result, small_model: Path, other_model: Path, tmp_path: Path
) -> None:
    other_seed = go("grpo", small_model, tmp_path / "seed", seed=1)
    assert prompts(other_seed) != prompts(plain) and texts(other_seed) != texts(plain)
    assert prompts(go("grpo", small_model, tmp_path / "task", task="reverse")) != prompts(plain)
    other = go("grpo", other_model, tmp_path / "model")
    assert prompts(other) == prompts(plain) and texts(other) != texts(plain)
    assert plain.folder.name == "run" and other.folder == tmp_path / "model"


@pytest.mark.parametrize(
    "more", [{"lr": 2e-3}, {"weight_decay": 0.5}, {"clip": 1e-3}, {"lr_warmup": 9}, {"lr_schedule": "linear"}]
)
def test_the_optimisers_options_move_the_weights_elsewhere(
    more: dict[str, Any], small_model: Path, tmp_path: Path
) -> None:
    coin = {"reward": function(tmp_path / "r.py", COIN, "coin"), "n": 4, "prompts": 4}
    one, other = (go("grpo", small_model, tmp_path / name, **coin, **told) for name, told in (("a", {}), ("b", more)))
    assert tensors(one.folder / "model") != tensors(other.folder / "model")


def test_adapters_are_merged_where_that_is_asked_for(small_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    for merge in (False, True):
        result = go("grpo", small_model, tmp_path / str(merge), lora=2, merge=merge)
        assert result.model is not None
        assert (result.model / "adapter_config.json").exists() != merge


def test_a_batch_that_is_not_finite_is_skipped_or_stops_the_run(small_model: Path, tmp_path: Path) -> None:
    reward = function(tmp_path / "r.py", "def f(completions):\n    return [float('nan')] * len(completions)\n", "f")
    with pytest.raises(ValueError, match="learned nothing, so no model is saved: every update of its 2 steps"):
        go("grpo", small_model, tmp_path / "skip", reward=reward, on_nan="skip")
    with open_store(tmp_path / "skip") as store:
        assert [event["step"] for event in store.events() if event["kind"] == "refused"] == [1, 2]
    with pytest.raises(FloatingPointError, match="refused"):
        go("grpo", small_model, tmp_path / "stop", reward=reward, on_nan="stop")


class Stumbling(Observer):
    """Fails when it hears of a step, or before the first."""

    def __init__(self, at: int) -> None:
        self.at = at

    def started(self, run: Run) -> None:
        if self.at < 0:
            raise RuntimeError("before the first step")

    def stepped(self, report: Any, heldout: dict[str, float], seconds: float) -> None:
        if report.clock.step == self.at:
            raise RuntimeError("after a step")


def test_a_run_that_fails_before_its_first_step_leaves_no_folder(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="before"):
        go("grpo", small_model, tmp_path / "none", observer=Stumbling(-1))
    assert not (tmp_path / "none").exists()
    with pytest.raises(RuntimeError, match="after"):
        go("grpo", small_model, tmp_path / "some", observer=Stumbling(1))
    assert (tmp_path / "some" / "config.yaml").exists()


ELSEWHERE = {  # options whose proof stands in another file, because it needs what is there
    "models/test_lora.py": {"lora_alpha", "lora_dropout", "lora_targets", "lora_variant", "lora_save"},
    "learn/test_preference_diagnostics.py": {"diagnose_every"},
    "compose/test_scorer_failures.py": {"max_reward_failures", "shape"},
    "e2e/test_data_runs.py": {"columns", "epochs", "max_length", "on_long", "train_on", "eval_k", "eval_temperature"},
    "e2e/test_ray.py": {
        "on",
        "samplers",
        "graders",
        "spares",
        "order",
        "ray_address",
        "replacements",
        "recover_within",
    },
    "e2e/test_agent_runs.py": {"agent", "agent_pays", "draw", "env_timeout", "tools", "turns"},
    "e2e/test_environment_processes.py": {"env_process"},
    "rollout/test_cut_turns.py": {"cut_turn"},
    "e2e/test_dtype.py": {"dtype"},
    "e2e/test_rank_runs.py": {"ranks", "shard", "rank_timeout", "elastic"},
    "laws/test_context_laws.py": {"context_ranks", "shard_ranks"},
    "e2e/test_early_stopping.py": {"eval_measure"},
    "models/test_compact_adamw.py": {"optimiser", "master_weights"},
    "run/test_memory_plan.py": {"memory"},
    "forward/test_nf4.py": {"quantization"},
    "e2e/test_seat_runs.py": {"opponent", "seat"},
    "distributed/test_ray_units.py": {"unit"},
    "e2e/test_vllm.py": {"vllm_python"},
    "e2e/test_watching.py": {"log"},
    "rollout/test_run_sampling.py": {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"},
    "rewards/test_oracles.py": {"preference"},
    "e2e/test_picture_runs.py": {"only"},
    "tasks/test_fetched_pictures.py": {"allow_urls"},
    "e2e/test_drawing_runs.py": {"denoise_steps", "sampler", "denoise_noise", "guidance", "reduce"},
    "e2e/test_masked_runs.py": {"view", "unmask_block", "unmask_per_step", "unmask_places"},
    "compose/test_played_on.py": {"train_when", "step_deadline"},
    "models/test_chat_template.py": {"chat_template", "system_prompt", "template_option"},
}
WITHOUT_A_TEST = {
    "call_timeout",
    "threads",
}  # they limit actors of Ray that live but hang, and what actors compute with
HERE = {"model", "task", "out", "merge", "on_nan"}  # each has a test of its own above


def test_every_option_has_a_test() -> None:
    options = {field.name for field in dataclasses.fields(Options)}
    elsewhere = set().union(*ELSEWHERE.values())
    assert options - BUILT.keys() - RAN.keys() - elsewhere - HERE == WITHOUT_A_TEST
    for file, names in ELSEWHERE.items():
        text = (TESTS / file).read_text().replace("-", "_")
        assert not [name for name in names if name not in text], file


def test_what_the_settings_share_with_the_options_is_passed_on() -> None:
    options = Options(prompts=3, lag=2, clip=0.5, lr=0.125, token_budget=77, max_new_tokens=9)
    settings = options.settings(find("grpo").build(source("add")))
    assert (settings.prompts, settings.lag, settings.clip, settings.lr, settings.token_budget) == (3, 2, 0.5, 0.125, 77)


def test_a_run_made_when_updates_were_called_epochs_is_resumed(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config.yaml has `epochs`; the resumed run equals one that goes straight through."""
    written = Config.to_dict

    def before(config: Config) -> dict[str, Any]:
        return {"epochs" if key == "updates" else key: value for key, value in written(config).items()}

    with monkeypatch.context() as old:
        old.setattr(Config, "to_dict", before)
        go("ppo", small_model, tmp_path / "old", n=2, updates=2, steps=1)
    assert "epochs: 2" in (tmp_path / "old" / "config.yaml").read_text()
    resumed = burnish.resume(tmp_path / "old", steps=2)
    straight = go("ppo", small_model, tmp_path / "new", n=2, updates=2, steps=2)
    assert resumed.metrics == straight.metrics and len(resumed.metrics) == 2
    assert tensors(tmp_path / "old" / "model") == tensors(tmp_path / "new" / "model")
