"""Ranks that divide the weights themselves (--shard full, FSDP2) learn what one process learns.

One pair of ranks finds out everything that the fast tests ask about, because to start it takes longer than any of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import SMALL, build_method, credited, make_model, run_options_for, run_ranks
from guards import guards
from test_shard_laws import alone
from test_shard_laws import gradients as gradients_of_states
from torch import Tensor

from burnish.checkpoint import checkpoint
from burnish.core.method import Method
from burnish.core.roles import trained
from burnish.core.step import Settings, Step
from burnish.engine.request import Request
from burnish.learn.learn import accumulate, apply_gradient
from burnish.methods.table import METHODS
from burnish.models import loader as loading
from burnish.models import sharded_weights, shards, write_by_ranks
from burnish.models.build import Models, build
from burnish.models.layer_shards import held, is_divided, layers_of, whole_of
from burnish.models.loader import Loader
from burnish.models.lora import Lora, add_lora
from burnish.models.model import Model
from burnish.models.ranks import Ranks
from burnish.models.sharded_states import ShardedStates
from burnish.models.sharded_weights import ShardedWeights
from burnish.models.turns import DONE, Turns

pytestmark = guards("models", "learn", "core", "forward", "distributed", "checkpoint")
SECONDS = 280.0  # for everything that a group of ranks finds out
SETTINGS = replace(SMALL, token_budget=60)  # several passes, of which the ranks have different numbers
# Given replies, groups sampled from gathered weights, a critic; phases, pairs, a teacher, a reward model, refills.
KINDS, MORE = ("sft", "grpo", "ppo"), ("dpo", "archer", "opd", "reward_model", "dapo", "online_dpo")
Tensors = dict[str, Tensor]


def in_fp64() -> None:
    """Load models in fp64, and have transformers' norms, which go through fp32, compute in the same."""
    from transformers.models.llama import modeling_llama

    setattr(Loader, "_dtype", lambda self, role: torch.float64)  # noqa: B010 - a method, replaced in this process
    setattr(Loader, "_shared", lambda self, path: loading.load_model(path, 0, self.device, False, torch.float64))  # noqa: B010
    setattr(loading, "add_lora", lambda *how: add_lora(*how).double())  # noqa: B010 - as above

    def forward(self: Any, states: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(states, self.weight.shape, self.weight, self.variance_epsilon)

    modeling_llama.LlamaRMSNorm.forward = forward


def cast_of(method: Method, base: Path, settings: Settings, lora: int | None = None) -> Models:
    rank = lora or (run_options_for(method.name).get("lora") if method.name in METHODS else None)
    return build(method.models, base, settings, device="cpu", lora=Lora(rank) if rank else None)


def gradients(model: Model) -> Tensors:
    """A model's gradient, whole, on rank 0."""
    optimiser, found = model.optimiser, {}
    if isinstance(optimiser.states, ShardedStates):
        return gradients_of_states(model)
    for name, p in optimiser.named.items():
        own = optimiser.moved[name].grad
        if isinstance(optimiser.states, ShardedWeights):
            assert p.grad is None, "what FSDP2 has summed is handed over in each pass"
            whole = optimiser.states.whole_on(0, name, torch.zeros_like(optimiser.moved[name]) if own is None else own)
        else:
            whole = torch.zeros_like(p) if own is None else own.clone()
        found[name] = whole if whole is not None else torch.zeros(())
    return found


def weights(model: Model) -> Tensors:
    """A model's weights, whole, on rank 0."""
    whole = {name: whole_of(p, model.ranks, 0) for name, p in model.module.named_parameters()}
    return {name: torch.zeros(()) if w is None else w.clone() for name, w in whole.items()}


def learned(make: Callable[[], Method], model: Path, settings: Settings, lora: int | None) -> list[Tensors]:
    """Gradients and new weights of each phase, in fp64, from the same groups."""
    made, method = list[Tensors](), make()
    source = cast_of(method, model, replace(settings, shard="off", context_ranks=1), lora)
    alone(source)
    models = cast_of(method, model, settings, lora)
    if settings.shard == "off" and settings.context_ranks == 1:
        alone(models)
    if settings.shard == "full":
        assert all(is_divided(next(layers_of(m.module).parameters())) for m in models), "every model is divided"
    for phase, groups, now in credited(method, source):
        step = Step(now.clock, models, settings)
        for trainee in phase.learn.trainees:
            models[trainee].optimiser.zero()
        if not accumulate(groups, phase.learn, step):
            continue
        made += [gradients(models[trainee]) for trainee in phase.learn.trainees]
        apply_gradient(phase.learn, step)
        made += [weights(models[trainee]) for trainee in phase.learn.trainees]
    return made


def largest_difference(
    make: Callable[[], Method], model: Path, settings: Settings, lora: int | None = None, context: int = 1
) -> float:
    """Of gradients and weights, relative to the largest number of each tensor; on rank 0."""
    most = 0.0
    divided = replace(settings, shard="full") if context == 1 else replace(settings, context_ranks=context)
    ways = [learned(make, model, way, lora) for way in (replace(settings, shard="off"), divided)]
    assert any(value.any() for value in ways[0][0].values()), "there is a gradient"
    for one, two in zip(*ways, strict=True):
        assert one.keys() == two.keys()
        for key, value in one.items() if not dist.get_rank() else ():
            most = max(most, float((value - two[key]).abs().max() / value.abs().max().clamp_min(1e-9)))
    return most


def loaded(path: Path, outputs: int = 0, parts: int = 0) -> dict[str, Any]:
    """Whether a model that was read in parts gives the numbers of the whole one, and what this rank holds of it."""
    role = trained(outputs=outputs) if outputs else trained()
    row, mask = torch.arange(4, 16), torch.arange(12) > 0
    want = "value" if outputs else "logp"
    both = [
        build({"policy": role}, path, replace(SMALL, shard=shard, shard_ranks=parts), device="cpu")["policy"]
        for shard in ("off", "full")
    ]
    with torch.no_grad():
        one, two = (model.outputs([row], [mask], {want})[want] for model in both)
    module = both[1].module
    layers = [p for layer in layers_of(module) for p in layer.parameters()]
    share = sum(held(p).numel() for p in layers) / sum(p.numel() for p in layers)
    head = None if outputs else module.get_output_embeddings()  # type: ignore[operator]
    tied = head is not None and head.weight is module.get_input_embeddings().weight  # type: ignore[operator,union-attr]
    return {"apart": float((one - two).abs().max()), "share": share, "tied": tied}


def kept_gradients(path: Path) -> float:
    """The largest gradient of a layer's weight in a pass after sampling from gathered weights."""
    model = build({"policy": trained()}, path, replace(SMALL, shard="full"), device="cpu")["policy"]
    assert model.shards is not None
    model.generate([Request(torch.arange(4, 9), 0, 3, 1.0)])
    assert model.shards.gathered, "sampling leaves the weights gathered"
    row, mask = torch.arange(4, 16), torch.arange(12) > 0
    loss = -model.outputs([row], [mask], {"logp"})["logp"].sum()
    assert not model.shards.gathered, "a pass with gradient gathers layer by layer: it would lose them otherwise"
    model.shards.begin_backward()
    loss.backward()
    assert model.trainer is not None and model.trainer.states is not None
    model.trainer.states.finish()
    name = next(name for name in model.trainer.named if "layers.0" in name)
    grad = model.trainer.moved[name].grad
    return 0.0 if grad is None else float(grad.abs().max())


def saved(path: Path, teacher: Path, folder: Path) -> None:
    """A step of ppo, whose state the ranks write together; rank 0 also writes what one process has after it."""
    method = build_method("ppo", teacher)
    for shard in ("off", "full"):
        models = cast_of(method, path, replace(SETTINGS, shard=shard))
        source = cast_of(method, path, SETTINGS)
        alone(source)
        if shard == "off":
            alone(models)
        for phase, groups, now in credited(method, source):
            step = Step(now.clock, models, models_settings(models))
            for trainee in phase.learn.trainees:
                models[trainee].optimiser.zero()
            accumulate(groups, phase.learn, step)
            apply_gradient(phase.learn, step)
        names = [model.name for model in models if model.role.liveness != "frozen"]
        place = folder / shard
        if dist.get_rank() and shard == "full":
            shards.serve_once(models)
        elif not dist.get_rank():
            place.mkdir()
            others = partial(write_by_ranks.ask, models, names=names, product=False) if shard == "full" else None
            contents = checkpoint.collect(1, {}, models)
            checkpoint.write(place, contents, others) if others is not None else checkpoint.write(place, contents)
        dist.barrier()


def models_settings(models: Models) -> Settings:
    return replace(SETTINGS, shard="full" if write_by_ranks.divided(models) else "off")


def resumed(path: Path, teacher: Path, at: Path) -> float:
    """How far what ranks hold after reading a checkpoint of one process is from what is in it."""
    method = build_method("ppo", teacher)
    models = build(method.models, path, replace(SETTINGS, shard="full"), device="cpu", weights=at)
    checkpoint.restore(at, {}, models)
    most = 0.0
    for model in models.trained():
        states = model.optimiser.states
        assert isinstance(states, ShardedWeights)
        for key, whole in write_by_ranks.stored_states(at / model.name):
            kind, name = key.split("/", 1)
            if model.optimiser.moved[name].numel():
                own = model.optimiser.adamw.state[model.optimiser.moved[name]][kind]
                part = states.own_part(name, whole)
                assert own.shape == part.shape
                most = max(most, float((own - part).abs().max()) if part.numel() else 0.0)
    return most


def no_room(path: Path, folder: Path) -> str:
    """What is said where one rank cannot write, by all ranks."""
    models = build({"policy": trained()}, path, replace(SMALL, shard="full"), device="cpu")
    folder.mkdir(exist_ok=True)
    taken = folder / "policy"
    if dist.get_rank():
        taken.mkdir(exist_ok=True)
        (taken / ".rank1").write_text("a file where the rank needs a folder")
    dist.barrier()
    try:
        if dist.get_rank():
            shards.serve_once(models)
        else:
            write_by_ranks.ask(models, folder, ["policy"], product=False)
    except OSError as error:
        return str(error.strerror)
    return ""


def everything(model: Path, untied: Path, teacher: Path, folder: Path) -> dict[str, Any]:
    rank = dist.get_rank()
    found: dict[str, Any] = {"loaded": loaded(model), "untied": loaded(untied), "critic": loaded(model, 1)}
    found["kept"] = kept_gradients(model)
    found["no room"] = no_room(model, folder / "full-disk")
    in_fp64()
    how: dict[str, tuple[Settings, int | None]] = dict.fromkeys(KINDS, (SETTINGS, None))
    how |= {"lora": (SETTINGS, 4), "recompute": (replace(SETTINGS, checkpoint_activations="recompute"), None)}
    how |= {"one row": (replace(SETTINGS, prompts=1), None), "wide": (replace(SETTINGS, token_budget=4096), None)}
    found["differences"] = {
        name: largest_difference(partial(build_method, name if name in KINDS else "sft", teacher), model, *settings)
        for name, settings in how.items()
    }
    saved(model, teacher, folder)
    found["resumed"] = resumed(model, teacher, folder / "off" / "checkpoints" / "step-000001")
    found["rank"] = rank
    return found


def more(names: list[str], model: Path, teacher: Path) -> dict[str, float]:
    in_fp64()
    return {name: largest_difference(partial(build_method, name, teacher), model, SETTINGS) for name in names}


def in_groups(model: Path, untied: Path, teacher: Path) -> dict[str, Any]:
    """Four ranks in two groups, each of which holds all layers."""
    groups = replace(SETTINGS, shard_ranks=2)
    found: dict[str, Any] = {"loaded": [loaded(path, 0, 2) for path in (model, untied)], "norms": norms(model, teacher)}
    in_fp64()
    ways = {"sft": None, "ppo": None, "lora": 4}
    found["differences"] = {
        name: largest_difference(partial(build_method, "sft" if lora else name, teacher), model, groups, lora)
        for name, lora in ways.items()
    }
    return found


def norms(model: Path, teacher: Path) -> list[float]:
    """The norm of one gradient: of one process, of four ranks in a row, and of two groups of two."""
    made = []
    for how in ({"shard": "off"}, {"shard": "full"}, {"shard": "full", "shard_ranks": 2}):
        settings = replace(SETTINGS, **how)
        method = build_method("sft", teacher)
        source, models = cast_of(method, model, SETTINGS), cast_of(method, model, settings)
        alone(source)
        if settings.shard == "off":
            alone(models)
        for phase, groups, now in credited(method, source):
            step = Step(now.clock, models, settings)
            models["policy"].optimiser.zero()
            accumulate(groups, phase.learn, step)
            made.append(float(models["policy"].optimiser.clip()))
    return made


def work(rank: int, world: int, folder: Path, find: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Meet the other ranks, and leave what this one found."""
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    made = find(*arguments)
    (folder / f"found{rank}.json").write_text(json.dumps(made))
    dist.barrier()
    dist.destroy_process_group()


def found_by(world: int, folder: Path, find: Callable[..., Any], *arguments: Any) -> list[Any]:
    run_ranks(work, (world, folder, find, arguments), world, SECONDS)
    return [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def pair(small_model: Path, other_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """What two ranks found, and where they wrote."""
    folder = tmp_path_factory.mktemp("pair")
    untied = make_model(folder / "untied", tie_word_embeddings=False)
    for name in KINDS:
        build_method(name, other_model)
    return folder, found_by(2, folder, everything, small_model, untied, other_model, folder)


def test_divided_weights_learn_as_those_of_one_process(pair: tuple[Path, list[Any]]) -> None:
    """Gradients are sums, not means; ranks with fewer passes, or none, go along; adapters; layers computed twice."""
    for name, difference in pair[1][0]["differences"].items():
        assert difference < 1e-9, (name, difference)


def test_a_model_read_in_parts_is_the_whole_one(pair: tuple[Path, list[Any]]) -> None:
    """Also its rotary frequencies, its tied head and a fresh scoring head; each rank holds half of the layers."""
    for found in pair[1]:
        for name, tied in (("loaded", True), ("untied", False), ("critic", False)):
            made = found[name]
            assert made["apart"] < 1e-5 and made["tied"] == tied and 0.4 < made["share"] < 0.6, (name, made)


def test_gradients_are_not_lost_after_sampling(pair: tuple[Path, list[Any]]) -> None:
    for found in pair[1]:
        assert found["kept"] > 1e-3


def test_a_checkpoint_of_two_ranks_is_that_of_one(pair: tuple[Path, list[Any]]) -> None:
    """One directory that transformers loads, without pickle; and two ranks read what one process wrote."""
    from transformers import AutoModelForCausalLM

    folder, found = pair
    one, two = (folder / shard / "checkpoints" / "step-000001" for shard in ("off", "full"))
    assert not checkpoint.damage(two)
    assert len(list((two / "policy").glob("model-*.safetensors"))) == 2, "each rank has written"
    suffixes = {file.suffix for file in two.rglob("*") if file.is_file()}
    assert suffixes <= {".json", ".safetensors", ".jinja"}
    for name in ("policy", "critic"):
        whole, parts = (dict(write_by_ranks.stored_states(place / name)) for place in (one, two))
        assert whole.keys() == parts.keys()
        assert all(torch.allclose(whole[key], parts[key], rtol=1e-9, atol=1e-12) for key in whole)
    models = [AutoModelForCausalLM.from_pretrained(place / "policy", dtype=torch.float64) for place in (one, two)]
    for (name, p), q in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(p, q, rtol=1e-9, atol=1e-12), name
    assert [rank["resumed"] for rank in found] == [0.0, 0.0]


@pytest.mark.slow
def test_groups_of_ranks_that_each_hold_all_layers(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    """Their gradients and weights are those of one process, and so is the norm, which counts no copy twice."""
    untied = make_model(tmp_path / "untied", tie_word_embeddings=False)
    found = found_by(4, tmp_path, in_groups, small_model, untied, other_model)
    for name, difference in found[0]["differences"].items():
        assert difference < 1e-9, (name, difference)
    for rank in found:
        assert all(made["apart"] < 1e-5 and 0.4 < made["share"] < 0.6 for made in rank["loaded"])
        assert rank["norms"] == pytest.approx([rank["norms"][0]] * 3, rel=1e-5)


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_rank_that_cannot_write_is_named(pair: tuple[Path, list[Any]]) -> None:
    for found in pair[1]:
        assert found["no room"].startswith("rank 1 could not write it (")


def test_turns_are_taken_in_order_and_none_waits_for_ever() -> None:
    """Two ranks by hand: one wants kind 1 twice, the other kind 0 once; both end, and go along with each other."""
    made: dict[str, list[str]] = {"a": [], "b": []}
    wishes: dict[str, list[int]] = {"a": [0, 10_001, 10_001], "b": [0]}

    def lowest(who: str, wanted: int) -> int:
        others = {"a": wishes["b"], "b": wishes["a"]}[who]
        return min(wanted, others[0] if others else DONE)

    turns = Turns(partial(lowest, "b"))
    numbers = [turns.register(kind, partial(made["b"].append, f"along {kind}")) for kind in (0, 1)]
    assert numbers == [0, 10_001]
    turns.take(0)
    made["b"].append("own 0")
    wishes["a"].pop(0)
    turns.kinds[10_001] = lambda: (made["b"].append("along 1"), wishes["a"].pop(0))[0]
    turns.leave()
    assert made["b"] == ["own 0", "along 1", "along 1"] and not wishes["a"]


@pytest.mark.parametrize(("rank", "rows"), [(0, slice(0, 3)), (1, slice(3, 5))])
def test_a_rank_takes_its_rows_of_moments_in_the_shape_that_they_have(
    rank: int, rows: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 rows over 2 ranks are 3 and 2. AdamW keeps moments in the parameter's shape, AdamW in few bits flat."""
    monkeypatch.setattr(sharded_weights, "mesh_under", lambda weight: None)
    monkeypatch.setattr(sharded_weights, "part_of", lambda mesh: (rank, 2))
    states = ShardedWeights({}, Ranks(rank, 2))
    states.layers = {"w": torch.nn.Parameter(torch.zeros(5, 3))}
    whole = torch.arange(15.0).view(5, 3)
    assert torch.equal(states.own_part("w", whole), whole[rows])
    assert torch.equal(states.own_part("w", whole.view(-1)), whole[rows].reshape(-1))
    assert states.own_part("w", torch.tensor(7.0)).shape == ()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_kinds_and_four_ranks(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    for name in (*KINDS, *MORE):
        build_method(name, other_model)
    for world, names in ((2, [*MORE]), (4, [*KINDS])):
        folder = tmp_path / str(world)
        folder.mkdir()
        for name, difference in found_by(world, folder, more, names, small_model, other_model)[0].items():
            assert difference < 1e-9, (world, name, difference)
