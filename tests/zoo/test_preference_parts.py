"""Builders, credit parts and followers of preference methods: numbers by hand and limits."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, make_model
from safetensors.torch import save_file

from burnish.core.parts import Part
from burnish.core.roles import ema, roles, snapshot
from burnish.core.seeds import rng
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit import preference
from burnish.credit.preference import pair_preference
from burnish.methods.table import find
from burnish.models.build import Models, build
from burnish.rollout.sample import sample
from burnish.score.wins import win_rates
from burnish.select import lists
from burnish.select.remember import Store
from burnish.tasks.data import Dataset
from burnish.tasks.table import source
from burnish.zoo import bco as density
from burnish.zoo import mixed_po as gap
from burnish.zoo.accelerated_po import extrapolated
from burnish.zoo.aot import matched_margins, matched_replies
from burnish.zoo.bco import Midpoint, reward_midpoint
from burnish.zoo.divpo import by_words
from burnish.zoo.dno import large_margins
from burnish.zoo.dpo_vp import staged
from burnish.zoo.fpo import feature_drift, jump_relu
from burnish.zoo.lcpo import LOSSES, Reliability, label_confidence
from burnish.zoo.ld_dpo import beyond_the_shorter
from burnish.zoo.online_iterative_dpo import less_length
from burnish.zoo.self_supervised_po import graded, keywords, without
from burnish.zoo.t_reg import contrasted_rewards
from burnish.zoo.tgdpo import guided_weights
from burnish.zoo.tpo import gold_and_pair
from burnish.zoo.trpa import factor_of_right
from burnish.zoo.xpo import rival_pairs

PROMPT = Turn(torch.tensor([1, 2]), "task")


def replies(*lengths: int, scores: Sequence[float], author: str = "demo", key: str = "k") -> Group:
    """A group of replies of these lengths, scored; tokens are different in every reply."""
    traces = []
    for i, (length, score) in enumerate(zip(lengths, scores, strict=True)):
        turn = Turn(torch.arange(length) + 10 * i, author, torch.full((length,), -1.0 - i), parent=PROMPT)
        traces.append(Trace((PROMPT, turn), i, {"reward": score}))
    return Group(Task("question", "?", {}, key), traces)


def now(**models: Any) -> Step:
    return Step(Clock(0, 10), models, SMALL)  # type: ignore[arg-type]


def run(part: Part, *groups: Group) -> list[Group]:
    return part.call(list(groups), now())


def written(trace: Trace, stream: str) -> list[float]:
    """A stream on the reply's tokens."""
    return trace.streams[stream][2:].tolist()


def logps(trace: Trace, **streams: Sequence[float]) -> None:
    for name, values in streams.items():
        trace.streams[name] = torch.tensor([math.nan, math.nan, *values])


# ------------------------------------------------------------------------------------------------------ builders


def test_whole_lists_are_ranked_with_ties() -> None:
    (group,) = run(lists.whole_lists(), replies(1, 1, 1, scores=[0, 1, 0]))
    assert [trace.index for trace in group.traces] == [1, 0, 2] and group.lists == [(0, 1, 2)]
    assert run(lists.whole_lists(), replies(1, scores=[1])) == []


def test_lists_of_equal_scores_are_dropped_and_the_best_is_tagged() -> None:
    (group,) = run(lists.unequal_lists(), replies(1, 1, scores=[1, 1], key="a"), replies(1, 1, scores=[0, 1], key="b"))
    assert group.task.key == "b" and "best" in group.traces[0].tags and group.traces[0].index == 1


def test_gold_and_pair_takes_best_second_and_worst() -> None:
    (group,) = run(gold_and_pair(), replies(1, 1, 1, 1, scores=[0.2, 0.9, 0.1, 0.5]))
    assert [trace.index for trace in group.traces] == [1, 3, 2] and group.pairs == [(1, 2)]
    assert "gold" in group.traces[0].tags
    assert run(gold_and_pair(), replies(1, 1, 1, scores=[1, 0, 0])) == [], "the second scores like the worst"


