"""Units of a comparison: budgets, the meter, candidates, leaderboards of synthetic results, sweeps, ablations."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from at_once import at_once
from guards import guards

import burnish
from burnish.compare import sweep
from burnish.compare.ablation import Change, applied, build_parent, changes, same, variant
from burnish.compare.board import board
from burnish.compare.budget import Budget, Spent, parse, written
from burnish.compare.data import as_csv, as_json
from burnish.compare.effects import effects_html
from burnish.compare.helpers import needs
from burnish.compare.job import Job, Mark, RunResult, failed
from burnish.compare.leaderboard_page import page as standing_page
from burnish.compare.leaderboard_page import plot, ranks
from burnish.compare.lineage import parent
from burnish.compare.page import page
from burnish.compare.phrasing import against, cautions, verdict
from burnish.compare.plan import Candidate, ComparisonPlan, candidate
from burnish.compare.results import ResultsFile
from burnish.compare.single import run_job
from burnish.core.randomness import generator
from burnish.methods.table import METHODS
from burnish.store.reader import open_store
from burnish.tasks.table import source

TOKENS = Budget("tokens", 1000.0)


# ------------------------------------------------------------------------------------------------------------- budgets


def test_budgets_are_read_as_people_write_them() -> None:
    assert parse("tokens=2M") == Budget("tokens", 2e6)
    assert parse("flops=3e15").limit == 3e15
    assert parse("time=90") == parse("seconds=90") and parse("FLOPs=3P") == Budget("flops", 3e15)
    assert parse("samples=1_500").limit == 1500
    assert [written(x) for x in (64_000, 2e6, 90, 3e15)] == ["64k", "2M", "90", "3P"]


@pytest.mark.parametrize("words", ["2M", "words=3", "tokens=", "tokens=many", "tokens=0", "tokens=-4"])
def test_other_budgets_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match="budget"):
        parse(words)


def test_the_steps_ahead_follow_from_what_was_used() -> None:
    """10 steps used 250 of 1000 tokens: 40 steps in all. At 990 the estimate is a tenth more than done."""
    assert TOKENS.steps_ahead(Spent()) == 1
    assert TOKENS.steps_ahead(Spent(steps=10, sampled=100, trained=150)) == 40
    assert TOKENS.steps_ahead(Spent(steps=10, sampled=990)) == 11
    assert Budget("steps", 7).steps_ahead(Spent()) == 7


# --------------------------------------------------------------------------------------------------------------- meter


def small_job(method: str, budget: str, out: Path, model: Path, **flags: Any) -> Job:
    shared = {"model": str(model), "prompts": 3, "max_new_tokens": 8, "device": "cpu", **flags}
    return Job(method, method, shared, "sort", 1, parse(budget), str(out), tasks=6, replies=2, points=2)


@guards("compare", "core/loop.py")
def test_the_meter_counts_what_was_done_and_changes_nothing(small_model: Path, tmp_path: Path) -> None:
    """GRPO, 3 prompts x 2 replies, 2 steps: 12 samples, the run's own sampled tokens, and unchanged results."""
    found = run_job(small_job("grpo", "steps=2", tmp_path / "a", small_model, n=2), lambda *_: None)
    assert found.done and found.spent["steps"] == 2 and found.spent["samples"] == 12
    with open_store(tmp_path / "a") as store:
        metrics = store.metrics()
    assert found.spent["sampled"] == sum(row["sampled_tokens"] for row in metrics)
    assert found.spent["trained"] > found.spent["sampled"]  # prompts are read along
    plain = burnish.train(
        "grpo",
        task="sort",
        model=str(small_model),
        prompts=3,
        max_new_tokens=8,
        device="cpu",
        n=2,
        steps=2,
        seed=1,
        eval_tasks=0,
        out=str(tmp_path / "b"),
    )
    assert metrics == plain.metrics


