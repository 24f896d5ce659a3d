"""Baselines, advantages, exploration and length, against numbers derived by hand; and what each becomes without its
idea.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, doubled
from test_learn import gradients, grpo_token_mean, same_gradient
from torch import tensor

from burnish.core.method import Method, method
from burnish.core.parts import Part, chain
from burnish.core.roles import roles
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.baselines import RunningMean, leave_one_out, over_batch_mean, over_greedy, over_memory
from burnish.credit.claims import claim
from burnish.credit.gae import whiten
from burnish.credit.group import group_relative
from burnish.credit.penalty import kl_in_score, kl_on_tokens, rewards_to_go
from burnish.credit.streams import behaviour
from burnish.draw.few import few
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_sum_mean, token_mean
from burnish.learn.term import Live
from burnish.learn.terms import imitate, pg_clip, pg_reinforce
from burnish.learn.terms.policy import kl_k2
from burnish.methods.baselines import reinforce, reinforce_loo, reinforce_pp, reinforce_pp_baseline, remax, rloo
from burnish.methods.policy import grpo, ppo
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.aapo import aapo, group_plus_margin
from burnish.zoo.arbitrary_entropy_po import EntropyMeter, aepo, swap_in_tempered
from burnish.zoo.concise_two_phase import concise_two_phase, solvable
from burnish.zoo.conciser import brevity_once_right, conciser, partly_right
from burnish.zoo.copo import bits, copo, local_and_global
from burnish.zoo.esrl import RewardQueue, drop_surest, esrl
from burnish.zoo.gdpo import decoupled, gdpo, within
from burnish.zoo.lite_ppo import group_mean_batch_std, lite_ppo
from burnish.zoo.opo import opo, over_length_weighted_mean
from burnish.zoo.rlsc import own_probability, rlsc
from burnish.zoo.rlsp import effort, rlsp
from burnish.zoo.s_grpo import halved_after_each_right, s_grpo
from burnish.zoo.t1 import price_astray, repeats, t1

TASK = rewarded(source("sort"), coin)
Q = Task("question", "q", {}, "q")


def step() -> SimpleNamespace:
    return SimpleNamespace(clock=Clock(0, 10), notes=Notes(), settings=replace(SMALL, max_new_tokens=10, prompts=3))


def reply(reward: float = 0.0, length: int = 3, *tags: str, **scores: float) -> Trace:
    """Two prompt tokens and `length` sampled ones."""
    prompt = Turn(torch.arange(2), "task")
    turns = (prompt, Turn(torch.arange(length), "policy", parent=prompt))
    found = {"reward": reward, "correct": float(reward > 0.5), **scores}
    return Trace(turns, scores=found, tags=frozenset(tags))


def scored(*rewards: float) -> Group:
    return Group(Q, [reply(r) for r in rewards])


def after(part: Part, *groups: Group, stream: str = "adv") -> list[float]:
    """Each reply's advantage, read at its last token, after the part."""
    return [float(t.streams[stream][-1]) for g in part.call(list(groups), step()) for t in g.traces]


# ----------------------------------------------------------------------------------------------------------- baselines


def test_batch_mean_by_hand() -> None:
    """Scores 1, 0 | 1, 1: mean 3/4 over both groups."""
    assert after(over_batch_mean(), scored(1, 0), scored(1, 1)) == [0.25, -0.75, 0.25, 0.25]


def test_running_mean_by_hand() -> None:
    """decay 0.9: first compared with 0; then b = 0.1 * 0.5 = 0.05; then 0.9 * 0.05 + 0.1 * 1 = 0.145."""
    memory = RunningMean("b", 0.9)
    assert after(over_memory(memory), scored(1, 0)) == [1.0, 0.0]
    assert after(over_memory(memory), scored(1, 1)) == pytest.approx([0.95, 0.95])
    other = RunningMean("b", 0.9)
    other.load_state_dict(memory.state_dict())
    assert other.value == pytest.approx(0.145)


