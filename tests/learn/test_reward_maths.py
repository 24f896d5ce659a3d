"""Losses of reward models and rules that make one score of many: numbers derived by hand, and limiting identities."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from burnish.credit.reward import grade_of
from burnish.learn.maths.preference import bradley_terry, dpo_logistic
from burnish.learn.maths.reward import all_pairs
from burnish.score import aggregate
from burnish.zoo.armorm import ridge, spearman, verbosity_shares
from burnish.zoo.axiomatic_preference_model import pairs_by_axiom
from burnish.zoo.brme import gaussian_error
from burnish.zoo.dpa import rating_error
from burnish.zoo.goal_conditioned_contrastive_rm import log_of_mean
from burnish.zoo.meta_rm import reward_difference
from burnish.zoo.modpo import multi_objective
from burnish.zoo.pessimistic_mle_rlhf import plackett_luce
from burnish.zoo.secrets_of_rlhf_ii import by_strength
from burnish.zoo.vpl import kl_to_standard_normal

LN2 = math.log(2)


def t(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def nls(x: float) -> float:
    """-log sigmoid(x)"""
    return math.log1p(math.exp(-x))


def test_a_margin_moves_the_loss_and_centring_adds_to_it() -> None:
    """r_c 1.2, r_r 0.2: -log s(1) = 0.313262; a margin of 1 makes that log 2; (1.4)^2 0.01 = 0.0196."""
    chosen, rejected = t(1.2), t(0.2)
    assert bradley_terry(chosen, rejected).item() == pytest.approx(0.313262, abs=1e-6)
    assert bradley_terry(chosen, rejected, margin=1.0).item() == pytest.approx(LN2)
    assert bradley_terry(chosen, rejected, 0.01).item() == pytest.approx(0.313262 + 0.0196, abs=1e-6)
    assert bradley_terry(chosen, rejected, shrink=0.001).item() == pytest.approx(nls(1) + 0.001 * (1.44 + 0.04) / 2)
    assert bradley_terry(chosen, rejected, label_smoothing=0.25).item() == pytest.approx(0.75 * nls(1) + 0.25 * nls(-1))
    assert bradley_terry(t(0.0), t(0.0)).item() == pytest.approx(LN2)
    each = bradley_terry(t(1.2, 1.2), t(0.2, 0.2), margin=t(0.0, 1.0), label_smoothing=t(0.0, 0.5))
    assert each.tolist() == pytest.approx([nls(1), LN2])


def test_a_badly_wrong_pair_keeps_its_gradient() -> None:
    """-log(s + 1e-5) saturates at 11.5; here the loss is 100 and the gradient -1."""
    chosen = t(-100.0).requires_grad_()
    loss = bradley_terry(chosen, t(0.0))
    loss.backward()
    assert loss.item() == pytest.approx(100.0) and chosen.grad is not None
    assert chosen.grad.item() == pytest.approx(-1.0)


def test_all_pairs_of_a_ranking_and_plackett_luce() -> None:
    """Scores 2 > 1 > 0: (0.313262 + 0.126928 + 0.313262) / 3; Plackett-Luce 0.407606 + 0.313262."""
    scores = t(2.0, 1.0, 0.0)
    assert all_pairs(scores).item() == pytest.approx(0.251150, abs=1e-6)
    assert plackett_luce(scores).item() == pytest.approx(0.720868, abs=1e-6)
    tied = all_pairs(scores, t(1.0, 1.0, 0.0))  # only (0, 2) and (1, 2) differ
    assert tied.item() == pytest.approx((nls(2) + nls(1)) / 2)
    two = t(0.7, -0.3)
    assert all_pairs(two).item() == pytest.approx(bradley_terry(two[0], two[1]).item())
    assert plackett_luce(two).item() == pytest.approx(bradley_terry(two[0], two[1]).item())
    assert all_pairs(t(1.0)).item() == 0.0


def test_missing_ratings_count_nothing() -> None:
    """Errors 1 and 2 of two ratings: 2.5; of one: 1; of none: 0, with a gradient of 0."""
    predicted = torch.tensor([[1.0, 2.0], [1.0, 5.0], [3.0, 3.0]], requires_grad=True)
    rated = torch.tensor([[0.0, 0.0], [0.0, math.nan], [math.nan, math.nan]])
    found = rating_error(predicted, rated)
    assert found.tolist() == [2.5, 1.0, 0.0]
    found.sum().backward()
    assert predicted.grad is not None and predicted.grad.tolist() == [[1.0, 2.0], [2.0, 0.0], [0.0, 0.0]]


def test_the_kl_of_a_latent() -> None:
    """mu (1, 0), log var (0, 0): 1/2. mu 0, var e: (e - 2) / 2."""
    assert kl_to_standard_normal(t(1.0, 0.0), t(0.0, 0.0)).item() == pytest.approx(0.5)
    assert kl_to_standard_normal(t(0.0), t(1.0)).item() == pytest.approx((math.e - 2) / 2)
    assert kl_to_standard_normal(t(0.0), t(0.0)).item() == 0.0


def test_a_head_with_a_deviation() -> None:
    """mean 1, std 2, noise 0.5, target 3: (1 + 1 - 3)^2 = 1; likelihood 4 / 8 + log 2."""
    args = (t(1.0), t(2.0), t(0.5), t(3.0))
    assert gaussian_error(*args, 0.0).item() == pytest.approx(1.0)
    assert gaussian_error(*args, 1.0).item() == pytest.approx(0.5 + LN2)
    assert gaussian_error(*args, 0.25).item() == pytest.approx(0.75 + 0.25 * (0.5 + LN2))


def test_the_log_of_a_mean_in_pieces() -> None:
    """Chances 0.6 and 0.8: mean 0.7. The pieces' mean is log 0.7, and their gradient that of log mean."""
    p = t(0.6, 0.8).requires_grad_()
    mean = p.mean()
    pieces = torch.stack([log_of_mean(x, mean) for x in p])
    assert pieces.mean().item() == pytest.approx(math.log(0.7))
    (found,) = torch.autograd.grad(pieces.mean(), p)
    (whole,) = torch.autograd.grad(p.mean().log(), p)
    assert found.tolist() == pytest.approx(whole.tolist())
    loss = 0.5 * (-math.log(0.7) - math.log(1 - 0.3))
    assert loss == pytest.approx(0.356675, abs=1e-6)


