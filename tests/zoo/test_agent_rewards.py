"""Rewards of tool calls and retrieval by hand, the tasks that they are for, and the methods built on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, build_method

import burnish
from burnish.core.call_syntax import read_call
from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.task import Verdict
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.envs.hops import Question, retrieve
from burnish.envs.search import Searching, read_step
from burnish.methods.policy import grpo
from burnish.reward_functions.resolve import read_rewards
from burnish.tasks.passages import with_distractors
from burnish.tasks.table import source
from burnish.tasks.task_set import limited, rewarded
from burnish.verifiers.checks import BadRow
from burnish.verifiers.table import build_check, load_verifiers
from burnish.zoo.entropy_grpo import entropy_grpo, entropy_of_thoughts, thought_tokens
from burnish.zoo.rag_rl import LEVELS, distracted, distractors_at, rag_rl

NEW = ("calls", "passages", "search")


def verdict(call: str, reply: str, **row: Any) -> Verdict:
    read = read_call(call)
    assert read is not None
    return build_check(read)({"prompt": "", **row}, reply)


def score(call: str, reply: str, **row: Any) -> float:
    return verdict(call, reply, **row).score


def calling(*calls: tuple[str, dict[str, Any]], think: str = "x") -> str:
    lines = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    return "\n".join([f"<think>{think}</think>", "<tool_call>", *lines, "</tool_call>"])


def gold(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments} for name, arguments in calls]


# -------------------------------------------------------------------------------------------------------------- toolrl


def test_toolrl_by_hand() -> None:
    """Gold f(a=1), said f(a=2): names 1, argument names 1, values 0: S 2 of 3, 6 x 2/3 - 3 = 1; the format adds 1."""
    one = gold(("f", {"a": 1}))
    assert score("toolrl", calling(("f", {"a": 2})), answer=one) == pytest.approx(2.0)
    assert verdict("toolrl", calling(("f", {"a": 1})), answer=one) == Verdict(4.0, True)
    assert score("toolrl", calling(("g", {"a": 1})), answer=one) == pytest.approx(1 - 3)
    assert score("toolrl(form=0)", calling(("f", {"a": 2})), answer=one) == pytest.approx(1.0)
    assert score("toolrl(scale=0)", calling(("f", {"a": 2})), answer=one) == 1.0
    assert score("toolrl(scale=1)", calling(("f", {"a": 2})), answer=one) == pytest.approx(1 + 1 / 3)


def test_toolrl_calls_that_cannot_be_read_or_are_missing() -> None:
    one = gold(("f", {"a": 1}))
    assert score("toolrl", "<think>x</think>\n<tool_call>\n{f}\n</tool_call>", answer=one) == 1 - 3
    assert score("toolrl", "<think>x</think>\n<response>hello</response>", answer=one) == -3
    assert score("toolrl", 'no tags {"name": "f"}', answer=one) == -3
    bare = json.dumps(one[0])
    assert score("toolrl", bare, answer=one) == 3.0  # right calls without the format


def test_toolrl_where_no_call_is_right_correctness_is_zero() -> None:
    assert verdict("toolrl", "<think>x</think>\n<response>no</response>", answer=[]) == Verdict(1.0, True)
    assert score("toolrl", calling(("f", {})), answer=[]) == 0.0


def test_toolrl_matches_greedily_in_the_order_of_the_right_calls() -> None:
    """Gold f(a=1, b=1), f(a=1); said f(a=1), f(a=9, b=9): the first takes f(a=1): 1/2 + 1, against 1 + 0.

    Then f(a=1) takes what is left: 1/2 + 0. S = 1 + 1.5 + .5 = 3 of 1 + 3 + 2 = 6. The best assignment has 1 + 2 more.
    """
    right = gold(("f", {"a": 1, "b": 1}), ("f", {"a": 1}))
    said = calling(("f", {"a": 1}), ("f", {"a": 9, "b": 9}))
    assert score("toolrl(form=0)", said, answer=right) == pytest.approx(6 * 3 / 6 - 3)
    assert score("tool_calls", said, answer=right) == pytest.approx((1 + 1 + 2) / 6)


def test_toolrl_coarse_is_exact_match_and_length_counts_words() -> None:
    one = gold(("f", {"a": 1}))
    assert score("toolrl(coarse=True)", calling(("f", {"a": 2})), answer=one) == 1 - 3
    assert score("toolrl(coarse=True)", calling(("f", {"a": 1})), answer=one) == 4
    long = calling(("f", {"a": 1}), think="w " * 128)
    assert score("toolrl(length=1)", long, answer=one) == pytest.approx(4 + 128 / 512)


def test_toolrl_compares_values_as_wholes() -> None:
    right = gold(("f", {"a": [1, 2]}))
    assert score("toolrl(form=0)", calling(("f", {"a": [1, 3]})), answer=right) == pytest.approx(1.0)
    assert score("toolrl(form=0)", calling(("f", {"a": True})), answer=gold(("f", {"a": 1}))) == pytest.approx(1.0)


def test_toolrl_numbers_are_equal_by_value_and_truth_is_no_number() -> None:
    one = json.dumps([{"name": "f", "arguments": {"a": 2}}])
    assert score("toolrl", calling(("f", {"a": 2.0})), answer=one) == 4.0
    truth = json.dumps([{"name": "f", "arguments": {"a": True}}])
    assert score("toolrl", calling(("f", {"a": 1})), answer=truth) == pytest.approx(1 + 6 * 2 / 3 - 3)


def test_exact_calls_wants_format_and_calls() -> None:
    one = gold(("f", {"a": 1}), ("g", {}))
    assert score("exact_calls", calling(("g", {}), ("f", {"a": 1})), answer=one) == 1
    assert score("exact_calls", calling(("f", {"a": 1})), answer=one) == 0
    assert score("exact_calls", json.dumps(one), answer=one) == 0


# ----------------------------------------------------------------------------------------------------------- retrieval


def test_rag_rl_by_hand() -> None:
    """Two of three cited, one wrong, right answer and format: 5 + (3.33 - 2) + 1 = 7.33."""
    row = {"answer": "Rome", "supports": ["1", "2", "3"]}
    reply = "<think>so</think>\nanswer: rome\ncitations: [1] [2] [9]"
    assert score("rag_rl", reply, **row) == pytest.approx(5 + 10 / 3 - 2 + 1)
    assert verdict("rag_rl", reply.replace("[9]", "[3]"), **row) == Verdict(11.0, True)
    assert score("rag_rl", "answer: Rome\ncitations: [1] [2] [3]", **row) == 5 + 5 - 1
    assert score("rag_rl", reply + "\nand more", **row) == pytest.approx(5 + 10 / 3 - 2 - 1)
    assert score("rag_rl", "Rome", **row) == -1
    assert score("rag_rl", f"<think>{'é' * 40}</think>\nanswer: Rome\ncitations: [1] [2] [3]", **row) == 5 + 5 - 1
    assert score("rag_rl", "citations: " + " ".join(f"[{i}]" for i in range(4, 24)), **row) == -2 * 20 - 1  # no bound
    with pytest.raises(BadRow, match="supports"):
        score("rag_rl", reply, answer="Rome", supports=[])


def test_autorefine_by_hand() -> None:
    """Answer "marie curie" for "curie": F1 2/3. Notes count only where the answer has nothing."""
    assert score("autorefine", "<answer>Marie Curie</answer>", answer="curie") == pytest.approx(2 / 3)
    noted = "<refine>It was the Curie pair</refine><answer>Einstein</answer>"
    assert score("autorefine", noted, answer="curie pair") == 0.1
    assert score("autorefine", noted, answer="pair curie") == 0.0  # a phrase, not a bag of words
    assert score("autorefine(noted=0)", noted, answer="curie pair") == 0.0
    assert score("autorefine", "<refine>curie</refine>", answer="curie") == 0.0
    assert score("autorefine", "<answer>no way</answer>", answer="no") == 0.0
    assert score("autorefine", "<answer>B</answer>", answer="A") == 0.0  # an article: no words are left to be noted
    assert score("autorefine", "<answer>x</answer><answer>curie</answer>", answer=["a", "Curie"]) == 1.0


def test_sem_pays_searches_only_where_they_are_needed() -> None:
    direct, searched = "<answer>curie</answer>", "<search>q</search><documents>d</documents>"
    assert score("sem", direct, answer="curie") == 1.0
    assert score("sem", f"{direct}{searched}{direct}", answer="curie") == 0.0
    assert score("sem", f"<answer>x</answer>{searched}{direct}", answer="curie") == 1.0
    assert score("sem", f"<answer>x</answer>{searched}<answer>marie curie</answer>", answer="curie") == pytest.approx(
        2 / 3
    )
    assert score("sem", "<answer>x</answer>", answer="curie") == 0.0
    assert score("sem", f"{searched}{direct}", answer="curie") == 0.0  # no direct answer
    assert score("sem(tau=0.6)", "<answer>marie curie</answer>", answer="curie") == pytest.approx(2 / 3)


@pytest.mark.parametrize("call", ["toolrl", "exact_calls", "rag_rl", "autorefine", "sem"])
def test_hostile_replies_get_a_verdict(call: str) -> None:
    row = {"answer": gold(("f", {"a": 1})) if "call" in call or call == "toolrl" else "x", "supports": ["1"]}
    for reply in (
        "",
        "<answer>" * 5000,
        "<think>" * 5000,
        "[" * 20000,
        "<tool_call>{</tool_call>",
        "\ud800",
        "a" * 300_000,
    ):
        assert not verdict(call, reply, **row).correct


# --------------------------------------------------------------------------------------------------------------- tasks


def text_of_expert(task: Task) -> str:
    spoken = [m["content"] for m in task.given.get("messages", ()) if m["role"] == "assistant"]
    return "\n".join(spoken) or task.given["demo"]


@pytest.mark.parametrize("name", [f"{name}:{level}" for name in NEW for level in (1, 2, 3, 4)])
def test_experts_are_right_and_splits_do_not_meet(name: str) -> None:
    family = source(name)
    train, heldout = ({family.task(split, i).key for i in range(60)} for split in ("train", "heldout"))
    assert len(train) > 20 and not train & heldout
    for index in range(40):
        task = family.task("train", index)
        assert family.verify(task, text_of_expert(task)).correct, task
        if "mistake" in task.given:
            assert not family.verify(task, task.given["mistake"]).correct, task
        again = source(name).task("train", index)
        assert (again.prompt, again.key) == (task.prompt, task.key)


@pytest.mark.parametrize("name", NEW)
def test_verdicts_come_from_the_sandbox_too(name: str) -> None:
    family = source(f"{name}:2")
    tasks = [family.task("heldout", i) for i in range(3)]
    replies = [text_of_expert(tasks[0]), "nothing", text_of_expert(tasks[0])]
    found = [v.correct for v in limited(family).verdicts(tasks, replies)]
    assert found[0] and not found[1]


def test_calls_are_graded_and_some_requests_fit_no_function() -> None:
    family = source("calls:3")
    tasks = [family.task("train", i) for i in range(60)]
    none = [task for task in tasks if not task.given["answer"]]
    assert 0 < len(none) < 20
    assert family.verify(none[0], "<think>x</think><response>none</response>").correct
    shown = {schema["name"] for schema in none[0].given["schemas"]}
    assert not any(f"{name}(" in none[0].prompt[0]["content"].partition("Do:")[2] for name in shown)
    task = next(task for task in tasks if len(task.given["answer"]) == 2)
    half = json.dumps(task.given["answer"][:1])
    assert 0 < family.verify(task, half).score < 1
    assert verdict("toolrl", task.given["demo"], answer=task.given["answer"]) == Verdict(4.0, True)


def test_demos_of_passages_have_the_best_rag_rl_reward() -> None:
    for level in (1, 4):
        task = source(f"passages:{level}").task("train", 0)
        assert verdict("rag_rl", task.given["demo"], **task.given) == Verdict(11.0, True)
        assert score("citations", task.given["demo"].partition("</think>")[2], **task.given) == 1.0


def test_search_finds_passages_by_rare_words() -> None:
    texts = ["the boss of Ada", "the boss of Ben", "the friend of Ada"]
    assert retrieve("boss of Ben", texts, 2) == [1, 0]
    assert retrieve("nobody", texts, 2) == []


def test_an_episode_of_search_by_hand() -> None:
    world = Question((("Ada", "boss", "Ben"), ("Ben", "doctor", "Eva")), (("Tim", "boss", "Zoe"),))
    env = Searching(world, 1)
    assert env.reset().startswith("Who is the doctor of the boss of Ada?")
    assert env.expert() == "<search>boss of Ada</search>"
    first = env.step("<think>hm</think> <search>boss of Ada</search>")
    assert "The boss of Ada is Ben." in str(first.observation) and first.reward == 0 and not first.over
    assert env.expert() == "<refine>The boss of Ada is Ben.</refine>\n<search>doctor of Ben</search>"
    call = '<tool_call>{"name": "search", "arguments": {"query": "doctor of Ben"}}</tool_call>'
    assert "Eva" in str(env.step(call).observation) and env.key() == "[0, 1] after 2"
    last = env.step("<answer>eva.</answer>")
    assert last.reward == 1.0 and last.terminated
    env.reset()
    outcomes = [env.step("I do not know") for _ in range(4)]
    assert outcomes[-1].truncated and not outcomes[-2].over


def test_what_a_reply_does() -> None:
    assert read_step("<answer>x</answer> no: <search>y</search>") == ("search", "y")
    assert read_step("so\nanswer: it is Eva.") == ("answer", "Eva")
    assert read_step("<search>never closed") == ("", "")


# ------------------------------------------------------------------------------------------------------------- methods


def now(step: int, of: int, models: Any = None) -> Step:
    return Step(Clock(step, of), models, SMALL)


def test_levels_of_distractors_by_hand() -> None:
    """Two right passages of ten: K 8, level 1 has one distractor, level 8 has all eight."""
    assert [distractors_at(level, 2, 8) for level in (1, 2, 8)] == [1, 2, 8]
    assert distractors_at(1, 4, 8) == 0 and distractors_at(9, 2, 3) == 3
    assert [LEVELS["linear"](share, 6) for share in (0.1, 0.5, 1.0)] == [1, 3, 6]
    assert [LEVELS["min_max"](share, 6) for share in (0.5, 0.6)] == [1, 6]


def test_a_curriculum_asks_with_more_distractors_later() -> None:
    drawn = distracted(source("passages:3"), "min_max")

    def passages(step: int) -> list[int]:
        return [task.prompt[0]["content"].count("\n") for task in drawn.call(now(step, 10))]  # type: ignore[union-attr]

    assert passages(0) == [3, 3, 3] and passages(9) == [10, 10, 10]  # 2 right + 1, 2 right + 8
    shuffled = distracted(source("passages:3"), "linear_shuffled")
    counts = {task.prompt[0]["content"].count("\n") for s in range(20) for task in shuffled.call(now(s, 20))}
    assert len(counts) > 3


def test_right_passages_are_always_among_those_shown() -> None:
    task = source("passages:4").task("train", 5)
    for many in (0, 1, 5):
        asked = with_distractors(task, many)
        lines = asked.prompt[0]["content"].splitlines()[:-1]
        assert len(lines) == 3 + many
        right = {f"[{n}] {text}" for n in asked.given["supports"] for text in task.given["passages"][:3]}
        assert sum(line in right for line in lines) == 3


def trained(method: Any, model: Path) -> torch.Tensor:
    """The weights after two steps."""
    models = build_cast(method, model)
    for _ in loop(method, models, SMALL, steps=2, seed=0):
        pass
    return torch.cat([p.flatten() for p in models["policy"].module.parameters()])


def test_rag_rl_with_all_distractors_is_grpo(small_model: Path) -> None:
    task = rewarded(source("passages:1"), lambda completions: [float(len(text) % 3) for text in completions])
    hardest = trained(rag_rl(task, curriculum="max", n=3), small_model)
    assert torch.equal(hardest, trained(grpo(task, n=3, beta=0.01), small_model))
    assert not torch.equal(hardest, trained(rag_rl(task, curriculum="min_max", n=3), small_model))


def test_a_bonus_for_the_entropy_of_thoughts(small_model: Path) -> None:
    """alpha .4, kappa 2: A 1, H 1 gives 1.4; A 1, H 2 gives 1.5 (the cap); A -1, H 1 gives -.6; outside unchanged."""
    models = build_cast(entropy_grpo(rewarded(source("sort"), lambda completions: [0.0])), small_model)
    chat = models["policy"].chat
    reply = chat.reply("<think>ab</think>c")
    for advantage, wanted in ((1.0, [1.4, 1.5]), (-1.0, [-0.6, -0.5])):
        trace = Trace((Turn(torch.zeros(2, dtype=torch.long), "task"), Turn(reply, "policy")))
        inside = thought_tokens(trace, chat)
        assert inside.nonzero().flatten().tolist() == [9, 10]  # two of the prompt, seven of <think>
        trace.streams["adv"] = torch.full((len(trace),), advantage)
        trace.streams["entropy"] = torch.zeros(len(trace))
        trace.streams["entropy"][9], trace.streams["entropy"][10] = 1.0, 2.0
        entropy_of_thoughts(0.4, 2.0).call([Group(Task("q", "?", {}, "?"), [trace])], now(0, 1, models))
        assert trace.streams["adv"][inside].tolist() == pytest.approx(wanted)
        assert set(trace.streams["adv"][~inside].tolist()) == {advantage}


def test_without_the_bonus_it_is_grpo(small_model: Path) -> None:
    task = rewarded(source("calls"), lambda completions: [float(len(text) % 3) for text in completions])
    assert torch.equal(trained(entropy_grpo(task, n=4, alpha=0.0), small_model), trained(grpo(task, n=4), small_model))


def test_a_reward_judges_whole_episodes_in_place_of_the_environment(tmp_path: Path, small_model: Path) -> None:
    """On a task with an environment, --reward scores the text of all turns, the environment's among them."""
    seen: list[str] = []

    def judge(completions: list[str]) -> list[float]:
        seen.extend(completions)
        return [0.25 * (i % 2) for i in range(len(completions))]

    run = burnish.train(
        "grpo", model=str(small_model), task="search:1", reward=judge, out=str(tmp_path / "run"), steps=1, prompts=2,
        n=2, turns=2, max_new_tokens=4, eval_tasks=0, device="cpu",
    )  # fmt: skip
    assert run is not None and seen and "search or answer" in "".join(seen)