def test_reward_queue_by_hand() -> None:
    """A queue of 3: {1, 0} has mean 1/2; then {0, 1, 1}, mean 2/3, the first 1 pushed out."""
    memory = RewardQueue("q", 3)
    assert after(over_memory(memory), scored(1, 0)) == [0.5, -0.5]
    assert after(over_memory(memory), scored(1, 1)) == pytest.approx([1 / 3, 1 / 3])
    assert memory.state_dict() == {"scores": [0, 1, 1]}


@pytest.mark.parametrize("make", [lambda: RunningMean("b", 1.0), lambda: RewardQueue("q", 0), lambda: few(TASK, 0)])
def test_impossible_memories_are_refused(make) -> None:
    with pytest.raises(ValueError, match=r"keeps a share|at least 1"):
        make()


def test_leave_one_out_by_hand() -> None:
    """Scores 1, 0, 0, 1: a 1 is compared with (0 + 0 + 1)/3, a 0 with (1 + 0 + 1)/3. Four thirds of
    score minus mean.
    """
    found = after(leave_one_out(), scored(1, 0, 0, 1))
    assert found == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    assert found == pytest.approx([4 / 3 * a for a in after(group_relative(std=False), scored(1, 0, 0, 1))])
    assert after(leave_one_out(), scored(1)) == [0.0]


def test_length_weighted_baseline_by_hand() -> None:
    """Lengths 1 and 3, scores 1 and 0: b = 1 * 1 / 4. Equal lengths: the mean. One reply: itself."""
    assert after(over_length_weighted_mean(), Group(Q, [reply(1, 1), reply(0, 3)])) == [0.75, -0.25]
    assert after(over_length_weighted_mean(), scored(1, 0)) == after(group_relative(std=False), scored(1, 0))
    assert after(over_length_weighted_mean(), scored(1)) == [0.0]


def test_greedy_baseline_by_hand() -> None:
    """Samples 1 and 9 against a greedy 0.5: 0.5, and 8.5 cut at 5. Against a greedy 0 it is the score itself."""
    group = Group(Q, [reply(1, 3, "sample"), reply(9, 3, "sample"), reply(0.5, 3, "greedy")])
    found = after(over_greedy(), group)
    assert found[:2] == [0.5, 5.0] and math.isnan(found[2])
    group.traces[2].scores["reward"] = 0.0
    assert after(over_greedy(), group)[0] == 1.0


def test_batch_std_by_hand() -> None:
    """Scores 1, 0 | 1, 1: the four have sample std sqrt((3/16 + 9/16) / 3) = 1/2; centred 1/2, -1/2, 0, 0."""
    assert after(group_mean_batch_std(eps=0), scored(1, 0), scored(1, 1)) == [1.0, -1.0, 0.0, 0.0]
    assert after(group_mean_batch_std(), scored(1, 0, 0)) == after(group_relative(), scored(1, 0, 0))


# ----------------------------------------------------------------------------------------------------------- penalties


def with_kl(reward: float, *tags: str) -> Trace:
    """log-ratios 0.5 and -1: the reply's KL is -0.5."""
    trace = reply(reward, 2, *tags)
    trace.streams |= {"old": tensor([math.nan, math.nan, -1, -2.0]), "ref": tensor([math.nan, math.nan, -1.5, -1.0])}
    return trace


def test_kl_in_score_by_hand() -> None:
    """1 - 0.1 * (0.5 - 1) = 1.05."""
    trace = with_kl(1.0)
    kl_in_score(0.1).call([Group(Q, [trace])], step())
    assert trace.scores["penalised"] == pytest.approx(1.05)


def test_kl_on_tokens_by_hand() -> None:
    """An advantage of 0.5 on both tokens, less 0.1 times 0.5 and -1; the greedy reply is left alone."""
    group = Group(Q, [with_kl(1.0, "sample"), with_kl(0.5, "greedy")])
    chain(over_greedy(), kl_on_tokens(0.1, tag="sample")).call([group], step())
    assert group.traces[0].streams["adv"][2:].tolist() == pytest.approx([0.45, 0.6])
    assert torch.isnan(group.traces[1].streams["adv"]).all()