def test_the_difference_that_metarm_ascends() -> None:
    """k = 2, scores 1 and 0: 2/4 s(1) = 0.365529. Equal scores: 2/9 x 3 x 1/2 = 1/3."""
    assert reward_difference(t(1.0, 0.0)).item() == pytest.approx(0.365529, abs=1e-6)
    assert reward_difference(t(2.0, 2.0, 2.0)).item() == pytest.approx(1 / 3)


def test_ridge_without_intercept() -> None:
    """x (1, 2), y (1, 2), alpha 1: 5 / 6."""
    assert ridge(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0]), 1.0).item() == pytest.approx(5 / 6)


def test_labels_and_margins_by_strength() -> None:
    """Cuts -0.5, 0.1, 2: -1 is flipped, -0.2 and 3 are smoothed, 1 stays as it is."""
    flipped, smoothed, margin = by_strength(t(-1.0, -0.2, 1.0, 3.0), (-0.5, 0.1, 2.0), 0.1)
    assert flipped.tolist() == [True, False, False, False]
    assert smoothed.tolist() == pytest.approx([0.0, 0.1, 0.0, 0.1])
    assert margin.tolist() == [1.0, -0.2, 1.0, 3.0]
    flipped, _, margin = by_strength(t(0.2, 0.3), (0.25, 0.25, 1.0), 0.1, scale=0.0)
    assert flipped.tolist() == [False, False] and margin.tolist() == [0.0, 0.0]  # weak, but not negative


def test_grades_are_those_of_llama_2() -> None:
    """Table 27 of arXiv 2307.09288, the smaller margins: 1, 2/3, 1/3 and 0; an offset is added to each."""
    words = ("significantly better", " Better", "slightly better", "negligibly better", "UNSURE", 0.25, 3)
    wanted = (1.0, 2 / 3, 1 / 3, 0.0, 0.0, 0.25, 3.0)
    assert [grade_of(word, "g") for word in words] == pytest.approx(wanted)
    for wrong in ("much better", True, None, math.nan):
        with pytest.raises(ValueError, match="column 'g' has the grade"):
            grade_of(wrong, "g")


def test_another_objective_is_a_margin() -> None:
    """w 0.5, beta d 0.4, gap 0.2: -log s((0.4 - 0.1) / 0.5) = 0.437488. w = 1 is DPO."""
    found = multi_objective(t(4.0), t(0.0), t(0.2), 0.1, 0.5)
    assert found.item() == pytest.approx(0.437488, abs=1e-6)
    assert multi_objective(t(4.0), t(1.0), t(9.0), 0.1, 1.0).item() == pytest.approx(
        dpo_logistic(t(4.0), t(1.0), 0.1).item()
    )


def test_pairs_by_axiom() -> None:
    found = pairs_by_axiom(["useful", "useless", "elsewhere", "grounded"])
    assert found == [(0, 1, "usefulness"), (0, 2, "relevance"), (3, 0, "groundedness")]
    assert pairs_by_axiom(["useless", "elsewhere"]) == []


# ------------------------------------------------------------------------------------------------------- aggregates


def test_mean_worst_case_and_uncertainty() -> None:
    """1, 2, 3: mean 2, minimum 1, population variance 2/3: 2 - 0.5 x 2/3."""
    scores = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    assert aggregate.mean(scores).item() == 2.0
    assert aggregate.worst_case(scores).item() == 1.0
    assert aggregate.uncertainty_weighted(scores, 0.5).item() == pytest.approx(1.666667, abs=1e-6)
    assert aggregate.uncertainty_weighted(scores, 0.0).item() == aggregate.mean(scores).item()
    assert aggregate.weighted(scores, t(1.0, 0.0, -1.0)).item() == -2.0