def test_rejection_sampling_in_its_limits() -> None:
    """beta -> 0 takes the best ones, beta -> infinity the first ones."""
    rewards = [0.1, 0.9, 0.5, 0.7]
    assert sorted(lists.accepted(rewards, 1e-6, 2, rng("a"))) == [1, 3]
    assert lists.accepted(rewards, 1e9, 2, rng("a")) == [0, 1]
    assert len(lists.accepted(rewards, 0.5, 9, rng("a"))) == 4


def test_rejection_sampling_has_the_stated_chance() -> None:
    """r = (0, 1), beta 1, one kept: reply 0 is tried first and taken with chance e^-1, else reply 1."""
    first = [lists.accepted([0.0, 1.0], 1.0, 1, rng("dice", i)) for i in range(4000)]
    share = sum(one == [0] for one in first) / len(first)
    assert share == pytest.approx(math.exp(-1), abs=0.03)


def test_neighbours_are_paired() -> None:
    (group,) = run(lists.first_round(), replies(1, 1, 1, 1, 1, scores=[0, 1, 1, 1, 0]))
    assert [group.traces[i].index for i in group.pairs[0]] == [1, 0] and len(group.pairs) == 1, "a tie and a leftover"


def test_diverse_pairs_by_hand() -> None:
    """The bands of rewards 0, 0.2, 0.8, 1 and rho 0.3 are {2, 3} and {0, 1}.

    The most diverse of the first is 2, the least of the second is 1. rho = 0 leaves the best and the worst.
    """
    scores, diversity = [0.0, 0.2, 0.8, 1.0], [5.0, 1.0, 9.0, 2.0]
    assert lists.diverse_pair(scores, diversity, 0.3) == (2, 1)
    assert lists.diverse_pair(scores, diversity, 0.0) == (3, 0)


def test_diversity_by_probability_and_by_words() -> None:
    """Log-probs of -1 x 2 tokens and -2 x 1 token: 2 and 2. Tokens that two of three replies have count 3/2."""
    group = replies(2, 1, scores=[0, 1])
    assert lists.by_probability(group.traces, now()) == [2.0, 2.0]
    same = replies(2, 2, 2, scores=[0, 1, 1])
    same.traces[2] = Trace(same.traces[0].turns, 2)
    assert by_words(same.traces, now()) == [1.5, 3.0, 1.5]


def test_diverse_vs_usual_and_longest_vs_any() -> None:
    (group,) = run(lists.diverse_vs_usual(0.0, lists.by_probability), replies(1, 1, 1, scores=[0, 1, 1]))
    assert [trace.index for trace in group.traces] == [2, 0], "of two best replies the one with the smaller log-prob"
    (group,) = run(lists.longest_vs_any(), replies(1, 3, 2, scores=[0, 1, 1]))
    assert [trace.index for trace in group.traces] == [1, 0] and group.pairs == [(0, 1)]


def test_large_margins_by_hand() -> None:
    """Scores 1 (demo), 0.9 (past), 0.7 (past), floor 0.8, margins 0.3 and 0.2: (1, 0.7) and (0.9, 0.7)."""
    group = replies(1, 1, 1, scores=[1.0, 0.9, 0.7])
    for trace in group.traces[1:]:
        trace.turns = (PROMPT, Turn(trace.turns[1].tokens, "past", parent=PROMPT))
    (kept,) = run(large_margins(0.8, 0.3, 0.2, own="past"), group)
    assert kept.pairs == [(0, 2), (1, 2)]
    assert run(large_margins(1.1, 0.0, 0.0, own="past"), replies(1, 1, scores=[1, 0])) == []


def test_rivals_are_paired_one_by_one() -> None:
    group = replies(1, 1, 1, 1, scores=[1, 0, 0, 0])
    for trace in group.traces[2:]:
        trace.turns = (PROMPT, Turn(trace.turns[1].tokens, "ref", parent=PROMPT))
    (kept,) = run(rival_pairs("demo", "ref"), group)
    assert [trace.index for trace in kept.traces] == [0, 2] and kept.pairs == [(0, 1)], "the second pair ties"


