"""Losses of ranked lists with three replies: of two, ascending ranks give the same numbers as descending ones."""

from __future__ import annotations

import math

import pytest
from torch import tensor

from burnish.zoo.lipo import lipo_lambda

LOG2, LOG3, LOG4 = math.log(2), math.log(3), math.log(4)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        # gains 4, 1, 2; the ranks by score are 3, 1, 2, the discounts 1/log 4, 1/log 2, 1/log 3
        (
            [2.0, 0.0, 1.0],
            3 * (1 / LOG2 - 1 / LOG4) * math.log(4)
            + 2 * (1 / LOG3 - 1 / LOG4) * math.log(3)
            + 1 * (1 / LOG2 - 1 / LOG3) * math.log(2.5),
        ),
        # gains 1, 4, 2: the order of the scores is right, and each pair costs less
        (
            [0.0, 2.0, 1.0],
            3 * (1 / LOG2 - 1 / LOG4) * math.log(4 / 3)
            + 1 * (1 / LOG3 - 1 / LOG4) * math.log(1.5)
            + 2 * (1 / LOG2 - 1 / LOG3) * math.log(5 / 3),
        ),
    ],
    ids=["the best is last by score", "the best is first by score"],
)
def test_lipo_with_three_replies_by_hand(labels: list[float], expected: float) -> None:
    """s = (0, log 3, log 2): a pair costs |gain_i - gain_j| |discount_i - discount_j| log(1 + e^-(s_i - s_j)).

    Of two replies the ranks may as well be ascending: the difference of their discounts is the same.
    """
    found = lipo_lambda(tensor([0.0, LOG3, LOG2]).double(), tensor(labels).double(), 1.0)
    assert float(found) == pytest.approx(expected, rel=1e-6)
    scores = tensor([LOG2, 0.0, LOG3]).double()  # the same replies in another order
    moved = tensor([labels[2], labels[0], labels[1]]).double()
    assert float(lipo_lambda(scores, moved, 1.0)) == pytest.approx(expected, rel=1e-6)