def test_the_worst_group_is_one_for_the_whole_batch() -> None:
    """Group rewards (2, 0) and (0, 1): the second has the lower mean; per answer it would be (0, 0)."""
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert aggregate.worst_group(scores).tolist() == [0.0, 1.0]
    assert aggregate.worst_case(scores).tolist() == [0.0, 0.0]


def test_the_robust_reward() -> None:
    """mu (3, 1), sigma (0.2, 0.5), share 1/2: the surer head says 3, the worse 1: 2."""
    means, stds = torch.tensor([[3.0, 1.0]]), torch.tensor([[0.2, 0.5]])
    assert aggregate.robust(means, stds, 0.5, aggregate.worst_group(means)).item() == 2.0
    heads = torch.tensor([[3.0, 0.0], [1.0, 1.0]]).T  # answers x heads: (3, 1) and (0, 1)
    sure = torch.ones(2, 2)
    assert aggregate.robust(heads, sure, 0.0, aggregate.worst_group(heads)).tolist() == [1.0, 1.0]
    assert aggregate.robust(heads, sure, 0.0, aggregate.worst_case(heads)).tolist() == [1.0, 0.0]
    assert aggregate.robust(heads, sure, 1.0, aggregate.worst_case(heads)).tolist() == [3.0, 0.0]  # ties: first head


def test_gates_and_debiased_attributes() -> None:
    """raw (0.6, 0.4) less (0.2, 0) x 0.5: (0.5, 0.4); gate (0.75, 0.25): 0.475."""
    gate = 10 * torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)
    debiased = torch.tensor([[0.6 - 0.2 * 0.5, 0.4]], dtype=torch.float64)
    assert aggregate.gated(debiased, gate, 10.0).item() == pytest.approx(0.475)
    assert aggregate.gated(debiased, 0 * gate, 10.0).item() == pytest.approx(0.45)


def test_verbosity_is_taken_out_until_ranks_do_not_follow_it() -> None:
    """An attribute that is 0.1 x verbosity needs 0.1 to be constant; one that falls with verbosity needs nothing."""
    verbosity = torch.arange(20, dtype=torch.float64)
    scores = torch.stack([0.1 * verbosity, -verbosity, verbosity], -1)
    shares = verbosity_shares(scores, verbosity)
    assert shares.tolist() == pytest.approx([0.1, 0.0, 0.95])
    assert spearman(t(1.0, 2.0, 3.0), t(1.0, 4.0, 9.0)) == pytest.approx(1.0)
    assert spearman(t(1.0, 2.0, 2.0), t(3.0, 1.0, 1.0)) == pytest.approx(-1.0)
    assert spearman(t(1.0, 1.0), t(1.0, 2.0)) == 0.0


def test_pessimism_in_the_norm_of_the_mean_feature() -> None:
    """Features (2, 0), (0, 1), theta (1, 1), P^-1 = diag(4, 1): 1.5 - sqrt(0.25 + 0.25) = 0.792893; each: 0.5."""
    features = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    precision, none = torch.diag(t(0.25, 1.0)), torch.zeros(2, dtype=torch.float64)
    found = aggregate.pessimistic(features, t(1.0, 1.0), precision, none, 1.0)
    assert found.mean().item() == pytest.approx(1.5 - math.sqrt(0.5))
    each = aggregate.pessimistic_each(features, t(1.0, 1.0), precision, none, 1.0)
    assert each.tolist() == pytest.approx([1.0, 0.0]) and each.mean().item() == pytest.approx(0.5)
    assert aggregate.pessimistic(features, t(1.0, 1.0), precision, none, 0.0).tolist() == [2.0, 1.0]


def test_the_pessimistic_reward_has_the_gradient_of_the_objective() -> None:
    """d/dw of the weighted mean's J at equal weights is r_i: the reward is the objective's influence of a reply."""
    features = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    theta, precision, nu = t(1.0, -0.5), torch.tensor([[1.0, 0.2], [0.2, 0.5]], dtype=torch.float64), t(0.3, 0.1)
    weights = torch.full((3,), 1 / 3, dtype=torch.float64, requires_grad=True)
    mid = weights @ (features - nu)
    (mid @ theta - 0.7 * (mid @ precision @ mid).sqrt()).backward()
    assert weights.grad is not None
    assert aggregate.pessimistic(features, theta, precision, nu, 0.7).tolist() == pytest.approx(weights.grad.tolist())


def test_rewards_of_neighbours_are_fused() -> None:
    """Own 1.0; (0.5, cos 0.95), (0.0, 0.92), (3.0, 0.80: dropped): 1.475 / 2.87."""
    near = [(0.5, 0.95), (0.0, 0.92), (3.0, 0.80)]
    assert aggregate.fused(1.0, near, 0.9, 5) == pytest.approx(0.513937, abs=1e-6)
    assert aggregate.fused(1.0, near, 0.99, 5) == 1.0
    assert aggregate.fused(1.0, near, 0.9, 1) == pytest.approx((1 + 0.475) / 1.95)


def test_a_chance_against_a_baseline() -> None:
    assert aggregate.against_baseline(t(1.0, 0.0), t(0.0, 0.0)).tolist() == pytest.approx([1 / (1 + math.exp(-1)), 0.5])
