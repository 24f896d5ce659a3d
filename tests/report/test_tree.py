"""What the trace viewer shows of episodes: the tree of a group's replies, and the tool calls of a trace."""

from __future__ import annotations

from typing import Any

from burnish.report.tree import calls_in, tree_of


def trace(number: int, reward: float | None, *turns: tuple[str, str]) -> dict[str, Any]:
    """A trace of the store whose tokens are letters."""
    pieces = [piece for _, text in turns for piece in (*text, "<|end|>")]
    return {
        "id": number,
        "reward": reward,
        "turns": [{"author": author, "tokens": len(text) + 1} for author, text in turns],
        "tokens": {"ids": [hash(piece) for piece in pieces], "pieces": pieces},
    }


def test_traces_share_the_replies_that_they_have_in_common() -> None:
    """Two traces go the same way for one reply and one answer; a third parts at the answer, which is another state."""
    asked = ("task", "number?")
    group = [
        trace(1, 1.0, asked, ("policy", "5"), ("env", "up"), ("policy", "7")),
        trace(2, 0.0, asked, ("policy", "5"), ("env", "down"), ("policy", "3")),
        trace(3, 0.0, asked, ("policy", "5"), ("env", "up"), ("policy", "8"), ("env", "down"), ("policy", "6")),
        trace(4, None, asked, ("policy", "9")),
    ]
    found = [(node["depth"], node["text"], node["answer"], node["traces"], node["reward"]) for node in tree_of(group)]
    assert found == [
        (0, "5", "up", [1, 3], 0.5),
        (1, "7", "", [1], 1.0),
        (1, "8", "down", [3], 0.0),
        (2, "6", "", [3], 0.0),
        (0, "5", "down", [2], 0.0),
        (1, "3", "", [2], 0.0),
        (0, "9", "", [4], None),
    ]
    assert [node["ends"] for node in tree_of(group)] == [False, True, False, True, False, True, True]


def test_a_group_of_single_replies_has_no_tree() -> None:
    assert tree_of([trace(1, 1.0, ("task", "a"), ("policy", "b")), trace(2, 0.0, ("task", "a"))]) == []
    assert tree_of([]) == []


def test_tool_calls_are_written_by_name_and_arguments() -> None:
    said = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": "x"}}</tool_call>'
    found = calls_in(
        trace(
            1,
            1.0,
            ("task", said),
            ("policy", said * 2),
            ("env", "2x"),
            ("policy", '<tool_call>{"name": 3}</tool_call>'),
        )
    )
    assert found[1] == ['add(a=2, b="x")'] * 2
    assert set(found) == {1, 3} and found[3][0].startswith("a call: ")  # one that cannot be read says why
    assert calls_in(trace(1, 1.0, ("task", "a"), ("policy", "no call"))) == {}