def test_rewards_to_go_by_hand() -> None:
    trace = reply(0, 3)
    trace.streams["reward"] = tensor([math.nan, math.nan, 0.1, -0.2, 1.0])
    rewards_to_go().call([Group(Q, [trace])], step())
    assert trace.streams["adv"][2:].tolist() == pytest.approx([0.9, 0.8, 1.0])
    assert torch.isnan(trace.streams["adv"][:2]).all()


def test_k2_term_by_hand() -> None:
    """log pi - log ref = 0.5, -1: 0.125 and 0.5; the gradient is the log-ratio."""
    logp = tensor([-1.0, -2.0], requires_grad=True)
    live = Live(
        {"logp": logp}, {"ref": tensor([-1.5, -1.0])}, tensor([0, 0]), 1, tensor([]), [], tensor([0]), Clock(0, 1)
    )
    found = kl_k2(coef=1.0).loss(live)
    found.sum().backward()
    assert found.tolist() == [0.125, 0.5] and logp.grad.tolist() == [0.5, -1.0]


# ------------------------------------------------------------------------------------------------- other advantages


def test_decoupled_by_hand() -> None:
    """Two pairs. A pair (1, 0) normalises to +-1/sqrt 2, a pair (0, 0) to 0.
    Sums: +-sqrt 2 where both scores differ, +-1/sqrt 2 where one does. Their sample std is sqrt((2 + 2 + 1/2 + 1/2) /
    3) = 1.290994.
    """
    groups = [
        Group(Q, [reply(1, within=1.0), reply(0, within=0.0)]),
        Group(Q, [reply(1, within=0.0), reply(0, within=0.0)]),
    ]
    found = after(decoupled({"reward": 1.0, "within": 1.0}, eps=1e-9), *groups)
    assert found == pytest.approx([1.095445, -1.095445, 0.547723, -0.547723], abs=1e-6)


def test_decoupled_with_one_score_is_grpo() -> None:
    found = after(decoupled({"reward": 1.0}), scored(1, 0, 0), scored(1, 1, 1))
    assert found == after(group_relative(eps=1e-4), scored(1, 0, 0), scored(1, 1, 1))


def test_margin_by_hand() -> None:
    """Samples 1, 0 against references 0, 0: 0.707107 + 0.28, -0.707107 + 0. All right against 0: 0.28 each, not 0."""

    def group(mine: tuple[float, ...], theirs: tuple[float, ...]) -> Group:
        return Group(Q, [*(reply(r, 3, "sample") for r in mine), *(reply(r, 3, "reference") for r in theirs)])

    part = group_plus_margin(low=-0.2, high=0.28, eps=0)
    assert after(part, group((1, 0), (0, 0)))[:2] == pytest.approx([0.987107, -0.707107], abs=1e-6)
    assert after(part, group((1, 1), (0, 0)))[:2] == pytest.approx([0.28, 0.28])
    assert after(part, group((0, 0), (1, 1)))[:2] == pytest.approx([-0.2, -0.2])
    plain = after(group_plus_margin(low=0, high=0), group((1, 0), (0, 1)))[:2]
    assert plain == after(group_relative(eps=1e-4), scored(1, 0))


def test_answer_entropy_in_bits() -> None:
    assert bits("aaaa") == 0.0
    assert bits("aabb") == 1.0
    assert bits("abcd") == 2.0


def test_local_and_global_by_hand() -> None:
    """q1: scores 1, 0 with H = 1, q2: 1, 1 with H = 0; sharpness 5, centre 1: w = 1/2 and sigmoid(-5) = 0.006693.
    R = 1/2 and 1: mean 3/4, std 0.353553, A_global = -+0.707107. The wrong reply is gated: w = 0.
    """
    groups = [
        Group(Q, [reply(1, answer_entropy=1.0), reply(0, answer_entropy=1.0)]),
        Group(Q, [reply(1, answer_entropy=0.0), reply(1, answer_entropy=0.0)]),
    ]
    part = local_and_global(sharpness=5, centre=1, gate=0, eps=0)
    assert after(part, *groups) == pytest.approx([0.353553, 0, 0, 0], abs=1e-6)
    across = [-0.353553, -0.707107, 0.707107 * 0.993307, 0.707107 * 0.993307]
    assert after(part, *groups, stream="adv_global") == pytest.approx(across, abs=1e-6)