def test_the_examples_of_these_rewards_run_as_they_are(small_model: Path, tmp_path: Path) -> None:
    for name in ("toolrl", "exact_calls", "rag_rl", "autorefine", "sem"):
        words = load_verifiers()[name].example.split()
        assert words[:3] == ["burnish", "train", "grpo"] and words[4].partition(":")[0] in NEW
        options = dict(zip(words[3::2], words[4::2], strict=True))
        burnish.train(
            "grpo", model=str(small_model), task=options["--task"], reward=options["--reward"], steps=1, prompts=1,
            n=2, max_new_tokens=4, eval_tasks=0, eval_every=0, record=0, out=str(tmp_path / name),
        )  # fmt: skip


def test_every_method_here_builds(small_model: Path) -> None:
    for name in ("entropy_grpo", "rag_rl"):
        assert build_method(name, small_model).name == name


def test_the_schedule_of_toolrl_is_two_rewards_and_a_shape(tmp_path: Path, small_model: Path) -> None:
    """Format from 2 to 1 and correctness from 2 to 3: at the first of three steps 2 r_format + .667 r_correct."""
    two = "toolrl(scale=0)*0,toolrl(form=0)*0"
    assert [part.name for part in read_rewards(two)] == ["toolrl", "toolrl_2"]
    run = burnish.train(
        "grpo", model=str(small_model), task="calls:1", reward=two, out=str(tmp_path / "run"), steps=1, prompts=2,
        shape="scheduled(toolrl, 2, 1, 3),scheduled(toolrl_2, 0.667, 1, 3)", n=2, max_new_tokens=4, eval_tasks=0,
        device="cpu",
    )  # fmt: skip
    metrics = run.metrics[-1]
    assert metrics["reward/toolrl"] == 0 and metrics["reward/toolrl_2"] == -3
    assert metrics["reward"] == pytest.approx(-3 * 0.667)


@pytest.mark.slow
def test_grpo_learns_to_answer_from_passages(tmp_path: Path) -> None:
    """The embedded model, 20 steps: from 23% to 90% and more when it was measured."""
    run = burnish.train(
        "grpo", task="passages:1", out=str(tmp_path / "run"), steps=20, max_new_tokens=24, eval_every=0, save_every=0,
        device="cpu",
    )  # fmt: skip
    assert run.before is not None and run.after is not None
    assert run.before.as_sampled.mean < 0.4 and run.after.as_sampled.mean > 0.7