def test_given_replies_are_samples_and_every_trainee_counts(small_model: Path, tmp_path: Path) -> None:
    """SFT samples nothing: 3 demonstrations per step are 3 samples, and its tokens are those of its traces."""
    found = run_job(small_job("sft", "samples=5", tmp_path / "a", small_model), lambda *_: None)
    assert found.spent["sampled"] == 0 and found.spent["samples"] == 6 and found.spent["steps"] == 2
    weights = sum(p.numel() for p in _model(small_model).parameters())
    read = found.spent["trained"] - 6  # nothing comes after the last token of a demonstration
    assert found.spent["flops"] == 6 * weights * read  # forward 2, backward 4
    ppo = run_job(
        small_job("ppo", "steps=1", tmp_path / "b", small_model, n=1, updates=1, minibatches=1), lambda *_: None
    )
    with open_store(tmp_path / "b") as store:
        count = store.count()
    assert count == 3 and ppo.spent["trained"] % 2 == 0  # policy and critic read the same traces


def _model(path: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path)


def test_a_budget_ends_the_run_with_the_step_that_uses_it_up(small_model: Path, tmp_path: Path) -> None:
    heard: list[float] = []
    found = run_job(small_job("sft", "tokens=700", tmp_path / "a", small_model), lambda used, *_: heard.append(used))
    used = [json.loads(line) for line in (tmp_path / "a" / "spent.jsonl").read_text().splitlines()]
    assert used[-2]["trained"] < 700 <= used[-1]["trained"] == found.spent["trained"]
    assert found.legs[0] == 1 and len(found.legs) >= 2 and heard[-1] == 1.0
    assert [mark.steps for mark in found.curve] == sorted({mark.steps for mark in found.curve})
    assert found.curve[0].steps == 0 and len(found.curve[0].right) == 3 and len(found.right) == 6
    assert not (tmp_path / "a" / "checkpoints").exists()
    assert RunResult.from_json(json.loads(json.dumps(found.to_json()))) == replace(found, value=round(found.value, 6))


def test_a_method_that_trains_nothing_is_judged_by_what_it_chooses(small_model: Path, tmp_path: Path) -> None:
    found = run_job(small_job("best_of_n", "tokens=10", tmp_path / "a", small_model, n=2), lambda *_: None)
    assert found.done and found.spent["steps"] == 0 and found.replies == 1 and len(found.right) == 6


def test_a_reward_model_is_judged_by_its_own_measure(small_model: Path, tmp_path: Path) -> None:
    found = run_job(small_job("reward_model", "steps=1", tmp_path / "a", small_model), lambda *_: None)
    assert found.done and found.measure.endswith("accuracy") and not found.right and 0 <= found.value <= 1


# ---------------------------------------------------------------------------------------------------------- candidates


def test_candidates_carry_flags_in_brackets() -> None:
    assert candidate("grpo") == Candidate("grpo", "grpo")
    assert candidate("grpo(n=4, lr=3e-5)") == Candidate("grpo(n=4, lr=3e-05)", "grpo", {"n": 4, "lr": 3e-5})
    assert candidate("my.py:mine(lr_schedule=cosine)").flags == {"lr_schedule": "cosine"}
    for wrong in ("grpo(4)", "grpo(n=", "grpo(n=f(1))", "()"):
        with pytest.raises(ValueError, match="write"):
            candidate(wrong)


def plan(tmp_path: Path, *names: str, **changed: Any) -> ComparisonPlan:
    return ComparisonPlan(tuple(candidate(name) for name in names), "sort", 2, TOKENS, tmp_path, **changed)