def test_own_probability_by_hand() -> None:
    """p = 1/2 * 1/4, plus 0.1."""
    trace = reply(0, 2)
    trace.streams["old"] = tensor([math.nan, math.nan, math.log(0.5), math.log(0.25)])
    assert after(own_probability(0.1), Group(Q, [trace])) == pytest.approx([0.225])


# ---------------------------------------------------------------------------------------------------- lengths, sanity


def test_lengths_by_hand() -> None:
    """Longest reply 10. Effort: 1 - 0.25 * 10 / 5 = 0.5. All right: 1 - 3/10; else the reward. Within
    half: at most 5.
    """
    one = Group(Q, [reply(1, 5)])
    effort(0.25).call([one], step())
    assert one.traces[0].scores["effort"] == 0.5
    sure, unsure = scored(1, 1), scored(1, 0)
    brevity_once_right().call([sure, unsure], step())
    assert [t.scores["concise"] for t in sure.traces] == pytest.approx([0.7, 0.7])
    assert [t.scores["concise"] for t in unsure.traces] == [1, 0]
    pair = Group(Q, [reply(0, 5), reply(0, 6)])
    within(0.5).call([pair], step())
    assert [t.scores["within"] for t in pair.traces] == [1.0, 0.0]


def test_the_sooner_right_the_better() -> None:
    """wrong, right, wrong, right, right: 0, 1, 0, 1/2, 1/4. With one right reply it is the plain score."""
    group = scored(0, 1, 0, 1, 1)
    halved_after_each_right().call([group], step())
    assert [t.scores["early"] for t in group.traces] == [0, 1, 0, 0.5, 0.25]
    lone = scored(0, 1, 0)
    halved_after_each_right().call([lone], step())
    assert [t.scores["early"] for t in lone.traces] == [t.scores["reward"] for t in lone.traces]


def test_price_on_replies_gone_astray() -> None:
    assert repeats(tensor([1, 2, 1, 2, 1, 2, 3]), 2) == 3 and repeats(tensor([1]), 2) == 0
    cut, fine = reply(1, 3), reply(1, 3)
    cut.note["stopped"] = "length"
    price_astray(0.5, n=2, times=2).call([Group(Q, [cut, fine])], step())
    assert (cut.scores["sane"], fine.scores["sane"]) == (0.5, 1.0)


# --------------------------------------------------------------------------------------------------- selection, draws


def test_groups_are_kept_by_how_many_are_right() -> None:
    kept = partly_right().call([scored(1, 1), scored(1, 0), scored(0, 0)], step())
    assert [[t.scores["reward"] for t in g.traces] for g in kept] == [[1, 0]]
    kept = solvable().call([scored(1, 1), scored(1, 0), scored(0, 0)], step())
    assert len(kept) == 2 and all("solvable" in t.tags for g in kept for t in g.traces)


def test_the_surest_are_dropped() -> None:
    """Entropies 0.1, 0.4 | 0.2, 0.3: of four, ceil(0.3 * 4) = 2 go, the two smallest; ceil(0 * 4) = 0."""
    groups = [scored(1, 0), scored(1, 0)]
    for trace, h in zip([t for g in groups for t in g.traces], (0.1, 0.4, 0.2, 0.3), strict=True):
        trace.streams["entropy"] = tensor([math.nan, math.nan, h, h, h])
    assert sum(len(g.traces) for g in drop_surest(0.0).call(groups, step())) == 4
    kept = drop_surest(0.3).call(groups, step())
    assert [float(t.streams["entropy"][-1]) for g in kept for t in g.traces] == pytest.approx([0.4, 0.3])


