"""Titles and units of metrics: one for every defined metric, and none is a raw key."""

from __future__ import annotations

import pytest

from burnish.report.definitions import definitions
from burnish.report.summary import Curve
from burnish.report.titles import Title, is_share, title_of


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("reward", Title("Reward", "mean score")),
        ("pg/entropy", Title("Policy entropy", "nats per token")),
        ("kl/loss", Title("KL to the reference", "nats per token")),
        ("reply/loss", Title("Loss: reply", "mean over its units")),
        ("heldout/accuracy", Title("Held-out accuracy, greedy", "%")),
        ("heldout/sampled_accuracy", Title("Held-out accuracy, sampled", "%")),
        ("heldout/reply/accuracy", Title("Held out: pairs in the right order", "%")),
        ("heldout/sft/nll", Title("Held out: negative log-likelihood", "nats per token")),
        ("dropped/all_the_same", Title("Dropped: all the same", "%")),
        ("critic/grad_norm", Title("Gradient norm: critic", "before clipping")),
        ("my_term/odd_number", Title("Odd number: my term")),
    ],
)
def test_a_metric_has_a_title_and_a_unit(name: str, title: Title) -> None:
    assert title_of(name) == title


def test_no_title_is_a_raw_key() -> None:
    for entry in definitions():
        title = title_of(entry.name.replace("*", "some_part")).title
        assert "/" not in title and "_" not in title and title[0].isupper(), title


def test_shares_are_those_of_the_definitions() -> None:
    """What is defined as a share is shown in percent, and nothing else."""
    for entry in definitions():
        name = entry.name.replace("*", "x")
        if entry.name not in ("heldout/*", "heldout/accuracy"):
            assert is_share(name) == (entry.what.startswith("share") or entry.name == "dropped/*"), entry.name


def test_a_report_has_the_titles_too() -> None:
    drawn = Curve("Learning", "pg/entropy", "", [(0.0, 1.0), (1.0, 2.0)], False).drawn()
    assert "Policy entropy, nats per token" in drawn and "pg/entropy" not in drawn
