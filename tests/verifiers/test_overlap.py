"""Overlaps of boxes and intervals, by hand."""

from __future__ import annotations

import pytest

from burnish.verifiers.overlap import giou, hull_overlap, iou, matched


def test_iou_by_hand() -> None:
    """Boxes of 4 x 4 that share 2 x 3: 6 of 16 + 16 - 6."""
    assert iou((0, 0, 4, 4), (2, 1, 6, 5)) == pytest.approx(6 / 26)
    assert iou((0, 0, 4, 4), (0, 0, 4, 4)) == 1.0 and iou((0, 0, 4, 4), (4, 0, 8, 4)) == 0.0
    assert iou((4, 4, 0, 0), (0, 0, 4, 4)) == 0.0 == iou((1, 1, 1, 1), (1, 1, 1, 1))


def test_giou_by_hand() -> None:
    """The hull of the boxes is 6 x 5, of which 30 - 26 is empty; apart it is negative: -(hull - union) / hull."""
    assert giou((0, 0, 4, 4), (2, 1, 6, 5)) == pytest.approx(6 / 26 - 4 / 30)
    assert giou((0, 0, 1, 1), (3, 0, 4, 1)) == pytest.approx(-0.5)


def test_the_hull_is_the_union_only_where_intervals_meet() -> None:
    assert hull_overlap((0, 4), (2, 6)) == pytest.approx(2 / 6)
    assert hull_overlap((0, 1), (3, 4)) == 0.0 == hull_overlap((2, 2), (2, 2))


def test_boxes_are_matched_in_their_order_and_once() -> None:
    """The first box takes the one that it overlaps most; the second, which is that one, gets the rest."""
    wanted = [(0, 0, 4, 4), (0, 2, 4, 6)]
    found = [((0, 0, 4, 5), 0.9), ((0, 0, 4, 4), 0.8), ((9, 9, 10, 10), 0.7)]
    assert matched(found, wanted, 0.3) == [(0, 0, pytest.approx(0.8)), (1, 1, pytest.approx(8 / 24))]
    assert matched(found, wanted, 0.5) == [(0, 0, pytest.approx(0.8))]
