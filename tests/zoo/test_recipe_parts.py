"""Parts of the published recipes: each by hand, and where it becomes something known."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast
from torch import Tensor, tensor

from burnish.cli import main
from burnish.core.loop import loop
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.datagen.rated_data import measured, own_reply
from burnish.datagen.toggle import divided, toggled_rows
from burnish.draw.failed import PLACE
from burnish.draw.rated import by_failure, in_order, progressive_batches
from burnish.draw.tasks import prompts
from burnish.learn.maths import dpo_logistic
from burnish.learn.maths.divergence import k3
from burnish.methods.table import find
from burnish.models.known_models import resolve
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.rewards.blends import rule_first
from burnish.rewards.lengths import unfinished
from burnish.select import Store, mixed
from burnish.select.shorter import shortest_vs_longer
from burnish.tasks.data import Dataset
from burnish.tasks.table import source
from burnish.verifiers.code.outcome import Class, Outcome
from burnish.verifiers.programs import level_points, levelled_tests, levels_of
from burnish.zoo.am_thinking import weigh_cut_off
from burnish.zoo.confucius3 import by_hardness, entropy_side, recovered
from burnish.zoo.hunyuan_turbos import bounded_k3
from burnish.zoo.kimi_k1_5 import mirror_pull
from burnish.zoo.llama_nemotron import reward_aware
from burnish.zoo.mimo import EasyPool, apart_from_easy, note_solved


def a_trace(score: float, length: int = 3, *, cut: bool = False, **notes: Any) -> Trace:
    """A prompt of one token and a reply of `length`, with its score."""
    reply = Turn(torch.arange(length) + 5, "policy", torch.full((length,), -0.5))
    trace = Trace((Turn(tensor([1]), "task"), reply), scores={"reward": score})
    trace.note["stopped"] = "length" if cut else "end"
    return trace


def a_group(*scores: float, key: str = "q") -> Group:
    return Group(Task("question", key, {}, key), [a_trace(score) for score in scores])


def a_step(prompts: int = 2, step: int = 0, of: int = 4, models: Any = None) -> Step:
    return Step(Clock(step, of, 7), models, replace(SMALL, prompts=prompts))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- the losses


def test_reward_aware_preferences_by_hand() -> None:
    """Margin 0, gap ln 3: s(b) = 3/4, D = 3/4 ln(3/4 / 1/2) + 1/4 ln(1/4 / 1/2) = 0.130812."""
    found = reward_aware(tensor([0.0]), tensor([math.log(3)]))
    assert (
        float(found) == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5)) == pytest.approx(0.130812, abs=1e-6)
    )
    margin = torch.linspace(-3, 3, 7, dtype=torch.float64)
    assert torch.allclose(reward_aware(margin, margin), torch.zeros(7, dtype=torch.float64), atol=1e-12)
    dpo = dpo_logistic(margin, torch.zeros_like(margin), 1.0)
    assert torch.allclose(reward_aware(margin, torch.full_like(margin, 50.0)), dpo), "a large gap is DPO"


def test_the_pull_of_mirror_descent_and_the_bounded_kl() -> None:
    """log pi/pi_i = 0.4: 0.08, gradient 0.4.  log ref - log pi = 3: k3 = e^3 - 4 = 16.1, bounded at 10, no gradient."""
    ratio = tensor([0.4], requires_grad=True)
    pull = mirror_pull(ratio)
    pull.backward()
    assert pull.item() == pytest.approx(0.08) and float(ratio.grad) == pytest.approx(0.4)  # type: ignore[arg-type]
    logp = tensor([-3.0, -0.5], requires_grad=True)
    ref = tensor([0.0, -0.6])
    kl = bounded_k3(logp, ref, 10.0)
    kl.sum().backward()
    assert kl.tolist() == pytest.approx([10.0, float(k3(tensor(-0.5), tensor(-0.6)))])
    assert logp.grad is not None and float(logp.grad[0]) == 0 and float(logp.grad[1]) != 0
    assert torch.equal(bounded_k3(logp, ref, math.inf), k3(logp, ref))


# ------------------------------------------------------------------------------------------------------- the credit


def test_hardness_by_hand() -> None:
    """One of four right: R = (1, -1, -1, -1), mu = -1/2, D = 0.128 + 1.256 = 1.384, A = (2.076, -0.692, ...)."""
    group = a_group(1, 0, 0, 0)
    by_hardness().call([group], a_step())
    found = [float(trace.streams["adv"][0]) for trace in group.traces]
    assert found == pytest.approx([1.5 * 1.384, -0.5 * 1.384, -0.5 * 1.384, -0.5 * 1.384])
    by_hardness(0.0, 1.0).call([group], a_step())
    assert [float(trace.streams["adv"][0]) for trace in group.traces] == pytest.approx([1.5, -0.5, -0.5, -0.5])


@pytest.mark.parametrize(("target", "side"), [(0.2, 1.0), (0.6, -1.0), (0.375, 0.0)])
def test_the_side_of_the_entropy_is_that_of_the_whole_batch(target: float, side: float) -> None:
    """Entropies 1/8, 1/8, 1/8 and 5/8, 3/4, 1/2: their mean is 3/8, whatever a single reply has."""
    group = a_group(0, 1)
    for trace, values in zip(group.traces, ([0.125, 0.125, 0.125], [0.625, 0.75, 0.5]), strict=True):
        trace.streams["entropy"] = tensor([9.0, *values], dtype=torch.float64)  # the prompt's token does not count
    entropy_side(target).call([group], a_step())
    assert all(trace.streams["side"].tolist() == [side] * 4 for trace in group.traces)


def test_replies_that_were_cut_off_lose_their_advantage() -> None:
    group = Group(Task("question", "q", {}, "q"), [a_trace(1), a_trace(0, cut=True)])
    for trace in group.traces:
        trace.streams["adv"] = torch.full((4,), 2.0)
    weigh_cut_off(0.25).call([group], a_step())
    assert [float(trace.streams["adv"][0]) for trace in group.traces] == [2.0, 0.5]


# ------------------------------------------------------------------------------------------------------ the batches


def test_groups_without_room_come_first_in_the_next_batch() -> None:
    """Batches of 2. Step 0: its own groups a (mixed) and b (flat), a refill c, d: a and c are used, d is stored.
    Step 1: d, then its own e and f: d and e are used, f is stored, and nothing is refilled."""
    fresh = [a_group(0, 1, key="c"), a_group(1, 0, key="d")]
    drawn: list[int] = []

    class Part_:  # the stages of a phase, of which only the calls and the state matter here
        state: tuple[Any, ...] = ()

        def __init__(self, call: Any) -> None:
            self.call = call

    draw = Part_(lambda step: drawn.append(step.clock.seed) or [])
    rollout, score = Part_(lambda tasks, step: fresh), Part_(lambda groups, step: groups)
    store = Store("recent", 100)
    part = recovered(mixed(), draw, rollout, score, 3, store)  # type: ignore[arg-type]
    first = part.call([a_group(0, 1, key="a"), a_group(1, 1, key="b")], a_step())
    assert [group.task.key for group in first] == ["a", "c"] and [g.task.key for g in store.groups] == ["d"]
    assert len(drawn) == 1
    again = Store("recent", 100)
    again.load_state_dict(json.loads(json.dumps(store.state_dict())))
    assert [group.task.key for group in again.groups] == ["d"], "the checkpoint has it"
    second = part.call([a_group(0, 1, key="e"), a_group(0, 1, key="f")], a_step(step=1))
    assert [group.task.key for group in second] == ["d", "e"] and [g.task.key for g in store.groups] == ["f"]
    assert len(drawn) == 1, "the batch was full"


def rows(n: int) -> Dataset:
    return Dataset([{"prompt": f"p{i}", "answer": str(i), "pass_rate": i / n} for i in range(n)], heldout=0.0)


def test_rows_in_their_order() -> None:
    data = rows(5)
    draw = in_order(data, prompts(data))
    found = [[task.prompt for task in draw.call(a_step(2, step))] for step in range(3)]
    texts = [[_text(prompt) for prompt in one] for one in found]
    assert texts == [["p0", "p1"], ["p2", "p3"], ["p4", "p0"]]


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else prompt[0]["content"]


def test_batches_move_from_easy_to_hard_by_hand() -> None:
    """Rates 1, 1, 1/2, 1/2, 0, 0 in three batches of 2, a narrow width: centres 1, 1/2, 0."""
    rates = [0.0, 0.5, 1.0, 1.0, 0.5, 0.0]
    found = progressive_batches(rates, 2, 3, 0.05)
    assert [sorted(one) for one in found] == [[2, 3], [1, 4], [0, 5]]
    wide = progressive_batches(rates, 2, 3, 1e6)
    assert sorted(i for one in wide for i in one) == list(range(6)), "each row once"
    means = [sum(i / 99 for i in one) / 10 for one in progressive_batches([i / 99 for i in range(100)], 10, 10, 0.1)]
    assert means[0] > 0.85 and means[-1] < 0.15 and all(a > b for a, b in zip(means, means[1:], strict=False))
    assert Counter(i for one in progressive_batches([0.5], 3, 2, 0.1) for i in one) == {0: 6}, "fewer rows than a batch"


def test_prompts_in_proportion_to_their_failures() -> None:
    """Of 4 rows two are always solved: batches of 2 hold the other two; in batches of 1 the weights 1 and 1/2 count."""
    data = rows(4)
    draw = by_failure(data, prompts(data))
    assert draw.saw is not None
    for i, rate in enumerate((1.0, 1.0, 0.0, 0.5)):
        scores = [1.0] * int(4 * rate) + [0.0] * (4 - int(4 * rate))
        group = Group(Task("question", "p", {PLACE: i}, f"p{i}"), [a_trace(score) for score in scores])
        draw.saw([group], a_step())
    for step in range(5):
        assert sorted(task.given[PLACE] for task in draw.call(a_step(2, step))) == [2, 3]
    counts = Counter(draw.call(a_step(1, step))[0].given[PLACE] for step in range(900))
    assert set(counts) == {2, 3} and counts[2] / 900 == pytest.approx(2 / 3, abs=0.06)  # four standard deviations
    state = json.loads(json.dumps(draw.state[-1].state_dict()))
    other = by_failure(data, prompts(data))
    other.state[-1].load_state_dict(state)
    assert [t.given[PLACE] for t in other.call(a_step(2, 3))] == [t.given[PLACE] for t in draw.call(a_step(2, 3))]


def test_curricula_of_rows_need_rows() -> None:
    with pytest.raises(ValueError, match="draws rows of a dataset again and again, and task 'add' has no end"):
        in_order(source("add"), prompts(source("add")))


def test_solved_problems_rest_in_the_pool() -> None:
    data, pool = rows(6), EasyPool()
    draw = apart_from_easy(data, pool, 0.0)
    drawn = [task.given[PLACE] for task in draw.call(a_step(6))]
    assert sorted(drawn) == list(range(6)), "an empty pool: every problem once"
    solved = [Group(Task("question", "p", {PLACE: i}, f"p{i}"), [a_trace(1.0), a_trace(1.0)]) for i in (0, 1, 2)]
    half = Group(Task("question", "p", {PLACE: 3}, "p3"), [a_trace(1.0), a_trace(0.0)])
    note_solved(pool).call([*solved, half], a_step())
    assert pool.easy == [0, 1, 2]
    for step in range(1, 4):
        assert {task.given[PLACE] for task in draw.call(a_step(6, step))} <= {3, 4, 5}, "alpha 0: never again"
    often = apart_from_easy(data, pool, 0.3)
    counts = Counter(task.given[PLACE] in pool.easy for step in range(100) for task in often.call(a_step(6, step)))
    assert counts[True] / 600 == pytest.approx(0.3, abs=0.08)  # four standard deviations
    note_solved(pool).call([replace(half, task=replace(half.task, given={PLACE: 1}))], a_step())
    assert pool.easy == [0, 2], "a problem that is no longer solved leaves the pool"
    for i in (0, 1, 2, 3, 4, 5):
        pool.saw(i, True)
    assert len(draw.call(a_step(4))) == 4, "all are solved: drawn as without a pool"


def test_short_right_replies_are_preferred_by_hand() -> None:
    """Right ones of 10, 14 and 15 tokens, wrong ones of 8, 10 and 11: 10 over 15 (1.5 x 10) and over the wrong 11."""
    lengths = [(1, 14), (1, 10), (1, 15), (0, 8), (0, 10), (0, 11)]
    group = Group(Task("question", "q", {}, "q"), [a_trace(score, length) for score, length in lengths])
    kept = shortest_vs_longer().call([group, a_group(0, 0)], a_step())
    assert kept == [group] and group.pairs == [(1, 2), (1, 5)]


# ------------------------------------------------------------------------------------------------------ the rewards


def shaped(scorer: Any, *traces: Trace) -> list[float]:
    group = Group(Task("question", "q", {}, "q"), list(traces))
    scorer.part.call([group], a_step())
    return [trace.scores["reward"] for trace in traces]


def test_the_rule_comes_before_the_model_by_hand() -> None:
    """r_model 2, alpha 1/2: s(1) = 0.731. A right reply gets 0.731, a wrong one -0.269, a right one of -8 0.018."""
    both = [a_trace(0.0) for _ in range(3)]
    for trace, (model, rule) in zip(both, ((2.0, 1.0), (2.0, 0.0), (-8.0, 1.0)), strict=True):
        trace.scores |= {"reward/rm": model, "correct": rule}
    assert shaped(rule_first(source("add")), *both) == pytest.approx([0.731059, -0.268941, 0.017986], abs=1e-6)


def test_a_reply_that_does_not_end_gets_a_fixed_reward() -> None:
    assert shaped(unfinished(source("add")), a_trace(10.0), a_trace(10.0, cut=True)) == [10.0, -10.0]
    assert shaped(unfinished(source("add"), coef=0.0), a_trace(3.0, cut=True)) == [3.0]


def test_points_of_test_levels_by_hand() -> None:
    """Levels 0, 0, 1, 1, 2 and passed tests 1, 1, 1, 0, 1. Strict: level 0 alone, 1/3. Soft: 1/3 + 1/6 + 1/3 = 5/6."""
    levels, marks = [0, 0, 1, 1, 2], (True, True, True, False, True)
    assert level_points(levels, marks, strict=True) == pytest.approx(1 / 3)
    assert level_points(levels, marks, strict=False) == pytest.approx(5 / 6)
    assert level_points(levels, (True, True), strict=False) == pytest.approx(1 / 3), "tests that were not run"
    assert level_points([0] * 5, marks, strict=True) == 0 and level_points([0] * 5, (True,) * 5, strict=True) == 1
    assert levels_of({"test_rates": [1.0, 0.7, 0.5, 0.1, 0.0]}, 3, 5) == [0, 0, 1, 2, 2]
    with pytest.raises(ValueError, match="5 tests and 2 levels"):
        levels_of({"test_levels": [0, 1]}, 3, 5)
    assert levelled_tests(strict=False)({"test_levels": [0, 1]}, Outcome(Class.WRONG, 1, 2, marks=(True, False))) == 0.5


def test_programs_are_graded_test_by_test() -> None:
    columns = {"test_list": [[f"assert add({x}, 1) == {x + 1}" for x in range(5)]], "test_levels": [[0, 0, 1, 1, 2]]}
    reply = "```python\ndef add(a, b): return min(3, a + b)\n```"  # passes 0, 1 and 2, fails 3 and 4
    ends = "```python\nimport os\ndef add(a, b):\n    return 1 if a == 0 else os._exit(1)\n```"  # after the first test
    for name, points, early in (("levelled_tests", 1 / 3, 0.0), ("levelled_tests(strict=False)", 1 / 3 + 1 / 6, 1 / 6)):
        for said, earned in ((reply, points), (ends, early), ("```python\ndef add(:\n```", 0.0), ("nothing", 0.0)):
            assert make_reward(read_rewards(name))(["?"], [said], columns)[0].score == pytest.approx(earned)


@pytest.mark.parametrize(
    ("system", "reply", "score"),
    [
        ("detailed thinking on", "<think>\nx\n</think>\n3", 1.0),
        ("detailed thinking on", "3", 0.0),
        ("detailed thinking on", "<think></think>3", 0.0),
        ("detailed thinking off", "3", 1.0),
        ("detailed thinking off", "<think>x</think>3", 0.0),
        ("be kind", "<think>x", 1.0),
    ],
)
def test_thinking_as_the_system_message_says(system: str, reply: str, score: float) -> None:
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": "1+2?"}]
    assert make_reward(read_rewards("toggled"))([prompt], [reply], {})[0].score == score  # type: ignore[list-item]


# --------------------------------------------------------------------------------------------------------- the data


def test_thoughts_are_divided_from_answers() -> None:
    assert divided("<think>a\nb</think>\nc", "answer:") == ("a\nb", "c")
    assert divided("10-7=3\nanswer: 3", "answer:") == ("10-7=3", "answer: 3")
    assert divided("answer: 3", "answer:") is None and divided("3", "answer:") is None
    task = Task("question", "1+2?", {"demo": "one\nanswer: 3", "answer": "3"}, "k")
    on, off = toggled_rows(task, "answer:")
    assert [row["prompt"][0]["content"] for row in (on, off)] == ["detailed thinking on", "detailed thinking off"]
    assert on["completion"] == "<think>\none\n</think>\nanswer: 3" and off["completion"] == "answer: 3"
    assert off["answer"] == "3"


def test_rates_and_own_replies_by_hand() -> None:
    """Scores 1, 0, 0, 1: half is right, mean 1/2, variance 1/4."""
    assert measured([1, 0, 0, 1], 0.5) == {"pass_rate": 0.5, "mean_score": 0.5, "score_variance": 0.25}
    wrong, long, short, cut = a_trace(0, 2), a_trace(2, 6), a_trace(1, 3), a_trace(9, 9, cut=True)
    traces = [cut, wrong, long, short]
    assert own_reply(traces, "best", 0.5) == [long] and own_reply(traces, "shortest", 0.5) == [short]
    assert own_reply(traces, "attempts", 0.5) == [wrong, long] and own_reply([wrong, cut], "best", 0.5) == []


def test_the_rate_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rated.jsonl"
    words = ["rate", "--model", "tiny", "--task", "add", "--count", "12", "--n", "4", "--order", "variance"]
    assert main([*words, "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 12
    found = [json.loads(line) for line in out.read_text().splitlines()]
    variances = [row["score_variance"] for row in found]
    assert variances == sorted(variances, reverse=True) and len(set(variances)) > 1
    assert all(row["score_variance"] == pytest.approx(row["pass_rate"] * (1 - row["pass_rate"])) for row in found)
    assert all({"prompt", "completion", "answer"} <= set(row) for row in found)
    again = tmp_path / "again.jsonl"
    assert main(["rate", "--task", str(out), "--n", "4", "--max-rate", "0.6", "-o", str(again)]) == 0
    kept = [json.loads(line) for line in again.read_text().splitlines()]
    assert 0 < len(kept) < 12 and all(row["pass_rate"] <= 0.6 for row in kept)
    assert main(["rate", "--task", "add", "--count", "2", "--min-rate", "1", "--max-rate", "0", "-o", "x.jsonl"]) == 2


# ------------------------------------------------------------------------------------------------------ the methods


def weights_after(name: str, **options: Any) -> list[Tensor]:
    method = find(name).build(source("add"), **options)
    models = build_cast(method, resolve("tiny"))
    for report in loop(method, models, Settings(prompts=4, max_new_tokens=40, token_budget=4096, lr=1e-4), steps=2):
        assert 0 < report.metrics["reward"] < 1
    return [p.detach().clone() for p in models[method.product].module.parameters()]


@pytest.mark.parametrize(
    ("name", "options", "known", "known_options"),
    [
        ("targeted_entropy", {"coef": 0.0}, "grpo", {}),
        ("mimo", {"alpha": 0.1, "minibatches": 1}, "mimo", {"alpha": 0.9, "minibatches": 1}),
    ],
)
def test_methods_become_others(name: str, options: dict[str, Any], known: str, known_options: dict[str, Any]) -> None:
    """coef 0 is GRPO; without solved problems there is no pool to draw from."""
    mine, theirs = weights_after(name, **options), weights_after(known, **known_options)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.slow
def test_an_entropy_above_its_target_falls_and_one_below_rises() -> None:
    """From 0.10 nats; measured after 5 steps: 0.03 and 3.4."""
    last = {}
    for target in (0.0, 5.0):
        method = find("targeted_entropy").build(source("add"), target=target, coef=1.0, beta=0.0)
        models, settings = build_cast(method, resolve("tiny")), Settings(prompts=8, max_new_tokens=40, lr=1e-4)
        last[target] = [report.metrics["pg/entropy"] for report in loop(method, models, settings, steps=6)][-1]
    assert last[0.0] < 0.08 and last[5.0] > 1
