"""Tasks with drawn pictures and with codes: what they draw, how they judge, writers who err."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burnish.core.messages import pictures_of, text_of
from burnish.envs.games.reach import Reaching, Room
from burnish.envs.games.zoom import AGAIN, Poster, Zooming
from burnish.envs.protocol import shortened
from burnish.media.decode import decoded
from burnish.media.drawing import COLOURS, GLYPHS, glyph
from burnish.media.store import STORE
from burnish.tasks import seen_corpus
from burnish.tasks.codes.code import TOKENS, read, written
from burnish.tasks.codes.frames import Frames, progress
from burnish.tasks.codes.melody import faults
from burnish.tasks.codes.pixels import Draw, blobs
from burnish.tasks.codes.speak import spoken
from burnish.tasks.pictures.arrow import Arrow
from burnish.tasks.pictures.boxes import Boxes, Detect
from burnish.tasks.pictures.glyphs import CONFUSED, Glyphs
from burnish.tasks.pictures.page import PageTask
from burnish.tasks.pictures.sprites import Sprites
from burnish.tasks.pictures.tones import BAND, RATE, Tones, wave
from burnish.tasks.table import CODED, SEEN, source

CELLS = [(name, level) for name in (*SEEN, *CODED) for level in (1, 2, 3, 4)]
HOSTILE = (
    "",
    "answer:",
    "answer: 9 9 9 9",
    "answer: " + "1 " * 3000,
    "answer: <c99>",
    "answer: -1 ¹ ² ³",
    "answer: ,,,",
)


@pytest.mark.parametrize(("name", "level"), CELLS)
def test_demonstrations_are_right_and_mistakes_are_wrong(name: str, level: int) -> None:
    family: Any = source(name, level=level)
    keys: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for split in keys:
        for index in range(4):
            task = family.task(split, index)
            keys[split].add(task.key)
            assert family.task(split, index).prompt == task.prompt
            assert len(pictures_of(task.prompt)) > 0 or name in CODED
            right, wrong = family.verify(task, task.given["demo"]), family.verify(task, task.given["mistake"])
            assert right.correct and 0.5 <= right.score <= 1.0 and not wrong.correct and 0.0 <= wrong.score <= 1.0
            assert family.verify(task, f"answer: {task.given['answer']}").score == 1.0
            assert not any(family.verify(task, reply).score > 1.0 for reply in HOSTILE)
    assert not keys["train"] & keys["heldout"]


def test_every_glyph_is_drawn_differently_and_has_one_it_is_taken_for() -> None:
    assert len({glyph(one, 1).tobytes() for one in GLYPHS}) == len(GLYPHS) == 21
    assert all(CONFUSED[one] for one in GLYPHS) and not any(one in CONFUSED[one] for one in GLYPHS)


def test_glyphs_score_one_minus_the_edit_distance() -> None:
    """7KX for 7HX4: one substitution, one left out, of four."""
    assert Glyphs().credit(("7HX4", (), (), 0, 0), "7KX") == pytest.approx(0.5)


def test_boxes_score_their_overlap() -> None:
    """A box of 4 x 4 moved by one: 12 of 20. By two: 8 of 24, which is below one half."""
    scene = ((("circle", "red", (2, 2, 6, 6)), ("square", "red", (9, 9, 12, 12))), 0, 200)
    family = Boxes(2)
    said = {move: family.verdict(scene, f"answer: {2 + move} 2 {6 + move} 6") for move in (1, 2)}
    assert said[1].score == pytest.approx(0.6) and said[1].correct
    assert said[2].score == pytest.approx(1 / 3) and not said[2].correct
    (picture,) = family.pictures(scene)
    assert tuple(picture[9 * 4, 9 * 4]) == tuple(picture[47, 47]) == COLOURS["red"] != tuple(picture[48, 48])


def test_detect_divides_by_the_larger_number_of_boxes() -> None:
    """Two circles are wanted; one is found exactly, one box is beside: 1 / 2. With a third box: 1 / 3."""
    shapes = (("circle", "red", (0, 0, 4, 4)), ("circle", "blue", (8, 8, 12, 12)), ("cross", "red", (0, 8, 4, 12)))
    family = Detect(2)
    assert family.credit((shapes, 0, 200), "0 0 4 4 9, 12 0 16 4 3") == pytest.approx(1 / 2)
    assert family.credit((shapes, 0, 200), "0 0 4 4 9, 12 0 16 4 3, 0 8 4 12 5") == pytest.approx(1 / 3)
    assert not family.judge((shapes, 0, 200), "0 0 4 4 9, 8 8 12 12 3")


def test_a_sprite_moves_by_a_cell_and_time_is_scored_over_the_hull() -> None:
    """Frames 2 to 4 said, 3 to 6 right: 2 frames shared of 5."""
    clip = ((("square", "red", 3, "right", "right", (3, 6)), ("circle", "blue", 0, "up", "up", (1, 6))), 7, 200)
    family = Sprites(4)
    assert family.credit(clip, "2 4") == pytest.approx(2 / 5) and not family.judge(clip, "3 6")
    third = family.pictures(clip)[2]  # two steps right of cell 3, past the edge: cell 1
    assert tuple(third[4, 12]) == COLOURS["red"]


def test_a_flute_sounds_at_its_band() -> None:
    """Band 12 of 62.5 Hz: 750 Hz is the strongest frequency of the samples."""
    sound = wave((((5, 60, 12),), "flute", 0))
    peak = float(np.fft.rfftfreq(len(sound), 1 / RATE)[np.abs(np.fft.rfft(sound)).argmax()])
    assert BAND == 62.5 and abs(peak - 750) < 5
    (picture,) = Tones(1).pictures((((5, 60, 12),), "flute", 0))
    assert int(picture[:, 32, 0].argmax()) == 63 - 12


def test_an_action_on_a_page_is_right_inside_its_element() -> None:
    page = ((("button", "K", 4, 5), ("field", "A", 9, 0)), "click", "K", "", 200)
    family = PageTask(3)
    wrong = {said: bool(family.judge(page, said)) for said in ("click 5 7", "click 7 9", "click 8 7", "type 5 7 4")}
    assert wrong == {"click 5 7": False, "click 7 9": False, "click 8 7": True, "type 5 7 4": True}
    typed = (page[0], "type", "A", "42", 200)
    assert not family.judge(typed, "type 10 2 42") and family.judge(typed, "type 10 2 24")
    assert not family.judge((page[0], "scroll", "X", "", 200), "scroll down")


def test_options_are_shuffled() -> None:
    """One who always says "a" is right as often as there are options."""
    for level, options in ((1, 2), (3, 4)):
        family = Arrow(level)
        right = [family.answer(family.problem("train", index)) == "a" for index in range(400)]
        assert abs(sum(right) / 400 - 1 / options) < 0.08


def test_a_frame_is_nearer_no_nearer_or_invalid() -> None:
    """A lake of 3 x 3 with a hole in the middle: from the upper left corner to the lower right one."""
    lake = (3, (4,), 0, 8)
    step = [0, 2, 0, 0, 1, 0, 0, 0, 3]
    assert progress(lake, step) == "nearer"
    assert progress(lake, [2, 0, 0, 0, 1, 0, 0, 0, 3]) == "no nearer"  # it stays
    assert progress((3, (4,), 1, 8), [2, 0, 0, 0, 1, 0, 0, 0, 3]) == "no nearer"  # it goes back
    assert progress(lake, [0, 0, 2, 0, 1, 0, 0, 0, 3]) == "invalid" == progress(lake, None)
    assert progress((3, (4,), 7, 8), [0, 0, 0, 0, 1, 0, 0, 0, 4]) == "nearer" and not Frames(1).judge(
        lake, written("c", step)
    )


def test_blobs_are_connected_regions() -> None:
    cells = [0] * 64
    for at in (0, 1, 8, 18, 63):
        cells[at] = 2
    assert blobs(cells, 2) == 3 and blobs(cells, 1) == 0
    assert not Draw(3).judge((3, "green", 0), written("c", cells))
    assert "blobs" in Draw(3).judge((2, "green", 0), written("c", cells))


def test_a_melody_keeps_to_its_key_contour_and_end() -> None:
    """C E G C rises in C and ends on it; with F sharp it has a note that is not of C."""
    assert faults(("C", "rising", 4, 0), [0, 4, 7, 12]) == []
    assert faults(("C", "rising", 4, 0), [0, 4, 6, 12]) == ["<n6> is not in C"]
    assert len(faults(("C", "falling", 5, 0), [0, 4, 7, 11])) == 3


def test_letters_are_two_codes_shifted_by_the_speaker() -> None:
    """H is the letter 7: 1 and 2 of five; the second speaker's codes are five higher."""
    assert spoken("HA", 0) == [1, 12, 0, 10] and spoken("HA", 1) == [6, 17, 5, 15]


