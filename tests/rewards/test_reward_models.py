"""Reward models end to end: several outputs saved and loaded, checkpoints of transformers, rewards by name, moves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import transformers
from conftest import SMALL, build_cast, make_model
from transformers import AutoModelForSequenceClassification

from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop, run_phase
from burnish.core.roles import Role, frozen, trained
from burnish.core.seeds import rng
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.reward import grade_of, rating_of
from burnish.learn.reward_head import head_of
from burnish.methods.table import find
from burnish.models.build import Models, build
from burnish.models.save import save_directory
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.read import named_rewards, split_rewards
from burnish.score import aggregate
from burnish.score.data import among, beside
from burnish.score.heads import GroupWeights, Scale, end_outputs
from burnish.score.written import calculated, prefix_rewards
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored
from burnish.zoo.armorm import fitted
from burnish.zoo.contrast_instructions import hull, perturbed, plane
from burnish.zoo.maxmin_rlhf import Clusters
from burnish.zoo.secrets_of_rlhf_ii import Cuts

TASK = source("sort")


def reward_model(path: Path, outputs: int, kind: str = "Llama", seed: int = 3) -> Path:
    """A sequence-classification checkpoint as transformers writes it, with a head that says something."""
    make_model(path, seed=seed, kind=kind)
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=outputs, trust_remote_code=False)
    assert type(model).__name__ == f"{kind}ForSequenceClassification"
    torch.manual_seed(seed)
    torch.nn.init.normal_(model.score.weight, std=0.5)
    model.save_pretrained(path)
    return path


def scored(models: Models, rows: list[list[int]], output: str = "score") -> torch.Tensor:
    traces = [Trace((Turn(torch.tensor(row[:2]), "task"), Turn(torch.tensor(row[2:]), "demo"))) for row in rows]
    return end_outputs(traces, Step(Clock(0, 1), models, SMALL), "rm", output)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Gemma"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_checkpoints_of_transformers_load_as_they_are(kind: str, outputs: int, tmp_path: Path) -> None:
    path = reward_model(tmp_path / "rm", outputs, kind)
    models = build({"rm": frozen(str(path), outputs=1)}, path, SMALL, device="cpu")
    rows = [[5, 6, 7, 8, 9], [5, 6, 20]]
    own = AutoModelForSequenceClassification.from_pretrained(path, trust_remote_code=False).eval()
    with torch.no_grad():
        theirs = torch.cat([own(input_ids=torch.tensor([row])).logits for row in rows])
    assert torch.allclose(scored(models, rows).float(), theirs, atol=1e-4)
    by_hand = scored(models, rows, "state") @ head_of(models["rm"]).double().T
    assert torch.allclose(by_hand, scored(models, rows), atol=1e-5), "the score is linear in the state"


def test_several_outputs_are_saved_and_loaded(small_model: Path, tmp_path: Path) -> None:
    method = find("reward_ensemble").build(TASK, heads=3)
    models = build_cast(method, small_model)
    next(loop(method, models, SMALL, steps=1))
    save_directory(models["rm"].module, models["rm"].chat, tmp_path / "rm")
    assert json.loads((tmp_path / "rm" / "config.json").read_text())["architectures"] == [
        "LlamaForSequenceClassification"
    ]
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm", trust_remote_code=False)
    assert loaded.config.num_labels == 3 and loaded.score.weight.shape[0] == 3
    again = build({"rm": frozen(str(tmp_path / "rm"), outputs=1)}, small_model, SMALL, device="cpu")
    rows = [[5, 6, 7, 8]]
    assert torch.equal(scored(again, rows), scored(models, rows)) and scored(again, rows).shape == (1, 3)


def test_another_number_of_outputs_means_a_fresh_head_on_the_same_backbone(tmp_path: Path) -> None:
    path = reward_model(tmp_path / "rm", 1)
    kept = build({"rm": Role("frozen", "base", outputs=5)}, path, SMALL, device="cpu")["rm"]
    assert head_of(kept).shape[0] == 1, "a frozen one keeps its head"
    fresh = build({"rm": trained(outputs=4)}, path, SMALL, device="cpu")["rm"]
    assert head_of(fresh).shape[0] == 4
    names = dict(kept.module.named_parameters())
    for name, weight in fresh.module.named_parameters():
        assert name == "score.weight" or torch.equal(weight, names[name]), name


# ------------------------------------------------------------------------------------------------- rewards by name

REWARDS = {
    "ensemble": (3, "how=worst"),
    "weighted": (2, "weights=[1, -0.5]"),
    "brme": (5, "share=0.4"),
    "maxmin": (2, "eta=0.1"),
    "armorm": (4, ""),
    "better_than": (1, ""),
    "discriminated": (1, "shortest=0.01"),
    "pessimistic": (1, "coef=0.2, rows=4"),
    "fused": (1, "least=-1, rows=4"),
    "vpl": (11, "pairs=2"),
    "polar": (1, ""),
    "corrector": (0, ""),
    "themis": (0, ""),
    "goal": (1, "rows=4, skip=1"),
}


@pytest.mark.parametrize("name", REWARDS)
def test_any_method_takes_the_reward(name: str, small_model: Path, tmp_path: Path) -> None:
    outputs, options = REWARDS[name]
    path = reward_model(tmp_path / "rm", outputs) if outputs else make_model(tmp_path / "rm", seed=4)
    _, scorers = split_rewards(read_rewards(f"{name}({path}{', ' if options else ''}{options})*2"))
    method = with_scorers(find("grpo").build(unscored(TASK), n=2), named_rewards(scorers, TASK), [])
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    traces = [trace for group in report.groups["main"] for trace in group.traces]
    found = [trace.scores[f"reward/{name}"] for trace in traces]
    assert all(map(math.isfinite, found))
    assert len(set(found)) > 1 or name == "corrector"  # a random one would change every token: -1
    assert [trace.scores["reward"] for trace in traces] == pytest.approx([2 * x for x in found])


@pytest.mark.parametrize(("at", "over"), [("end", "last"), ("steps", "mean"), ("tokens", "min"), ("tokens", "last")])
def test_a_reward_model_scores_the_end_the_lines_or_all_tokens(
    at: str, over: str, small_model: Path, tmp_path: Path
) -> None:
    path = reward_model(tmp_path / "rm", 1)
    named = named_rewards(split_rewards(read_rewards(f"rm({path}, at={at}, over={over})"))[1], TASK)
    models = build({"rm": frozen(str(path), outputs=1)}, small_model, SMALL, device="cpu")
    step, chat = Step(Clock(0, 1), models, SMALL), models["rm"].chat
    prompt = Turn(chat.prompt(Task("q", "?", {}, "?")), "task")
    trace = Trace((prompt, Turn(chat.reply("one\ntwo"), "policy", parent=prompt)))
    named[0].scorer.part.call([Group(Task("q", "?", {}, "?"), [trace])], step)
    mask = torch.arange(len(trace)) >= len(prompt)
    every = models["rm"].streams([trace], [mask], {"score"}, 4096)[0]["score"]
    end, line = len(trace) - 1, len(prompt) + 3
    places = {"end": [end], "steps": [line, end], "tokens": list(range(len(prompt), len(trace)))}[at]
    some = every[places].double()
    wanted = {"last": some[-1], "mean": some.mean(), "min": some.min()}[over]
    assert trace.scores["reward/rm"] == pytest.approx(wanted.item(), abs=1e-5)


def test_several_directories_are_several_members(small_model: Path, tmp_path: Path) -> None:
    paths = [reward_model(tmp_path / f"rm{i}", 1, seed=i) for i in (3, 4)]
    _, scorers = split_rewards(read_rewards(f"ensemble({paths[0]}, {paths[1]}, how=mean, normalise=0)"))
    method = with_scorers(find("grpo").build(unscored(TASK), n=2), named_rewards(scorers, TASK), [])
    assert {"ensemble1", "ensemble2"} <= method.models.keys()
    models = build_cast(method, small_model)
    report = next(loop(method, models, SMALL, steps=1))
    trace = report.groups["main"][0].traces[0]
    step = Step(Clock(0, 1), models, SMALL)
    each = [end_outputs([trace], step, name).item() for name in ("ensemble1", "ensemble2")]
    assert trace.scores["reward"] == pytest.approx(sum(each) / 2, abs=1e-5) and each[0] != pytest.approx(each[1])


def test_a_model_with_several_outputs_is_not_one_reward(small_model: Path, tmp_path: Path) -> None:
    path = reward_model(tmp_path / "rm", 2)
    method = find("grpo").build(TASK, n=2, reward_model=str(path))
    with pytest.raises(ValueError, match="gives 2 scores, not one; say how they become one"):
        next(loop(method, build_cast(method, small_model), SMALL, steps=1))


def test_wrong_numbers_of_outputs_are_named(small_model: Path, tmp_path: Path) -> None:
    path = reward_model(tmp_path / "rm", 2)
    for name, said in (("brme", "1 . 2 x heads"), ("vpl", "1 . 5 x latent"), ("weighted", "weights, but its models")):
        options = ", weights=[1]" if name == "weighted" else ""
        _, scorers = split_rewards(read_rewards(f"{name}({path}{options})"))
        method = with_scorers(find("grpo").build(unscored(TASK), n=2), named_rewards(scorers, TASK), [])
        with pytest.raises(ValueError, match=said):
            next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    with pytest.raises(ValueError, match="ensemble needs the directory"):
        named_rewards(split_rewards(read_rewards("ensemble"))[1], TASK)


def test_members_are_put_on_one_scale_and_held_there() -> None:
    """First scores 1, 3 and 10, 30: means 2, 20 and deviations 1, 10."""
    scale = Scale(2)
    assert scale(torch.tensor([[1.0, 10.0], [3.0, 30.0]])).tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    assert scale(torch.tensor([[5.0, 20.0]])).tolist() == [[3.0, 0.0]]
    again = Scale(2)
    again.load_state_dict(json.loads(json.dumps(scale.state_dict())))
    assert again(torch.tensor([[5.0, 20.0]])).tolist() == [[3.0, 0.0]]


def test_weights_of_groups_follow_the_worst() -> None:
    """Means 1 and 0, eta log 3: weights (1/4, 3/4); again: (1/10, 9/10). A large eta is the worst group alone."""
    scores, weights = torch.tensor([[2.0, 0.0], [0.0, 0.0]], dtype=torch.float64), GroupWeights(math.log(3))
    assert weights(scores).tolist() == pytest.approx([0.5, 0.0])
    again = GroupWeights(math.log(3))
    again.load_state_dict(json.loads(json.dumps(weights.state_dict())))
    assert again(scores).tolist() == pytest.approx([0.2, 0.0])
    assert GroupWeights(1e6)(scores).tolist() == pytest.approx(aggregate.worst_group(scores).tolist())


# --------------------------------------------------------------------------------------------------------- the parts


def test_grades_are_numbers_or_words() -> None:
    assert grade_of("Slightly better", "grade") == pytest.approx(1 / 3) and grade_of(3, "grade") == 3.0
    with pytest.raises(ValueError, match="column 'grade' has the grade 'great'"):
        grade_of("great", "grade")
    tags, known = frozenset({"chosen"}), {"quality": 1.0}
    assert rating_of({"chosen_help": 4, "help": 1}, "help", tags, known) == 4.0
    assert rating_of({}, "quality", tags, known) == 1.0 and math.isnan(rating_of({"help": None}, "help", tags, known))


def test_users_move_to_the_cluster_that_explains_them() -> None:
    """Margins (1, -1) under the first model, (0.2, 0.2) under the second: -1.626523 against -1.196278."""
    clusters = Clusters(2)
    for pair, first in (("a", 1.0), ("b", -1.0)):
        clusters.saw("ann", pair, [-math.log1p(math.exp(-first)), -math.log1p(math.exp(-0.2))])
    sums = [sum(x) for x in zip(*clusters.likelihoods["ann"].values(), strict=True)]
    assert sums == pytest.approx([-1.626523, -1.196278], abs=1e-6) and clusters.of("ann") == 1
    assert clusters.first("ann") == 0 and clusters.first("bob") == 1
    clusters.saw("ann", "b", [0.0, -5.0])  # the newest value of a pair counts
    assert clusters.of("ann") == 0


def test_quantiles_of_strength_are_found_once() -> None:
    cuts = Cuts(0.2, 0.2, 0.1)
    found = cuts.find(torch.arange(11, dtype=torch.float64))
    assert found == pytest.approx((2.0, 4.0, 9.0)) and cuts.find(torch.zeros(3)) == found
    again = Cuts(0.2, 0.2, 0.1)
    again.load_state_dict(json.loads(json.dumps(cuts.state_dict())))
    assert again.found == found


def test_the_rim_of_a_cloud() -> None:
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5), (0.5, 0.0)]
    assert hull(square) == {0, 1, 2, 3}
    assert hull([(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]) == set(), "points on a line have no hull"
    assert hull([(0.0, 0.0), (0.0, 0.0), (1.0, 0.0)]) == set()
    flat = plane(torch.tensor([[0.0, 0.0, 5.0], [2.0, 0.0, 5.0], [0.0, 1.0, 5.0]], dtype=torch.float64))
    assert flat.shape == (3, 2) and torch.dist(flat[0], flat[1]).item() == pytest.approx(2.0)
    text = "one two three four"
    assert all(abs(len(perturbed(text, 0.05, rng("p", i)).split()) - 4) <= 1 for i in range(20))


def test_half_and_half_beside_a_reference(small_model: Path) -> None:
    chat = build({"rm": Role("frozen", "base")}, small_model, SMALL, device="cpu")["rm"].chat
    prompt, reference, reply = torch.arange(5, 9), torch.arange(20, 60), torch.arange(60, 100)
    whole = beside(prompt, reference, reply, chat, 200)
    separator = chat.written("\n=== candidate ===\n").tolist()
    assert whole.tokens.tolist() == [
        *prompt.tolist(),
        *reference.tolist(),
        *separator,
        *prompt.tolist(),
        *reply.tolist(),
    ]
    cut = beside(prompt, reference, reply, chat, 60)
    assert len(cut) <= 60 and int(cut.by("candidate").sum()) == (60 - len(separator)) // 2 - 4
    with pytest.raises(ValueError, match="does not fit twice"):
        beside(prompt, reference, reply, chat, 20)


def test_what_a_corrector_and_a_calculator_say() -> None:
    """y = a b c d, the corrector would say a b x d: 1, 1, -1, 0."""
    assert prefix_rewards([1, 2, 3, 4], [1, 2, 9, 4]) == [1.0, 1.0, -1.0, 0.0]
    assert prefix_rewards([1, 2], [1, 2]) == [1.0, 1.0]
    said = calculated("12 + 30 = 42, and 6*7 = 41")
    assert "calculator(12+30)\nObservation: 42" in said and "Observation: 42\nRationale: 1 of its equations" in said
    assert "no equation" in calculated("yes")


def test_scores_among_rivals() -> None:
    """Two replies with scores 1 and 0: s(1) and s(-1)."""
    assert among(torch.tensor([1.0, 0.0])).tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])
    assert among(torch.tensor([3.0])).tolist() == [0.5]


# ----------------------------------------------------------------------------------------------------------- moves


def weights_after(name: str, model: Path, **options: object) -> torch.Tensor:
    method = find(name).build(TASK, **options)
    models = build_cast(method, model)
    next(loop(method, models, SMALL, steps=1))
    return torch.cat([p.detach().flatten().clone() for p in models["rm"].module.parameters()])


def test_metarm_without_its_step_is_a_reward_model(small_model: Path) -> None:
    plain = weights_after("reward_model", small_model)
    assert torch.allclose(weights_after("meta_rm", small_model, eta=0.0, n=2), plain, atol=1e-7)
    assert not torch.allclose(weights_after("meta_rm", small_model, eta=1.0, n=2), plain, atol=1e-7)


def test_switched_off_they_are_reward_models(small_model: Path) -> None:
    plain = weights_after("reward_model", small_model)
    assert torch.allclose(weights_after("convex_reward_model", small_model, copies=0), plain, atol=1e-7)
    assert torch.allclose(weights_after("goal_conditioned_rm", small_model, coef=0.0), plain, atol=1e-7)
    off = {"flip": 0.0, "soft": 0.0, "top": 0.0, "margin": 0.0, "smoothing": 0.0, "count": 2}
    assert torch.allclose(weights_after("denoised_reward_model", small_model, **off), plain, atol=1e-7)
    assert torch.allclose(weights_after("maxmin_rm", small_model, groups=1), plain, atol=1e-7)


def test_attributes_are_ridge_regressions_with_missing_ratings() -> None:
    """x 1, 2 and y 1, 2 of the first attribute; the second is rated once, x 2 and y 4; the third never."""
    features = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    rated = torch.tensor([[1.0, math.nan, math.nan], [2.0, 4.0, math.nan]], dtype=torch.float64)
    found = fitted(features, rated)
    assert found[0].item() == pytest.approx(5 / (5 + 1e-4)) and found[1].item() == pytest.approx(8 / (4 + 1e-4))
    assert found[2].item() == 0.0


def test_the_gate_moves_alone_and_verbosity_is_gone(small_model: Path) -> None:
    method = find("armorm").build(TASK, rows=8)
    models = build_cast(method, small_model)
    before = {name: p.detach().clone() for name, p in models["rm"].module.named_parameters()}
    run_phase(method.phases[0], Step(Clock(0, 10), models, SMALL, product="rm"), {}, [])
    after = dict(models["rm"].module.named_parameters())
    assert all(torch.equal(after[name], before[name]) for name in before if name != "score.weight")
    head, old = after["score.weight"].detach().clone(), before["score.weight"]
    assert not head[1].any() and head[0].any(), "quality is fitted, the verbosity attribute is 0"
    assert not torch.equal(head[2:], old[2:]), "the gate has learned"
    run_phase(method.phases[0], Step(Clock(1, 10), models, SMALL, product="rm"), {}, [])
    again = after["score.weight"].detach()
    assert torch.equal(again[:2], head[:2]) and not torch.equal(again[2:], head[2:])
    plain = find("armorm").build(TASK, rows=8, verbosity="")
    models = build_cast(plain, small_model)
    run_phase(plain.phases[0], Step(Clock(0, 10), models, SMALL, product="rm"), {}, [])
    assert head_of(models["rm"])[1].any(), "without a verbosity attribute all are kept"


def test_margins_come_from_the_column_of_grades(small_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "a?", "chosen": "b", "rejected": "c", "grade": "better", "user": i % 2} for i in range(8)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = resolve_task(str(tmp_path / "pairs.jsonl"))
    method = find("reward_model").build(task, grades="grade", margin=1.0)
    models = build_cast(method, small_model)
    step = Step(Clock(0, 1), models, SMALL, product="rm")
    (group, *_) = run_phase(method.phases[0], step, {}, [])
    assert group.traces[0].streams["margin"].tolist() == pytest.approx([1 + 2 / 3] * len(group.traces[0]))
    with pytest.raises(ValueError, match="'given:strength'.*no 'strength'"):
        find("reward_model").build(task, grades="strength")
    users = find("vpl").build(task, latent=2)
    groups = run_phase(users.phases[0], Step(Clock(0, 1), build_cast(users, small_model), SMALL, product="rm"), {}, [])
    assert sum(len(group.pairs or ()) for group in groups) == SMALL.prompts and len(groups) <= 2


def test_axioms_build_pairs_from_rows(small_model: Path, tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{i}?", "chosen": f"yes {i}", "rejected": "no", "evidence": f"book {i}", "false": "maybe"}
        for i in range(8)
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    method = find("axiomatic_rm").build(resolve_task(str(tmp_path / "pairs.jsonl")))
    step = Step(Clock(0, 1), build_cast(method, small_model), SMALL, product="rm")
    groups = run_phase(method.phases[0], step, {}, [])
    assert all(len(group.pairs or ()) == 5 for group in groups), "all axioms but combination"
    assert {name for name in step.notes.means() if name.startswith("end/accuracy_")} >= {
        f"end/accuracy_{axiom}" for axiom in ("usefulness", "relevance", "truthfulness", "groundedness")
    }


def test_directions_are_stated_and_weigh(small_model: Path) -> None:
    """At 30 degrees the prompt says 87 and 50, and r (60, 40) scores 71.961524."""
    from burnish.zoo.dpa import written

    v = (math.cos(math.radians(30)), math.sin(math.radians(30)))
    assert "helpfulness*87 + verbosity*50" in written(v)
    assert v[0] * 60 + v[1] * 40 == pytest.approx(71.961524, abs=1e-6)
    method = find("dpa").build(TASK, n=2, degrees=0.0)
    groups = run_phase(method.phases[0], Step(Clock(0, 1), build_cast(method, small_model), SMALL), {}, [])
    trace = groups[0].traces[0]
    assert trace.note["direction"] == (1.0, 0.0) and trace.scores["directed"] == trace.scores["reward"]
