"""Tasks written in other ways: styles, teachers who err, dialects. And the tasks of studies: points, tutor, matrix."""

from __future__ import annotations

import pytest

from burnish.tasks.resolve import resolve_task
from burnish.tasks.rewritten import dialect, style_of, tries_of


def demos(task: str, count: int = 200) -> list[str]:
    source = resolve_task(task)
    return [str(source.task("train", i).given["demo"]) for i in range(count)]


def test_a_teacher_of_some_skill_is_right_so_often() -> None:
    """Binomial: of 200 demonstrations 40% are 80 +- 7; the others are the task's own mistakes."""
    source = resolve_task("add:2,skill=0.4")
    rows = [source.task("train", i) for i in range(200)]
    right = [source.verify(row, str(row.given["demo"])).correct for row in rows]
    assert 55 <= sum(right) <= 105
    assert all(ok or row.given["demo"] == row.given["mistake"] for ok, row in zip(right, rows, strict=True))
    assert not any(demo in (row.given["mistake"],) for demo, row in zip(demos("add:2,skill=1"), rows, strict=True))


@pytest.mark.parametrize("style", ["bare", "checked", "spoken", "plain"])
def test_a_style_is_known_again_and_stays_right(style: str) -> None:
    source = resolve_task(f"add:3,style={style}")
    row = source.task("train", 0)
    assert style_of(str(row.given["demo"])) == style
    assert source.verify(row, str(row.given["demo"])).correct
    assert not source.verify(row, str(row.given["mistake"])).correct


def test_a_checked_reply_repeats_its_last_step() -> None:
    plain, checked = demos("add:2", 1)[0].split("\n"), demos("add:2,style=checked", 1)[0].split("\n")
    assert checked == [*plain[:-1], f"check {plain[-2]}", plain[-1]]


def test_a_hunt_shows_tries_that_miss() -> None:
    """Each try is a chain of equations that does not end at the target; at most four, as often none."""
    source = resolve_task("countdown:2,style=hunt")
    counts = []
    for i in range(60):
        row = source.task("train", i)
        target = str(row.given["problem"][1])
        lines = str(row.given["demo"]).split("\n")
        missed = [line for line in lines if line.endswith(" no")]
        assert all(line.removesuffix(" no").rpartition("=")[2] != target for line in missed)
        assert source.verify(row, "\n".join(lines)).correct and tries_of("\n".join(lines)) == len(missed) <= 4
        counts.append(len(missed))
    assert 0 in counts and 4 in counts
    assert all(tries_of(text) == 0 for text in demos("countdown:2,style=straight", 50))


def test_filler_has_the_length_of_a_hunt_and_no_tries() -> None:
    for hunt, filler in zip(demos("countdown:2,style=hunt", 30), demos("countdown:2,style=filler", 30), strict=True):
        assert tries_of(filler) == 0 and filler.replace(".", "").count("=") <= 2
        assert [len(line) for line in filler.split("\n")[:-2]] == [len(line) for line in hunt.split("\n")[:-2]]


def test_a_dialect_is_one_to_one_and_is_judged_as_the_plain_words() -> None:
    there, back = dialect(3)
    text = "Make 24 from 3 4 5? yes, 3*4+5-2=15\nanswer: 3*4+12"
    assert text.translate(there) != text and text.translate(there).translate(back) == text
    assert dialect(0) == ({}, {})
    source = resolve_task("countdown:2,dialect=3")
    row, plain = source.task("heldout", 0), resolve_task("countdown:2").task("heldout", 0)
    assert row.prompt[0]["content"] == plain.prompt[0]["content"].translate(there)
    assert source.verify(row, str(row.given["demo"])).correct
    assert not source.verify(row, str(plain.given["demo"])).correct


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("add,skill=2", "skill=2 is not a share"),
        ("add,style=loud", "no style=loud"),
        ("add,style=hunt", "for countdown alone"),
        ("add,dialect=9", "no dialect=9"),
        ("guess,skill=0.5", "cannot be rewritten"),
    ],
)
def test_mistakes_are_named(task: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        resolve_task(task)


# ------------------------------------------------------------------------------------------------ tasks of the studies


def test_faces_count_by_the_stated_rule() -> None:
    """King, four and three: 4 + 10 - 3 = 11 under one rule, 4 + 13 - 3 = 14 under the other."""
    ten, face = (resolve_task(f"points:2,rule={rule}") for rule in (10, 13))
    a, b = ten.task("train", 0), face.task("train", 0)
    assert a.given["problem"][3] == b.given["problem"][3]  # the same cards
    cards = a.given["problem"][3]
    assert any(card in "JQK" for card in cards)
    assert [v for v, card in zip(a.given["problem"][0], cards, strict=True) if card in "JQK"] == [10] * sum(
        card in "JQK" for card in cards
    )
    values = dict(zip(cards, b.given["problem"][0], strict=True))
    assert all(values[card] == {"J": 11, "Q": 12, "K": 13}[card] for card in cards if card in "JQK")
    assert not face.verify(b, str(a.given["demo"])).correct
    with pytest.raises(ValueError, match="no rule=7"):
        resolve_task("points:2,rule=7")


@pytest.mark.parametrize(
    ("problem", "right"),
    [
        ((36, 47, "carry", "6+7=3"), "hint carry"),
        ((36, 47, "digit", "6+7=12"), "hint 6+7"),
        ((36, 47, "right", "6+7=13"), "confirm 6+7"),
        ((36, 47, "silent", "..."), "ask 6+7"),
        ((36, 47, "done", "36+47=83"), "confirm 36+47"),
        ((36, 47, "other", "3+4=7"), "ask 6+7"),
    ],
)
def test_the_tutors_script(problem: tuple[object, ...], right: str) -> None:
    source = resolve_task("tutor:2")
    assert source.answer(problem) == right and source.judge(problem, right) == ""
    assert source.judge(problem, "tell 83")


def test_best_replies_and_dominant_moves_by_hand() -> None:
    """AA 3 AB 0, BA 5 BB 1: against A the pay-offs are 3 and 5, against B 0 and 1, so B is dominant."""
    source = resolve_task("matrix:2")
    assert source.answer(("dominant", (3, 0, 5, 1), "")) == "B"
    assert source.answer(("dominant", (3, 1, 5, 0), "")) == "none"
    assert source.answer(("best", (3, 1, 5, 0), "B")) == "A"
    assert source.answer(("play", (3, 1, 5, 0), "BBA")) == "A" and source.answer(("play", (3, 1, 5, 0), "BAA")) == "B"


@pytest.mark.parametrize(
    "name", ["points:1", "points:3,rule=13", "tutor:1", "tutor:2", "matrix:1", "matrix:2", "matrix:3"]
)
def test_demonstrations_are_right_and_mistakes_wrong(name: str) -> None:
    source = resolve_task(name)
    for i in range(25):
        row = source.task("train", i)
        assert source.verify(row, str(row.given["demo"])).correct, row.given
        assert not source.verify(row, str(row.given["mistake"])).correct, row.given