def test_the_best_is_compared_with_the_worst_beside_another_author() -> None:
    group = replies(1, 1, 1, scores=[0, 1, 5])
    group.traces[2].turns = (PROMPT, Turn(group.traces[2].turns[1].tokens, "ref", parent=PROMPT))
    (kept,) = run(lists.best_vs_worst_beside("ref", "demo"), group)
    assert [trace.index for trace in kept.traces] == [1, 0, 2] and kept.pairs == [(0, 1)]
    (kept,) = run(lists.best_vs_worst_beside("ref"), kept)
    assert [trace.index for trace in kept.traces] == [2, 0] and kept.pairs == [(0, 1)], "it may be in the pair itself"


def test_easy_pairs_are_the_larger_gaps_and_others_are_remembered() -> None:
    groups = [replies(1, 1, scores=[1, 0], key=str(i)) for i in range(4)]
    for i, group in enumerate(groups):
        group.pairs = [(0, 1)]
        for sign, trace in zip((1, -1), group.traces, strict=True):
            trace.scores["gap"] = sign * float(i)
    store, gaps = Store("difficult", 10), gap.Gaps(0.5)
    kept = gap.easy_pairs(gaps, store).call(groups[::-1], now())
    assert [group.task.key for group in kept] == ["2", "3"] and [group.task.key for group in store.groups] == ["0", "1"]
    again = gap.Gaps(0.5)
    again.load_state_dict(gaps.state_dict())
    assert again.threshold() == gaps.threshold() == 4.0


# -------------------------------------------------------------------------------------------------------- scores


def test_win_rates_include_the_reply_itself() -> None:
    """Scores 1, 0: against itself 1/2, against the other 1 or 0: 3/4 and 1/4."""
    (group,) = run(win_rates(lambda a, b: 0.5 * ((a > b) + (a >= b))), replies(1, 1, scores=[1, 0]))
    assert [trace.scores["wins"] for trace in group.traces] == [0.75, 0.25]


def test_length_costs() -> None:
    (group,) = run(less_length(0.1, author="demo"), replies(3, 1, scores=[1, 1]))
    assert [trace.scores["net"] for trace in group.traces] == pytest.approx([0.7, 0.9])


# -------------------------------------------------------------------------------------------------------- credit


def paired(*lengths: tuple[int, int]) -> list[Group]:
    groups = [replies(*pair, scores=[1, 0], key=str(i)) for i, pair in enumerate(lengths)]
    for group in groups:
        group.pairs = [(0, 1)]
    return groups


def test_tokens_beyond_the_shorter_reply_count_alpha() -> None:
    (group,) = run(beyond_the_shorter(0.25), *paired((3, 1)))
    assert written(group.traces[0], "weight") == [1.0, 0.25, 0.25] and written(group.traces[1], "weight") == [1.0]


def test_margins_are_matched_by_rank() -> None:
    """u = (3, 1), v = (0.5, 0.2): the larger u gets the larger v whatever its pair; order of groups does not matter."""
    groups = paired((1, 1), (1, 1))
    for group, mine, theirs in zip(groups, (3.0, 1.0), (0.2, 0.5), strict=True):
        logps(group.traces[0], now=[mine], ref=[theirs])
        logps(group.traces[1], now=[0.0], ref=[0.0])
    run(matched_margins(), *groups[::-1])
    assert [written(group.traces[0], "matched")[0] for group in groups] == pytest.approx([0.5, 0.2])


def test_unpaired_replies_get_partners_by_rank() -> None:
    groups = paired((1, 1), (1, 1))
    ratios = [(2.0, -1.0), (1.0, -3.0)]
    for group, pair in zip(groups, ratios, strict=True):
        for trace, ratio, sign in zip(group.traces, pair, (1.0, -1.0), strict=True):
            logps(trace, now=[ratio], ref=[0.0])
            preference.fill(trace, "label", sign)
    run(matched_replies(), *groups)
    found = [[written(trace, "partner")[0] for trace in group.traces] for group in groups]
    assert found == [[-1.0, 2.0], [-3.0, 1.0]]


