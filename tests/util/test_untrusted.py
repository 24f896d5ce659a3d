"""JSON that somebody else wrote: limits on depth and size where it enters."""

from __future__ import annotations

import pytest

from burnish.util.untrusted import DEEPEST, check_depth, parse_json


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_what_is_usual_is_read() -> None:
    assert parse_json('{"a": [1, 2.5, {"b": null}], "c": "\\u00e9"}') == {"a": [1, 2.5, {"b": None}], "c": "é"}
    assert parse_json(b"[true]") == [True]


@pytest.mark.parametrize("levels", [DEEPEST + 1, 900, 20_000, 1_000_000])
def test_depth_is_limited_before_anything_walks_the_value(levels: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(nested(levels))


def test_the_deepest_value_that_is_read() -> None:
    parse_json(nested(DEEPEST))
    check_depth({"a": {"b": [1]}}, 3)
    with pytest.raises(ValueError, match="at most 2 levels"):
        check_depth({"a": {"b": [1]}}, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "Infinity"),
        ("[1e999]", "overflows"),
        ("1" * 5000, "digits"),
        (b"\xff\xfe\xfd", "not"),
        ("[" + "1," * 50 + "1]", "at most 20"),
    ],
)
def test_what_is_no_json_is_one_value_error(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text, largest=20 if why == "at most 20" else 1 << 20)