def test_a_few_tasks_come_again_and_never_twice_in_a_batch() -> None:
    now = step()
    seen = []
    for number in range(4):
        now.clock = Clock(number, 10)
        keys = [task.key for task in few(TASK, 5).call(now)]
        assert len(set(keys)) == 3
        seen += keys
    assert len(set(seen)) == 5
    assert len(few(TASK, 2).call(now)) == 2


# ----------------------------------------------------------------------------------------------------- entropy control


def tempered_batch() -> list[Group]:
    group = Group(Q, [*(reply(r, 3, "sample") for r in (1, 0)), *(reply(r, 3, "tempered") for r in (1, 0))])
    for trace in group.traces:
        trace.streams["old"] = torch.full((5,), -0.5 if "sample" in trace.tags else -0.2)
    return group_relative(peers=lambda t, g: "tempered" in t.tags).call([group], step())


def test_good_tempered_replies_replace_the_first_samples() -> None:
    """Of two tempered replies the right one is good: it takes the first sample's place. Entropy: (0.2 + 0.5) / 2."""
    meter = EntropyMeter(0.3, 1.2, 0.8)
    assert meter.temperature() == 1.2
    (group,) = swap_in_tempered(meter, above=0.05, most=60).call(tempered_batch(), step())
    assert ["trained" in t.tags for t in group.traces] == [False, True, True, False]
    assert float(group.traces[2].streams["adv"][0]) == 1.0
    assert meter.entropy == pytest.approx(0.35) and meter.temperature() == 0.8
    (group,) = swap_in_tempered(meter, above=0.05, most=1).call(tempered_batch(), step())
    assert ["trained" in t.tags for t in group.traces] == [True, True, False, False], "half of 1 is none"


def test_above_the_target_half_of_the_good_tempered_replies_are_taken() -> None:
    """Tempered rewards 1, 1, 1, 0: three are good. H <= target: min(60, 3) = 3 are taken; else min(60, 3) // 2 = 1."""
    for entropy, taken in ((0.0, 3), (0.4, 1)):
        group = Group(
            Q, [*(reply(r, 3, "sample") for r in (1, 0, 0, 0)), *(reply(r, 3, "tempered") for r in (1, 1, 1, 0))]
        )
        for trace in group.traces:
            trace.streams["old"] = torch.full((5,), -0.5)
        meter = EntropyMeter(0.3, 1.2, 0.8)
        meter.entropy = entropy
        groups = group_relative(peers=lambda t, g: "tempered" in t.tags).call([group], step())
        (swapped,) = swap_in_tempered(meter, above=0.05, most=60).call(groups, step())
        assert sum("trained" in t.tags for t in swapped.traces if "tempered" in t.tags) == taken
        assert sum("trained" in t.tags for t in swapped.traces) == 4


# --------------------------------------------------------------------------------------------------------- early exits


def test_early_exits_are_beginnings_of_one_reply(small_model: Path) -> None:
    built = s_grpo(TASK, exits=3)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for group in groups:
            *exits, whole = group.traces
            lengths = [sum(len(t) for t in trace.turns[1:-2]) for trace in exits]
            assert lengths == sorted(lengths) and len(exits) == 3
            for trace in exits:
                assert [turn.author for turn in trace.turns[-2:]] == ["guide", "policy"]
                for turn in trace.turns[1:-2]:
                    assert torch.equal(turn.tokens, whole.turns[1].tokens[: len(turn)])
                    assert torch.equal(turn.logp, whole.turns[1].logp[: len(turn)])
                assert not (trace.streams["claim:pg"] & trace.by("guide")).any()
                assert torch.equal(trace.streams["claim:pg"], trace.by("policy"))


# ---------------------------------------------------------------------------------------------------------- identities


def on_policy(part: Part, norm=token_mean, n: int = 4) -> Method:
    """REINFORCE with this advantage."""
    return method(
        draw=prompts(TASK),
        rollout=sample(n),
        score=verify(TASK),
        credit=part,
        learn=Learn(pg_reinforce(norm=norm)),
        models=roles(),
    )