def test_confidence_in_labels_and_the_reliability() -> None:
    """beta d = log 3: p = 3/4; eta 0.9: c = 27/28; eta <- 0.9 + 0.1 (27/28 - 0.9)."""
    (group,) = paired((1, 1))
    logps(group.traces[0], now=[math.log(3)], ref=[0.0])
    logps(group.traces[1], now=[0.0], ref=[0.0])
    annotator = Reliability(0.9, 0.1)
    run(label_confidence(annotator, LOSSES["dpo"], 1.0), group)
    assert written(group.traces[1], "confidence")[0] == pytest.approx(27 / 28)
    assert annotator.of("") == pytest.approx(0.9 + 0.1 * (27 / 28 - 0.9))
    other = Reliability(0.5, 0.1)
    other.load_state_dict(annotator.state_dict())
    assert other.of("") == annotator.of("")
    other.load_state_dict({"value": 0.7})
    assert other.of("") == 0.7, "as it was stored before annotators were told apart"


@pytest.mark.parametrize(
    ("loss", "beta", "odds"),
    [
        ("ipo", 0.5, 4.0),  # d = 1, target 1: L(w, l) = 0, L(l, w) = (-1 - 1)^2
        ("simpo", 2.0, math.log((1 + math.exp(2)) / 2)),  # m_w - m_l = 1/2: margins 2 x 1/2 - 1 = 0 and -2
        ("cpo", 1.0, 1.0 + 0.5),  # the margin 1, and the gap of the mean log-probs
    ],
)
def test_any_loss_is_made_robust(loss: str, beta: float, odds: float) -> None:
    """log pi = -1 and -2 of two tokens each, ref the same for both; c = p where eta is 1/2: s(L(l, w) - L(w, l))."""
    (group,) = paired((2, 2))
    logps(group.traces[0], now=[-0.5, -0.5], ref=[-1.0, -1.0])
    logps(group.traces[1], now=[-1.0, -1.0], ref=[-1.0, -1.0])
    run(label_confidence(Reliability(0.5, 0.1), LOSSES[loss], beta), group)
    assert written(group.traces[0], "confidence")[0] == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-6)


def test_each_annotator_has_a_reliability() -> None:
    """p = 3/4 for the pair of a, 1/4 for that of b; eta 1/2: c = p; momentum 1: their etas are 3/4 and 1/4."""
    groups = [*paired((1, 1)), *paired((1, 1))]
    for group, who, far in zip(groups, "ab", (math.log(3), -math.log(3)), strict=True):
        group.task = Task("pair", "?", {"rater": who}, who)
        logps(group.traces[0], now=[far], ref=[0.0])
        logps(group.traces[1], now=[0.0], ref=[0.0])
    raters = Reliability(0.5, 1.0)
    run(label_confidence(raters, LOSSES["dpo"], 1.0, annotator="rater"), *groups)
    assert (raters.of("a"), raters.of("b"), raters.of("c")) == (pytest.approx(0.75), pytest.approx(0.25), 0.5)