def test_a_plan_runs_every_candidate_before_any_twice(tmp_path: Path) -> None:
    assert [(job.label, job.seed) for job in plan(tmp_path, "grpo", "sft").jobs()] == [
        ("grpo", 0),
        ("sft", 0),
        ("grpo", 1),
        ("sft", 1),
    ]
    assert len({job.out for job in plan(tmp_path, "grpo", "grpo(n=4)", "sft").jobs()}) == 6


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("grpo", "grpo"), "named twice"),
        (("grop",), "did you mean"),
        (("grpo(m=4)",), "no option 'm'"),
        (("gkd",), "needs --teacher"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(names: tuple[str, ...], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        plan(tmp_path, *names).check()


def test_a_folder_of_other_runs_is_left_alone(tmp_path: Path) -> None:
    job = plan(tmp_path, "sft").jobs()[0]
    Path(job.out).mkdir(parents=True)
    (Path(job.out) / "job.json").write_text(json.dumps(replace(job, budget=Budget("steps", 3)).to_json()))
    with pytest.raises(ValueError, match="another budget.*--out"):
        plan(tmp_path, "sft").check()


# --------------------------------------------------------------------------------------------------------------- board


def made_up(label: str, level: float, seed: int, *, tasks: int = 40, spread: float = 0.02) -> RunResult:
    """A synthetic result: the probability of a correct reply depends on the candidate, the seed and the task."""
    draw = generator("made up", label, seed)
    easy = generator("tasks").normal(0, 0.15, tasks)
    chance = np.clip(level + draw.normal(0, spread) + easy, 0.02, 0.98)
    right = tuple(int(v) for v in draw.binomial(8, chance))
    begin = "".join(str(int(v)) for v in generator("begin").random(tasks // 2) < 0.4)
    middle = "".join(str(int(v)) for v in draw.random(tasks // 2) < (0.4 + level) / 2)
    marks = tuple(
        Mark(i, at, sum(map(int, bits)) / len(bits), bits)
        for i, (at, bits) in enumerate([(0.0, begin), (500.0, middle)])
    )
    value = sum(right) / (8 * tasks)
    spent = {"steps": 10, "sampled": 400, "trained": 620, "samples": 80, "flops": 1e9, "seconds": 2.5}
    return RunResult(
        label,
        label,
        "sort",
        seed,
        TOKENS,
        "done",
        value=value,
        replies=8,
        right=right,
        curve=(*marks, Mark(10, 1020.0, value)),
        spent=spent,
    )


LEVELS = {"good": 0.75, "alike": 0.74, "bad": 0.5}
ROWS = [made_up(label, level, seed) for seed in range(6) for label, level in LEVELS.items()]


def test_the_board_ranks_tells_apart_and_says_where_it_cannot() -> None:
    found = board([*ROWS, failed(Job("broken", "broken", {}, "sort", 0, TOKENS, ""), "it broke")])
    assert {one.label for one in found.standings[:2]} == {"good", "alike"} and found.standings[2].label == "bad"
    for one in found.standings:
        assert one.value.low < one.value.mean < one.value.high and abs(one.value.mean - LEVELS[one.label]) < 0.1
        passes = [one.passes[k].mean for k in (1, 2, 4, 8)]
        assert passes == sorted(passes) and passes[0] == pytest.approx(one.value.mean)
        assert one.curve[0][0] == 0 and one.curve[0][1].mean == pytest.approx(one.start)
    close, far = found.pair("good", "alike"), found.pair("bad", "good")
    assert close is not None and far is not None and len(found.pairs) == 3
    assert verdict(close, found) == "not distinguishable" and verdict(far, found) == "good is better"
    assert against(found.standings[0], found) == "best" and against(found.standings[2], found).startswith("worse, p")
    assert found.failures[0].reason == "it broke" and any("1 run failed" in line for line in cautions(found))


def test_too_few_seeds_are_called_that() -> None:
    few = board([row for row in ROWS if row.seed < 3])
    assert few.seeds_needed() == 5  # three pairs: 3 x 2 / C(2n, n) <= 0.05 first at n = 5
    assert all(verdict(pair, few) == "too few seeds to tell" for pair in few.pairs)
    assert "take --seeds 5" in " ".join(cautions(few))
    assert "One seed" in " ".join(cautions(board([row for row in ROWS if row.seed == 0])))


def test_efficiency_counts_seeds_that_never_came_so_far() -> None:
    found = board(ROWS, threshold=0.6)
    good, bad = found.standings[0], found.standings[-1]
    assert all(taken is not None and 0 < taken <= 1020 for taken in good.reach)
    assert bad.reach.count(None) == 4 and bad.reached() is None  # two seeds came there by luck, on the way


def test_nothing_that_came_to_an_end_is_said_with_the_reasons() -> None:
    with pytest.raises(ValueError, match="nothing to compare: a: it broke"):
        board([failed(Job("a", "a", {}, "sort", 0, TOKENS, ""), "it broke")])


def test_the_page_stands_alone_and_the_data_hold_the_same_numbers() -> None:
    found = board([*ROWS, failed(Job("<b>", "b", {}, "sort", 0, TOKENS, ""), "a < b & c")])
    html = page(found, "burnish compare good alike bad")
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "") and "<script" not in html and "src=" not in html
    assert "not distinguishable" in html and "&lt;b&gt;" in html and "a &lt; b &amp; c" in html
    for piece in html.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + piece.split("</svg>")[0] + "</svg>")
    data = json.loads(as_json(found, "again"))
    assert [one["label"] for one in data["standings"]] == [one.label for one in found.standings]
    assert data["pairs"][0]["p_holm"] == found.pairs[0].adjusted
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(lines) == 19 and lines[-1]["reason"] == "a < b & c" and float(lines[0]["value"]) > 0.5


def test_results_merge_and_a_later_try_mends_a_failure(tmp_path: Path) -> None:
    one, other = ResultsFile(tmp_path / "one.json"), ResultsFile(tmp_path / "other.json")
    one.add(ROWS[0])
    one.add(failed(Job("bad", "bad", {}, "sort", 0, TOKENS, ""), "it broke"))
    other.add(next(row for row in ROWS if row.label == "bad"))
    for store in (one, other):
        store.save()
    one.merge(tmp_path / "other.json")
    one.save()
    again = ResultsFile(tmp_path / "one.json")
    assert len(again.rows) == 2 and all(row.done for row in again.of(TOKENS))
    with pytest.raises(ValueError, match="do not compare"):
        again.of(Budget("steps", 4))
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(ValueError, match="no results"):
        again.merge(tmp_path / "odd.json")


def test_the_standing_page_lists_everyone_somewhere() -> None:
    rows = [*ROWS, *(replace(row, task="add") for row in ROWS if row.label != "bad")]
    text = standing_page(rows, TOKENS, ("sort", "add"))
    table, rest = text.split("## Measured otherwise")
    assert "[good](methods/good.md)" in table and "[bad]" not in table and "[bad]" in rest and "1k tokens" in text
    found = ranks(rows, ("sort", "add"))
    assert set(found.order) == {"good", "alike"} and "bad" in found.cells
    means = [found.mean(name) for name in found.order]
    assert means[0].mean >= means[1].mean and all(one.low < one.mean < one.high for one in means)
    picture = plot(found, TOKENS)
    assert picture.startswith("<svg") and picture.count("<circle") == 2 and "prefers-color-scheme" in picture


# --------------------------------------------------------------------------------------------------------------- sweep


def test_a_grid_is_tried_whole_and_ranges_are_drawn() -> None:
    whole = sweep.trials("grpo", [sweep.grid("lr=1e-5,1e-4"), sweep.grid("n=4,8")], [], None)
    assert [one.flags for one in whole] == [{"lr": lr, "n": n} for lr in ("1e-5", "1e-4") for n in ("4", "8")]
    assert len(sweep.trials("grpo", [sweep.grid("n=2,4,8")], [], 2)) == 2
    drawn = sweep.trials(
        "grpo", [sweep.grid("n=4,8")], [sweep.ranged("eps=0.1:0.4"), sweep.ranged("lr=1e-6:1e-3:log")], 12
    )
    assert len(drawn) == 12 and drawn == sweep.trials(
        "grpo", [sweep.grid("n=4,8")], [sweep.ranged("eps=0.1:0.4"), sweep.ranged("lr=1e-6:1e-3:log")], 12
    )
    assert all(0.1 <= one.flags["eps"] <= 0.4 and 1e-6 <= one.flags["lr"] <= 1e-3 for one in drawn)
    assert sum(one.flags["n"] == "4" for one in drawn) == 6
    assert all(one.draw(i) in (2, 3, 4) for one in [sweep.ranged("n=2:4")] for i in range(30))


@pytest.mark.parametrize("words", ["lr", "lr=", "lr=1,1"])
def test_odd_grids_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match="--grid"):
        sweep.grid(words)


@pytest.mark.parametrize("words", ["eps", "eps=1", "eps=0.4:0.1", "eps=0:1:log", "eps=1:2:exp", "eps=a:b"])
def test_odd_ranges_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match="--random"):
        sweep.ranged(words)


def test_effects_are_found_everything_else_equal() -> None:
    """lr lifts scores by 0.2 and n does nothing; the other flag and the seed are the same in each difference."""
    grids = [sweep.grid("lr=low,high"), sweep.grid("n=4,8")]
    tried = sweep.trials("grpo", grids, [], None)
    rows = [
        made_up(one.label, 0.5 + 0.2 * (one.flags["lr"] == "high"), seed, spread=0.01)
        for one in tried
        for seed in range(3)
    ]
    found = sweep.effects(board(rows), tried, grids, [])
    by_value = {(one.flag, one.value): one for one in found}
    assert all(one.matched and one.trials == 2 for one in found)
    assert by_value["lr", "high"].difference.low > 0.1 and by_value["lr", "low"].difference.high < -0.1
    assert by_value["n", "4"].difference.low < 0 < by_value["n", "4"].difference.high
    page = effects_html(found, board(rows))
    assert "no effect shown" in page and "partly luck" in page and ">higher<" in page

    one_seed = board([row for row in rows if row.seed == 0])
    assert against(one_seed.standings[-1], one_seed) == "too few seeds to tell"
    page = effects_html(sweep.effects(one_seed, tried, grids, []), one_seed)
    assert "too few seeds to tell" in page and ">higher<" not in page and ">lower<" not in page


def test_effects_of_drawn_values_are_by_thirds() -> None:
    ranges = [sweep.ranged("eps=0.1:0.4")]
    tried = sweep.trials("grpo", [], ranges, 12)
    rows = [made_up(one.label, 0.4 + one.flags["eps"], seed) for one in tried for seed in range(2)]
    found = sweep.effects(board(rows), tried, [], ranges)
    assert [one.trials for one in found] == [4, 4, 4] and not any(one.matched for one in found)
    assert found[0].difference.high < 0 < found[2].difference.low


# -------------------------------------------------------------------------------------------------------------- ablate


def built(name: str, task: str = "sort") -> Any:
    entry = METHODS[name]
    columns = {key: entry.trial[key] for key in ("column", "user", "cannot", "should_not") if key in entry.trial}
    return entry.build(source(str(entry.trial.get("task", task))), **dict.fromkeys(needs(entry), "tiny"), **columns)


@at_once("name", sorted(METHODS))
def test_every_difference_is_undone_or_refused_in_a_sentence(name: str) -> None:
    above = parent(name, METHODS[name])
    base = build_parent(METHODS[above], source("sort"), {})
    mine = built(name)
    for change in changes(mine, base):
        try:
            found = applied(mine, base, change)
        except ValueError as error:
            assert str(error)
        else:
            assert found != mine and found.product == mine.product


def test_a_method_does_not_differ_from_itself() -> None:
    assert changes(built("grpo"), built("grpo")) == []
    assert same(built("grpo").phases[0].learn.terms, built("grpo").phases[0].learn.terms)


def test_dapo_against_grpo() -> None:
    said = {change.label("grpo"): change for change in changes(built("dapo"), built("grpo"))}
    assert {"without punish_overlong", "without refilled(mixed, 3)", "pg as in grpo", "with grpo's kl"} <= set(said)
    plain = applied(built("dapo"), built("grpo"), said["without punish_overlong"])
    assert "punish_overlong" not in [atom.name for atom in plain.phases[0].score]
    back = applied(built("dapo"), built("grpo"), said["with grpo's kl"])
    assert "kl" in [term.name for term in back.phases[0].learn.terms] and "ref" in back.models


def test_a_variant_runs_like_any_method(small_model: Path, tmp_path: Path) -> None:
    change = Change("again", "term", "", "kl")
    assert "kl" in [t.name for t in variant("dapo", "grpo", change).build(source("sort")).phases[0].learn.terms]
    job = small_job("dapo", "steps=1", tmp_path / "a", small_model, n=2, refills=0)
    told = {"parent": "grpo", "kind": "again", "stage": "term", "name": "", "other": "kl"}
    found = run_job(replace(job, change=told), lambda *_: None)
    assert found.done and found.spent["samples"] == 6
