"""Which numbers of a step people are shown, and how: by hand."""

from __future__ import annotations

from burnish.evals.better import better_is_lower, written
from burnish.report.numbers import find, heldout_of, shown, trained_series
from burnish.report.summary import Curve

STEP = {
    "step": 3,
    "heldout/accuracy": 0.5,
    "pg/entropy": 0.25,
    "reply/accuracy": 0.75,
    "sft/nll": 1.5,
    "reply/margin": 0.125,
    "reply/loss": 0.5,
    "pg/old_kl": 0.0625,
    "length": 12.34,
    "reward": 0.5,
    "sampled_tokens": 3000,
    "unfinished": 4,
}


def test_the_first_name_that_fits_is_meant_and_never_a_held_out_one() -> None:
    assert find(STEP, ("*/accuracy",)) == "reply/accuracy"
    assert find(STEP, ("nothing", "*/nll", "reward")) == "sft/nll"
    assert find(STEP, ("nothing",)) is None
    assert find({"heldout/accuracy": 0.5}, ("*/accuracy",)) is None
    assert trained_series(STEP) == "reward"
    assert trained_series({"heldout/loss": 1.0, "a/loss": 1.0, "a/nll": 1.0}) == "a/nll"


def test_a_step_is_shown_in_these_words() -> None:
    assert shown(STEP, 2.0) == [
        ("reward", "0.500"),
        ("pairs right", "75.0%"),
        ("NLL", "1.500"),
        ("margin", "0.125"),
        ("loss", "0.500"),
        ("KL", "0.0625"),
        ("entropy", "0.250"),
        ("length", "12.3"),
        ("unfinished", "4"),
        ("tokens/s", "1,500"),
    ]
    assert shown({"reward": 1.0}, 2.0) == [("reward", "1.000")]
    assert shown({"sampled_tokens": 5}, 0.0) == []


def test_a_number_of_300_digits_is_written_short() -> None:
    assert shown({"reward": -6.25e299, "length": 4.0}, 1.0) == [("reward", "-6.25e+299"), ("length", "4.0")]


def test_held_out_numbers_are_written_as_people_do() -> None:
    assert heldout_of(STEP) == ("accuracy", 0.5)
    assert heldout_of({"reward": 0.5}) is None
    assert (written("accuracy", 0.125), written("sft/nll", 0.125)) == ("12.5%", "0.125")
    assert better_is_lower("sft/nll") and better_is_lower("loss") and not better_is_lower("accuracy")


def test_a_share_is_drawn_from_nothing_to_all() -> None:
    drawn = {top: Curve("learning", "correct", "", [(0.0, 0.25), (1.0, top)], True).drawn() for top in (0.37, 1.0, 1.5)}
    assert "100%" in drawn[0.37] and "100%" in drawn[1.0]
    assert ">0%<" in drawn[0.37] and ">0%<" not in drawn[1.5]
    assert ">37%</text>" in drawn[0.37] and ">25%</text>" not in drawn[0.37]  # the last number ends the line