def test_rated_replies_of_a_dataset_make_triples(tmp_path: Path) -> None:
    """tpo on rows with scores: nothing is sampled, and no model writes; on prompts the start does."""
    file = tmp_path / "rated.jsonl"
    rows = [{"prompt": f"q{i}", "responses": ["bad", "good", "middling"], "scores": [1, 9, 5]} for i in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rated = find("tpo").build(Dataset(file))
    assert set(rated.models) == {"policy"} and rated.phases[0].rollout.name == "listed"
    assert set(find("tpo").build(source("sort")).models) == {"policy", "start"}
    (group,) = run(gold_and_pair(), replies(1, 1, 1, scores=[9, 5, 1]))
    assert group.pairs == [(1, 2)] and "gold" in group.traces[0].tags


def test_the_midpoint_of_rewards_runs() -> None:
    """beta 0.5: rewards 1 and -3 x 0.5: (1 - 1.5) / 2 = -0.25; a second batch of (3, 3): mean of -0.25 and 1.5."""
    running = Midpoint()
    for ratios, delta in (((2.0, -3.0), -0.25), ((3.0, 3.0), (-0.25 + 1.5) / 2)):
        (group,) = paired((1, 1))
        for trace, ratio, sign in zip(group.traces, ratios, (1.0, -1.0), strict=True):
            logps(trace, now=[ratio], ref=[0.0])
            preference.fill(trace, "label", sign)
        run(reward_midpoint(running, 0.5), group)
        assert written(group.traces[0], "delta")[0] == pytest.approx(delta)


def test_guided_weights_by_hand() -> None:
    """beta 0.5: r = 0.5 (1 - 0) = 0.5; alpha 0.4: 1.2 in w, 0.8 in l."""
    (group,) = paired((1, 1))
    for trace in group.traces:
        logps(trace, judge=[1.0], ref=[0.0])
    run(guided_weights(0.4, 0.5), group)
    assert [written(trace, "weight")[0] for trace in group.traces] == pytest.approx([1.2, 0.8])


def test_the_preferences_of_pairs_and_the_factor_of_right_ones() -> None:
    (group,) = paired((1, 1))
    run(pair_preference(lambda a, b: 0.5 + 0.1 * (a - b)), group)
    assert [written(trace, "preference")[0] for trace in group.traces] == pytest.approx([0.6, 0.6])
    run(factor_of_right(2.5), group)
    assert [written(trace, "factor")[0] for trace in group.traces] == [2.5, 1.0]


def test_prompts_that_both_classes_have_weigh_one() -> None:
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    twice, good = torch.cat([features, features]), torch.tensor([True] * 6 + [False] * 6)
    assert density.log_ratio_weights(twice, good).abs().max() < 1e-12


def test_prompts_of_good_replies_weigh_more() -> None:
    features = torch.tensor([[1.0], [1.2], [-1.0], [-0.8], [-1.1]], dtype=torch.float64)
    weights = density.log_ratio_weights(features, torch.tensor([True, True, False, False, False]))
    ratio = (features @ weights[:-1] + weights[-1]).exp()
    assert (ratio[:2] > 1.5).all() and (ratio[2:] < 0.7).all()


def test_the_density_ratio_on_a_model(small_model: Path) -> None:
    models = build_cast(SimpleNamespace(models=roles(ref=ema("policy", 0.0))), small_model)  # type: ignore[arg-type]
    groups = paired((1, 1))
    for trace, sign in zip(groups[0].traces, (1.0, -1.0), strict=True):
        preference.fill(trace, "label", sign)
    memory = density.PromptMemory(8)
    density.density_ratio(memory).call(groups, Step(Clock(0, 2), models, SMALL))
    assert written(groups[0].traces[0], "density")[0] == pytest.approx(1.0) and len(memory.good) == 2
    copy = density.PromptMemory(8)
    copy.load_state_dict(memory.state_dict())
    assert copy.features == memory.features


def test_contrasted_rewards_are_between_minus_and_plus_a_half(small_model: Path) -> None:
    models = build_cast(SimpleNamespace(models=roles(ref=ema("policy", 0.0))), small_model)  # type: ignore[arg-type]
    chat = models["ref"].chat
    task = Task("question", "2 + 2", {}, "k")
    turns = Turn(chat.prompt(task), "task"), Turn(chat.reply("four"), "demo")
    step = Step(Clock(0, 2), models, SMALL)
    found = []
    for better, worse in (("good", "bad"), ("bad", "good"), ("same", "same")):
        trace = Trace(turns)
        contrasted_rewards(better, worse).call([Group(task, [trace])], step)
        found.append(trace.streams["token_reward"])
    assert (found[0].abs() < 0.5).all() and found[0].abs().max() > 0
    assert torch.allclose(found[0], -found[1], atol=1e-6), "the opposite instruction gives the opposite reward"
    assert found[2].abs().max() == 0 and (found[0][: len(turns[0])] == 0).all()


# ----------------------------------------------------------------------------------------------------- rollouts


def test_keywords_by_hand() -> None:
    """Phrases: "sharp red fox", "runs", "den". Degrees 3, 3, 3, 1, 1 over frequencies 1: the fox's words come first."""
    text = "the sharp red fox is at the den. it runs"
    assert [text.split()[i] for i in keywords(text)] == ["sharp", "red", "fox", "den.", "runs"]
    assert without("a b  c\nd", {1, 3}) == "a   c\n"


def test_graded_copies_lack_more_and_more(small_model: Path) -> None:
    models = build_cast(SimpleNamespace(models=roles()), small_model)  # type: ignore[arg-type]
    task = Task("question", "who?", {"chosen": "red fox and blue cat"}, "k")
    (group,) = graded("chosen", levels=2).call([task], Step(Clock(0, 2), models, SMALL))
    texts = [models["policy"].chat.text(trace.turns[1].tokens) for trace in group.traces]
    asked = [models["policy"].chat.text(trace.turns[0].tokens) for trace in group.traces]
    assert texts == ["0", "1", "2"] and all(trace.authors() == ("task", "degree") for trace in group.traces)
    assert ["fox" in text for text in asked] == [True, False, False] and ["cat" in t for t in asked] == [
        True,
        True,
        False,
    ]


def test_a_staged_rollout_changes_with_the_run() -> None:
    seen: list[float] = []

    def stage(heat: float) -> Any:
        made = sample(1, temperature=heat)
        return type(made)(
            name=made.name, call=lambda tasks, step: seen.append(heat) or [], reads=made.reads, writes=made.writes
        )

    both = staged((0.5, stage(0.7)), (1.0, stage(1.2)))
    for k in range(4):
        both.call([], Step(Clock(k, 4), {}, SMALL))  # type: ignore[arg-type]
    assert seen == [0.7, 0.7, 1.2, 1.2]


# ------------------------------------------------------------------------------------------------------ followers


def first(models: Models, name: str) -> float:
    return float(next(models[name].module.parameters()).detach().flatten()[0])


def move(models: Models, to: float) -> None:
    with torch.no_grad():
        for p in models["policy"].module.parameters():
            p.fill_(to)


def test_a_snapshot_of_a_snapshot_is_one_round_older(tmp_path: Path) -> None:
    cast = roles(past=snapshot("policy", 2), earlier=snapshot("past", 2), slow=ema("policy", 0.5, every=2))
    models = build(cast, make_model(tmp_path / "m"), SMALL, device="cpu")
    start = first(models, "policy")
    history = []
    for step in range(6):
        move(models, float(step + 1))
        models.publish(("policy",), Clock(step, 6), Notes())
        history.append([first(models, name) for name in ("past", "earlier")])
    assert history == [[start, start], [2, start], [2, start], [4, 2], [4, 2], [6, 4]]
    assert first(models, "slow") == pytest.approx((((start + 2) / 2) + 4) / 4 + 3)


def test_extrapolation_by_hand(tmp_path: Path) -> None:
    """From 0: round 1 learns 1, w = 1 + 0.5 (1 - 0); round 2 learns 2, w = 2 + 0.5 (2 - 1)."""
    cast = roles(past=snapshot("policy", 1), last=snapshot("policy", 1))
    models = build(cast, make_model(tmp_path / "m"), SMALL, device="cpu")
    for name in ("policy", "past", "last"):
        with torch.no_grad():
            for p in models[name].module.parameters():
                p.zero_()
    for learned, expected in ((1.0, 1.5), (2.0, 2.5)):
        move(models, learned)
        extrapolated(0.5).call(("policy",), Step(Clock(0, 2), models, SMALL))
        assert [first(models, name) for name in ("policy", "past", "last")] == [expected, expected, learned]


def test_features_of_an_autoencoder_by_hand(tmp_path: Path) -> None:
    """z = (2, 1) W + b; features below the threshold are 0. Drift of the largest: (3 - 1)^2."""
    save_file(
        {
            "W_enc": torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
            "b_enc": torch.zeros(2),
            "threshold": torch.tensor([0.0, 2.0]),
        },
        tmp_path / "sae.safetensors",
    )
    encode = jump_relu(str(tmp_path / "sae.safetensors"))
    assert encode(torch.tensor([[2.0, 1.0]])).tolist() == [[3.0, 0.0]]
    assert feature_drift(torch.tensor([[3.0, 0.5]]), torch.tensor([[1.0, 9.0]]), 1).tolist() == [4.0]
    with pytest.raises(ValueError, match="no file"):
        jump_relu(str(tmp_path / "other"))
    save_file({"W_dec": torch.zeros(1)}, tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match="no tensor 'W_enc'"):
        jump_relu(str(tmp_path / "bad.safetensors"))
