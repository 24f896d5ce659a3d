"""Terms of reward models with several outputs: numbers by hand on two or three replies, and which outputs they move."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from burnish.core.types import Clock
from burnish.learn.term import Live, Term
from burnish.learn.terms import reward as terms
from burnish.learn.terms.reward_heads import latent_posterior
from burnish.zoo.armorm import gated_pairs
from burnish.zoo.axiomatic_preference_model import KINDS, score_axioms
from burnish.zoo.brme import uncertain_heads
from burnish.zoo.dpa import rate
from burnish.zoo.goal_conditioned_contrastive_rm import goal_contrast
from burnish.zoo.maxmin_rlhf import chosen_head_pairs
from burnish.zoo.meta_rm import differences
from burnish.zoo.pessimistic_mle_rlhf import score_ranking
from burnish.zoo.simpledc_rlhf_simplification import score_labels
from burnish.zoo.themis import logit_pairs
from burnish.zoo.vpl import latent_pairs


def nls(x: float) -> float:
    """-log sigmoid(x)"""
    return math.log1p(math.exp(-x))


def seen(
    scores: list[list[float]],
    streams: dict[str, list] | None = None,
    *,
    row: list[int] | None = None,
    output: str = "score",
    pairs: tuple[tuple[int, int], ...] = ((0, 1),),
    lists: tuple[tuple[int, ...], ...] = (),
    group: list[int] | None = None,
) -> tuple[Live, Tensor]:
    """One claimed token a reply, unless `row` says otherwise; all replies are of one group."""
    values = torch.tensor(scores, dtype=torch.float64)
    values = (values[:, 0] if values.shape[1] == 1 else values).requires_grad_()
    rows = torch.tensor(row or list(range(len(scores))))
    n = int(rows.max()) + 1
    found = {name: torch.tensor(x) for name, x in (streams or {}).items()}
    groups = torch.tensor(group or [0] * n)
    live = Live({output: values}, found, rows, n, torch.tensor(pairs).reshape(-1, 2), list(lists), groups, Clock(0, 9))
    return live, values


def slopes(term: Term, live: Live, values: Tensor) -> tuple[list[float], list]:
    losses = term.loss(live)
    losses.sum().backward()
    assert values.grad is not None
    return losses.tolist(), values.grad.tolist()


def test_every_head_compares_and_bags_count() -> None:
    """Margins 1 and -1 of two heads; the second head has the pair twice: (0.313262 + 2 x 1.313262) / 2."""
    live, values = seen([[1.0, 0.0], [0.0, 1.0]], {"bags": [[1.0, 2.0]] * 2})
    losses, grad = slopes(terms.head_pairs(slice(0, 2), bags="bags"), live, values)
    assert losses == pytest.approx([(nls(1) + 2 * nls(-1)) / 2])
    assert grad[0][0] < 0 < grad[1][0] and grad[0][1] < 0 < grad[1][1]
    assert live.noted["accuracy"][0].tolist() == [0.5]  # the mean of the heads ties
    assert live.noted["disagreement"][0].tolist() == [1.0]
    live, values = seen([[1.0, 5.0], [0.0, -5.0]])
    losses, grad = slopes(terms.head_pairs(slice(0, 1)), live, values)
    assert losses == pytest.approx([nls(1)]) and [g[1] for g in grad] == [0.0, 0.0]


def test_the_head_of_the_users_cluster_learns() -> None:
    live, values = seen([[1.0, 0.5], [0.0, 0.0]], {"cluster": [1.0, 1.0]})
    losses, grad = slopes(chosen_head_pairs("cluster"), live, values)
    assert losses == pytest.approx([nls(0.5)])
    assert [g[0] for g in grad] == [0.0, 0.0] and grad[0][1] < 0 < grad[1][1]


def test_a_gate_weighs_attributes_that_are_held() -> None:
    """Attributes (1, 0) against (0, 1); gate (0.75, 0.25) at both prompts: 0.75 - 0.25 = 0.5."""
    gate = [0.0, 0.0, 10 * math.log(3.0), 0.0]
    tokens = [gate, [1.0, 0.0, 9.0, 9.0], gate, [0.0, 1.0, 9.0, 9.0]]
    live, values = seen(tokens, {"at_prompt": [1.0, 0.0, 1.0, 0.0]}, row=[0, 0, 1, 1])
    losses, grad = slopes(gated_pairs(2, 10.0), live, values)
    assert losses == pytest.approx([nls(0.5)])
    assert all(g[:2] == [0.0, 0.0] for g in grad), "the attributes are held"
    assert grad[1][2:] == [0.0, 0.0] and grad[0][2] < 0 < grad[0][3], "the gate is read at the prompt alone"
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert live.noted["gate_entropy"][0].tolist() == pytest.approx([entropy])


def test_ratings_that_are_missing_move_nothing() -> None:
    live, values = seen([[1.0, 2.0], [1.0, 5.0]], {"ratings": [[0.0, 0.0], [0.0, math.nan]]})
    losses, grad = slopes(rate(2), live, values)
    assert losses == [2.5, 1.0] and grad == [[1.0, 2.0], [2.0, 0.0]]
    assert live.noted["rated"][0].tolist() == [1.0, 0.5]


def test_labels_are_log_odds() -> None:
    live, values = seen([[1.0], [1.0]], {"label": [1.0, -1.0]})
    losses, grad = slopes(score_labels(), live, values)
    assert losses == pytest.approx([nls(1), nls(-1)]) and grad[0] < 0 < grad[1]


def test_lists_by_all_pairs_and_by_plackett_luce() -> None:
    for term, number in ((terms.score_all_pairs(), 0.251150), (score_ranking(), 0.720868)):
        live, values = seen([[2.0], [1.0], [0.0]], lists=((0, 1, 2),))
        losses, grad = slopes(term, live, values)
        assert losses == pytest.approx([number], abs=1e-6) and grad[0] < 0 < grad[2]


def test_metarm_drives_sampled_answers_apart() -> None:
    """k = 2, scores 1 and 0: -0.365529; a group of one answer gives 0."""
    live, values = seen([[1.0], [0.0], [7.0]], group=[0, 0, 1])
    losses, grad = slopes(differences(), live, values)
    assert losses == pytest.approx([-0.365529, 0.0], abs=1e-6)
    assert grad[0] < 0 < grad[1] and grad[2] == 0.0


def test_the_logit_of_the_end_token_is_a_score() -> None:
    live, values = seen([[5.0, 1.0], [5.0, 0.0]], {"token": [1, 1]}, output="logits")
    losses, grad = slopes(logit_pairs(), live, values)
    assert losses == pytest.approx([nls(1)]) and [g[0] for g in grad] == [0.0, 0.0]


def test_axioms_have_weights_and_accuracies_of_their_own() -> None:
    """useful 1, useless 0, elsewhere 2: usefulness right, relevance wrong, with weights 1 and 3."""
    kinds = [float(KINDS.index(kind)) for kind in ("useful", "useless", "elsewhere")]
    live, values = seen([[1.0], [0.0], [2.0]], {"kind": kinds}, pairs=((0, 1), (0, 2)))
    losses, _ = slopes(score_axioms({"relevance": 3.0}), live, values)
    assert losses == pytest.approx([nls(1), 3 * nls(-1)])
    accuracy, where = live.noted["accuracy_relevance"]
    assert where is not None and accuracy[where].tolist() == [0.0]


def test_heads_with_deviations_fit_the_held_score() -> None:
    """Target 3 (held); one head with mean 1, log std log 2, noise 0.5: (1 + 1 - 3)^2 = 1, twice in its bag."""
    live, values = seen([[3.0, 1.0, math.log(2.0)]], {"bags": [[2.0]], "noise": [[0.5]]}, pairs=())
    losses, grad = slopes(uncertain_heads(1, 0.05, 0.0), live, values)
    assert losses == pytest.approx([2.0]) and grad[0][0] == 0.0 and grad[0][1] == pytest.approx(2 * 2 * -1.0)
    live, values = seen([[0.0, 0.0, -9.0]], {"bags": [[1.0]], "noise": [[1.0]]}, pairs=())
    losses, grad = slopes(uncertain_heads(1, 0.05, 0.0), live, values)
    assert losses == pytest.approx([0.05**2]) and grad[0][2] == 0.0, "at its floor the deviation does not fall further"


def test_a_latent_comes_from_the_users_other_pairs() -> None:
    """Latent size 1. Pair 0 is judged with the context of pair 1: encoding 0.25 + 0.25 = mu 0.5, log var 0.

    z = 0.5 + 1 x noise 0.3 = 0.8, rescaled to norm 1: z = 1. r = r_0 + z U: 1 + 2 against 0 + 1. KL = 0.125.
    """
    #            r_0  U    chosen   rejected encodings (mean, log var)
    rows = [
        [1.0, 2.0, 9.0, 9.0, 9.0, 9.0],
        [0.0, 1.0, 9.0, 9.0, 9.0, 9.0],
        [0.0, 0.0, 0.25, 0.0, 9.0, 9.0],
        [0.0, 0.0, 9.0, 9.0, 0.25, 0.0],
    ]
    live, values = seen(rows, {"noise": [[0.3]] * 4}, pairs=((0, 1), (2, 3)))
    losses, grad = slopes(latent_pairs(1, 0.1), live, values)
    assert losses[0] == pytest.approx(nls(2.0) + 0.1 * 0.125)
    assert losses[1] == pytest.approx(math.log(2) + 0.1 * (0.5 * (1 + math.e - 1 - 1))), "mu and log var clamped to 1"
    assert grad[0][2:] == [0.0, 0.0, 0.0, 0.0], "no pair is in its own context; the clamp stops the other's"
    alone, values = seen(rows[:2], {"noise": [[-0.3]] * 2})
    losses, _ = slopes(latent_pairs(1, 0.1), alone, values)
    assert losses == pytest.approx([nls(0.0)]), "without context z is the prior's: -1 here, and r = -1 against -1"


def test_a_posterior_without_context_is_the_prior() -> None:
    mean, log_variance = latent_posterior(torch.zeros(0, 4), 2)
    assert mean.tolist() == log_variance.tolist() == [0.0, 0.0]
    mean, log_variance = latent_posterior(torch.tensor([[1.0, 0.0, 0.5, 0.0], [5.0, 0.0, -0.5, 0.0]]), 2)
    assert mean.tolist() == [1.0, 0.0] and log_variance.tolist() == [0.0, 0.0]


def test_goals_follow_sources() -> None:
    """Source (1, 0), goal (1, 0) after it, other (0, 1): cos 1 and 0. With the batch's means equal to this pair's own,
    L = -log s(1) - log(1 - s(0)) = 0.313262 + 0.693147.
    """
    near, far = 1 / (1 + math.exp(-1)), 0.5
    streams = {
        "source": [1.0, 0.0, 0.0],
        "goal": [0.0, 1.0, 0.0],
        "other": [0.0, 0.0, 1.0],
        "near": [near] * 3,
        "far": [far] * 3,
    }
    live, values = seen([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]], streams, row=[0, 0, 1], output="state")
    losses, _ = slopes(goal_contrast(0.5), live, values)
    assert losses == pytest.approx([nls(1) + math.log(2)])
    swapped = {**streams, "source": streams["goal"], "goal": streams["source"]}
    live, _ = seen([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]], swapped, row=[0, 0, 1], output="state")
    before = goal_contrast(0.5).loss(live)
    assert before.item() > losses[0], "a goal before its source is no goal"