def test_rloo_without_kl_is_reinforce_with_leave_one_out(small_model: Path) -> None:
    same_gradient(rloo(TASK, n=4, beta=0.0), reinforce_loo(TASK, n=4), small_model)


def test_opo_is_reinforce_with_its_baseline(small_model: Path) -> None:
    same_gradient(opo(TASK, n=4), on_policy(over_length_weighted_mean()), small_model)


def test_remax_without_kl_is_reinforce_less_the_greedy_score(small_model: Path) -> None:
    """Its gradient, token by token, from the scores themselves."""
    built = remax(TASK, n=4, beta=0.0)
    models = doubled(build_cast(built, small_model))
    for phase, groups, now in credited(built, models):
        found = gradients(models, phase.learn, groups, now)
        models["policy"].optimiser.zero()
        samples = [(t, g.traces[-1].scores["reward"]) for g in groups for t in g.traces[:-1]]
        tokens = sum(int(t.by("policy").sum()) for t, _ in samples)
        for trace, greedy in samples:
            logp = models["policy"].outputs([trace.tokens], [trace.by("policy")], {"logp"})["logp"].sum()
            (-(trace.scores["reward"] - greedy) * logp / tokens).backward()
        wanted = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_reinforce_pp_without_kl_whitens_the_scores(small_model: Path) -> None:
    """beta = 0: every token's return is the score of its reply, so any constant baseline gives the same."""
    same_gradient(
        reinforce_pp(TASK, n=4, beta=0.0), on_policy(chain(over_batch_mean(), whiten())), small_model, to=1e-5
    )


def test_reinforce_pp_baseline_without_kl_whitens_centred_scores(small_model: Path) -> None:
    built = reinforce_pp_baseline(TASK, n=4, beta=0.0)
    same_gradient(built, on_policy(chain(group_relative(std=False), whiten())), small_model, to=1e-5)


def test_lite_ppo_on_policy_is_reinforce_with_its_advantage(small_model: Path) -> None:
    lite = lite_ppo(TASK, n=4)
    same_gradient(lite, on_policy(group_mean_batch_std()), small_model, to=1e-6)


def test_gdpo_with_a_silent_second_reward_is_grpo_on_another_scale(small_model: Path) -> None:
    """All replies short enough: the sums are GRPO's advantages, with mean 0, and the batch divides them
    by one number.
    """
    found = []
    for built in (gdpo(TASK, n=4, within_share=1.0), on_policy(group_relative(eps=1e-4))):
        models = doubled(build_cast(built, small_model))
        for phase, groups, now in credited(built, models):
            gradient = gradients(models, phase.learn, groups, now)
            found.append(gradient / gradient.norm())
    assert float((found[0] - found[1]).norm()) < 1e-6


def test_aapo_without_a_margin_is_grpo_on_policy(small_model: Path) -> None:
    built = aapo(TASK, n=4, margin_low=0.0, margin_high=0.0)
    same_gradient(built, on_policy(group_relative(eps=1e-4)), small_model)


def test_copo_with_local_weight_one_is_grpo(small_model: Path) -> None:
    """A centre far below any entropy and a gate below any score: w = 1."""
    same_gradient(copo(TASK, n=4, centre=-1e6, gate=-1.0), grpo(TASK, n=4, beta=0.0), small_model)


def test_aepo_without_tempered_samples_is_grpo(small_model: Path) -> None:
    same_gradient(aepo(TASK, n=4, share=0.0), grpo_token_mean(4), small_model, to=1e-6)


def test_t1_without_its_exploration_is_rloo(small_model: Path) -> None:
    built = t1(TASK, n=4, beta=0.03, entropy=0.0, price=0.0)
    same_gradient(built, rloo(TASK, n=4, beta=0.03), small_model)