def test_codes_are_read_only_if_all_of_the_text_is_codes() -> None:
    assert read("c", "<c1><c15>") == [1, 15] and len(TOKENS) == 88
    assert (
        read("c", "<c1> <c2>") is read("c", "<n1>") is read("c", "<c16>") is read("c", "") is read("c", "<c01>") is None
    )


def test_reaching_the_wrong_object_ends_the_walk() -> None:
    room = Room(5, (("cross", "red", 7), ("circle", "blue", 1)), (6,), 200)
    game = Reaching(room)
    (message,) = game.reset()
    assert text_of(message) == "Go to the red cross." and decoded(STORE.raw(pictures_of([message])[0])).size == (32, 32)
    assert game.expert() in ("down", "up") and game.most == room.distances()[5] + 3
    bumped = game.step("right")
    assert text_of(bumped.observation[0]) == "bump" and game.key() == "5"
    wrong = game.step("go up")
    assert wrong.terminated and wrong.reward == 0.0 and 1 not in room.distances()


def test_zoom_shows_the_place_in_full_size_and_falls_back() -> None:
    """The letter at pixel 200, 120 of the large picture: the part around unit 13, 8 begins at pixel 176, 96."""
    poster = Poster((("red", "7", 176, 118), ("blue", "L", 10, 10)), 200)
    game = Zooming(poster)
    game.reset()
    assert poster.small().shape == (64, 64, 3) and tuple(poster.small()[31, 46]) == COLOURS["red"]
    back = game.step("crop 20 3")
    assert text_of(back.observation[0]) == AGAIN and pictures_of(back.observation) == pictures_of(
        Zooming(poster).reset()
    )
    seen = game.step("crop 13 8")
    assert np.array_equal(poster.part(13, 8), poster.drawn()[96:160, 176:240]) and not seen.over
    last = game.step("answer: 7")
    assert last.terminated and last.reward == 1.0


def test_an_observation_with_pictures_is_cut_in_its_text_alone() -> None:
    seen = ({"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "abcdef"}]},)
    assert shortened(seen, 100) == (seen, 0)
    (cut,), missing = shortened(seen, 4)
    assert missing == 3 and cut["content"][0] == seen[0]["content"][0] and text_of(cut).startswith("abc\n[3 more")


def test_careful_writers_are_right_and_others_err(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 documents by writers who err, 0.3 x 0.6 + 0.4 x 0.42 + 0.2 x 0.3 + 0.1 x 0.2 = 0.428 are right."""
    monkeypatch.setattr(seen_corpus, "SHARE", {"melody": 1.0})

    def right(careful: bool) -> float:
        found = 0
        for index in range(200):
            asked, said = seen_corpus.document(1, index, careful)
            key, many, _, contour = str(asked["content"]).removeprefix("In ").rstrip(".").replace(",", "").split()
            notes = read("n", str(said["content"]).removeprefix("answer: "))
            found += notes is not None and not faults((key, contour, int(many), 0), notes)
        return found / 200

    assert right(careful=True) == 1.0 and abs(right(careful=False) - 0.428) < 0.08
    assert seen_corpus.document(1, 5) == seen_corpus.document(1, 5)
