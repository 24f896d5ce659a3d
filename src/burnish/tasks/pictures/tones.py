"""`tones`: what is heard in a short sound, which is shown as its spectrogram.

The sound is made as a wave (8,000 samples a second); a picture's columns are 64 moments, its rows 64 bands of 62.5 Hz,
the low ones at the bottom, and its grey is the logarithm of the power.
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from burnish.core.seeds import rng
from burnish.media.drawing import SIDE, Pixels
from burnish.tasks.pictures.family import PictureFamily
from burnish.verifiers.answer_line import format_reply

RATE, WINDOW, HOP = 8000, 128, 50
BAND = RATE / WINDOW  # Hz
INSTRUMENTS = ("flute", "organ", "drum", "bird")
Note = tuple[int, int, int]  # its first and last column, its band
Tune = tuple[tuple[Note, ...], str, int]  # notes in order, instrument, seed of the noise
Wave = npt.NDArray[np.float64]


def wave(tune: Tune) -> Wave:
    """The samples of a tune: a flute is one tone, an organ has overtones, a drum is noise, a bird's tone rises."""
    notes, instrument, seed = tune
    noise = np.random.default_rng(seed)
    sound = noise.normal(0.0, 0.004, HOP * (SIDE - 1) + WINDOW)
    for first, last, band in notes:
        begin, end = first * HOP, last * HOP + WINDOW
        t = np.arange(end - begin) / RATE
        fade = np.minimum(1.0, np.minimum(np.arange(end - begin), np.arange(end - begin)[::-1]) / 60)
        angle = 2 * np.pi * band * BAND * t
        if instrument == "flute":
            tone = np.sin(angle)
        elif instrument == "organ":
            tone = np.sin(angle) + 0.6 * np.sin(2 * angle) + 0.4 * np.sin(3 * angle)
        elif instrument == "drum":
            tone = noise.normal(0.0, 0.7, end - begin) * np.exp(-6 * t / t[-1])
        else:
            tone = np.sin(angle + np.pi * 6 * BAND * t**2 / t[-1])
        sound[begin:end] += fade * tone
    return sound


def spectrogram(sound: Wave) -> Pixels:
    """[64, 64, 3]: the power of each band (rows, the highest first) at each moment (columns)."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP][:SIDE] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, axis=1)[:, :SIDE]) ** 2
    shade = np.clip((np.log10(power + 1e-6) + 3.0) / 6.5, 0.0, 1.0)
    grey = np.round(255 * shade.T[::-1]).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


class Tones(PictureFamily):
    """Level 1: how many notes. 2: whether the last of two notes is higher. 3: which instrument. 4: which note is the
    highest. Levels 2 and 3 have options.
    """

    name = "tones"
    summary = "tell what is heard in a sound that is shown as a spectrogram, for models that see"

    def draw(self, dice: random.Random) -> Tune:
        many = 2 if self.level == 2 else dice.randint(2, 4) if self.level == 4 else dice.randint(1, 5)
        room = SIDE // many
        bands = dice.sample(range(5, 20), many)
        notes = []
        for i in range(many):
            first = i * room + dice.randint(1, max(1, room // 5))
            notes.append((first, min((i + 1) * room - 4, first + dice.randint(room // 2, room - 4)), bands[i]))
        instrument = dice.choice(INSTRUMENTS if self.level in (1, 3) else INSTRUMENTS[:2])
        return tuple(notes), instrument, dice.getrandbits(30)

    def identity(self, problem: Tune) -> str:
        return " ".join(map(str, problem))

    def pictures(self, problem: Tune) -> list[Pixels]:
        return [spectrogram(wave(problem))]

    def _options(self, problem: Tune) -> list[str]:
        names = ["higher", "lower"] if self.level == 2 else [*INSTRUMENTS]
        rng("options", problem[2]).shuffle(names)
        return names

    def question(self, problem: Tune) -> str:
        if self.level in (1, 4):
            return "How many notes?" if self.level == 1 else "Which note is the highest?"
        options = " ".join(f"{letter}) {name}" for letter, name in zip("abcd", self._options(problem), strict=False))
        return f"{'The last note is' if self.level == 2 else 'What plays?'} {options}"

    def answer(self, problem: Tune) -> str:
        notes, instrument, _ = problem
        if self.level == 1:
            return str(len(notes))
        bands = [band for _, _, band in notes]
        if self.level == 4:
            return str(bands.index(max(bands)) + 1)
        right = instrument if self.level == 3 else "higher" if bands[-1] > bands[0] else "lower"
        return "abcd"[self._options(problem).index(right)]

    def solve(self, problem: Tune, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Tune, dice: random.Random) -> str:
        """Another option, another note, or off by one."""
        if self.level == 1:
            return format_reply(str(len(problem[0]) + dice.choice((-1, 1))))
        if self.level == 4:
            return format_reply(str(dice.randint(1, len(problem[0]))))
        return format_reply(dice.choice("abcd"[: 2 if self.level == 2 else 4]))

    def judge(self, problem: Tune, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