def test_esrl_that_drops_nothing_and_remembers_nothing_is_reinforce(small_model: Path) -> None:
    """The first batch fills the queue alone: its mean is the batch's."""
    same_gradient(esrl(TASK, n=4, drop=0.0), reinforce(TASK, n=4), small_model)


def test_rlsc_with_a_large_alpha_imitates_its_own_samples(small_model: Path) -> None:
    copied = method(
        draw=prompts(TASK),
        rollout=sample(4),
        learn=Learn(imitate(norm=seq_sum_mean, coef=1e9)),
        models=roles(),
    )
    same_gradient(rlsc(TASK, n=4, alpha=1e9), copied, small_model, to=1e-6)


def only(built: Method, name: str) -> Method:
    return replace(built, phases=tuple(phase for phase in built.phases if phase.name == name))


def test_conciser_walks_by_grpo_with_dynamic_sampling(small_model: Path) -> None:
    """No entropy bonus, first update: REINFORCE on the mixed groups' tokens."""
    chosen = method(
        draw=prompts(TASK),
        rollout=sample(4),
        score=verify(TASK),
        select=partly_right(),
        credit=chain(group_relative(), claim("pg", "policy", tag="mixed")),
        learn=Learn(pg_reinforce(norm=token_mean)),
        models=roles(),
    )
    same_gradient(only(conciser(TASK, n=4, entropy=0.0), "walk"), chosen, small_model, to=1e-6)


def test_conciser_runs_by_grpo_where_nothing_is_sure(small_model: Path) -> None:
    run = only(conciser(TASK, n=4), "run")
    for _, groups, _ in credited(run, build_cast(run, small_model)):
        assert not any(all(t.scores["correct"] for t in g.traces) for g in groups)
    same_gradient(run, grpo_token_mean(4), small_model)


def test_conciser_stages_share_the_run() -> None:
    walk, run = conciser(TASK, walk_share=0.75).phases
    assert [(walk.times(Clock(s, 4)), run.times(Clock(s, 4))) for s in range(4)] == [(1, 0), (1, 0), (1, 0), (0, 1)]


def test_both_concise_phases_are_ppo(small_model: Path) -> None:
    built = concise_two_phase(TASK, n=4)
    same_gradient(only(built, "ability"), ppo(TASK, n=4, kl=0.0, updates=1), small_model)
    brevity = only(built, "brevity")
    for _, groups, _ in credited(brevity, build_cast(brevity, small_model)):
        assert all(any(t.scores["correct"] for t in g.traces) for g in groups)


def test_rlsp_without_the_price_of_haste_is_ppo(small_model: Path) -> None:
    built = rlsp(TASK, n=4, price=0.0, critic_lr=1.0)
    same_gradient(built, ppo(TASK, n=4, updates=1), small_model)


def test_s_grpo_clips_nothing_at_its_first_update(small_model: Path) -> None:
    built = s_grpo(TASK, exits=3)
    other = replace(built.phases[0], learn=Learn(pg_clip(1e9, norm=built.phases[0].learn.terms[0].norm)))
    same_gradient(built, replace(built, phases=(other,)), small_model)


def test_memory_is_part_of_a_checkpoint() -> None:
    assert set(esrl(TASK).stateful()) == {"rewards"}
    assert set(aepo(TASK).stateful()) == {"entropy"}


def test_old_log_probs_of_tempered_replies_are_at_temperature_one(small_model: Path) -> None:
    built = aepo(TASK, n=4)
    models = build_cast(built, small_model)
    for _, groups, now in credited(built, models):
        assert isinstance(now, Step)
        hot = [t for g in groups for t in g.traces if "tempered" in t.tags]
        assert hot
        for trace in hot:
            assert not torch.allclose(trace.streams["old"][trace.by("policy")], trace.turns[-1].logp, atol=1e-3)
        plain = next(t for g in groups for t in g.traces if "sample" in t.tags)
        again = Trace(plain.turns)
        behaviour().call([Group(Q, [again])], now)
        mask = plain.by("policy")
        assert torch.allclose(plain.streams["old"][mask], again.streams["old"][mask], atol=1e-4)
