"""`lookup`: questions that documents answer, which are searched and read; and `folder:DIR`, over those of a user.

The questions over a user's folder are gaps in its own sentences: the word that is left out is to be found.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

from burnish.envs.folder_tools import Documents, terms
from burnish.envs.work.answered import Answered
from burnish.envs.work.family import WorkFamily

_COLOURS = ("red", "blue", "green", "grey", "pink", "gold")
_THINGS = ("pen", "cup", "map", "key", "hat", "coin", "ring", "book")
_PEOPLE = ("ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hal")
_MANY = {1: 6, 2: 16, 3: 40}
GAP = "____"


@dataclass(frozen=True)
class Asked:
    """Documents by name, what is asked, the looks of an expert, and the right answer."""

    texts: tuple[tuple[str, str], ...]
    question: str
    looks: tuple[str, ...]
    right: str


class Reading(Answered):
    """Actions: `search WORDS`, `read FILE`, or the line `answer: ...`."""

    position: Asked

    def documents(self) -> Documents:
        return Documents(dict(self.position.texts))

    def question(self) -> str:
        return self.position.question

    def looks(self) -> tuple[str, ...]:
        return self.position.looks

    def right(self) -> str:
        return self.position.right

    def look(self, said: str) -> str:
        what, _, rest = said.partition(" ")
        if what.lower() == "search" and rest.strip():
            return self.documents().search(rest[:400], 2)
        if what.lower() == "read" and rest.strip():
            return self.documents().read(rest.strip())
        return "say: search WORDS, read FILE, or answer: ..."


class Lookup(WorkFamily):
    """6, 16 or 40 documents. At level 1 one of them has the answer; from level 2 on, two must be found."""

    name = "lookup"
    summary = "questions that documents answer: search, read, answer (several turns)"
    game = Reading

    def draw(self, dice: random.Random) -> Asked:
        things = dice.sample([f"{colour} {thing}" for colour in _COLOURS for thing in _THINGS], _MANY[self.level])
        people = [dice.choice(_PEOPLE) for _ in things]
        rooms = {person: dice.randrange(10, 99) for person in _PEOPLE}
        sought, owner = things[0], people[0]
        looks: tuple[str, ...]
        if self.level == 1:
            boxes = [dice.randrange(10, 99) for _ in things]
            lines = [f"The {thing} is in box {box}." for thing, box in zip(things, boxes, strict=True)]
            asked, looks, right = f"Which box has the {sought}?", (f"search {sought}",), str(boxes[0])
        else:
            lines = [f"The {thing} belongs to {person}." for thing, person in zip(things, people, strict=True)]
            lines += [f"The office of {person} is room {room}." for person, room in rooms.items()]
            asked = f"Which room is the office of the owner of the {sought}?"
            looks, right = (f"search {sought}", f"search office of {owner}"), str(rooms[owner])
        dice.shuffle(lines)
        texts = tuple((f"{i}.txt", line) for i, line in enumerate(lines, 1))
        return Asked(texts, asked, looks, right)


# ------------------------------------------------------------------------------------------------- a folder of a user


@dataclass(frozen=True)
class Gap:
    """A place in the documents of a folder: the passage, and which of its terms is left out."""

    folder: str
    file: str
    sentence: str
    word: str


@cache
def documents_of(folder: str) -> Documents:
    """The documents of a folder, read once."""
    return Documents.of_folder(folder)


class FillingIn(Reading):
    """The documents are those of the folder; the question is one of their sentences with a gap."""

    position: Gap  # type: ignore[assignment]  # of a folder that is read once, not of texts in the position

    def documents(self) -> Documents:
        return documents_of(self.position.folder)

    def question(self) -> str:
        shown = re.sub(rf"\b{re.escape(self.position.word)}\b", GAP, self.position.sentence)
        return f"Search the documents (search WORDS, read FILE) and fill in the gap: {shown}"

    def looks(self) -> tuple[str, ...]:
        rest = [term for term in terms(self.position.sentence) if term != self.position.word.lower()]
        rare = sorted(dict.fromkeys(rest), key=lambda term: self.documents().index.having[term])
        return (f"search {' '.join(rare[:8])}",)

    def right(self) -> str:
        return self.position.word


class FolderLookup(WorkFamily):
    """`folder:DIR`: gaps in sentences of 6 to 40 words; the word that is left out stands once in its sentence, and is a
    number or among the rarest half of the sentence's terms.
    """

    name = "folder"
    summary = "fill in gaps of a folder's sentences by searching it (several turns)"
    game = FillingIn
    levels = (1,)

    def __init__(self, folder: str, level: int = 1, seed: int = 0) -> None:
        super().__init__(level, seed)
        self.folder = folder
        self.places = gaps(documents_of(folder), folder)
        if len(self.places) < 4:
            raise ValueError(
                f"folder:{folder} has {len(self.places)} sentences of 6 to 40 words; give a folder with at least 4"
            )

    def draw(self, dice: random.Random) -> Gap:
        return dice.choice(self.places)


def gaps(documents: Documents, folder: str) -> list[Gap]:
    """One gap for each sentence that has a word to leave out: the rarest one that stands in it once."""
    found = []
    for passage in documents.index.passages:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", passage.text):
            words = re.findall(r"\w+", sentence)
            once = [word for word in words if [w.lower() for w in words].count(word.lower()) == 1 and len(word) > 1]
            if 6 <= len(words) <= 40 and once:
                word = min(once, key=lambda one: documents.index.having[one.lower()])
                found.append(Gap(folder, passage.file, sentence.strip(), word))
    return found
