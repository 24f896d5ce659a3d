"""A study: the claims of a paper, and the experiment that tests them, as a claim file says (studies/claim_file.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from burnish.compare.budget import Budget
from burnish.studies.rules import Level, Rule
from burnish.util.json_types import Json


@dataclass(frozen=True)
class Source:
    """The paper: its id in the catalogue, its arXiv number and its title."""

    id: str
    arxiv: str
    title: str


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared: a method with flags.

    learns  the training data, where it is not the task that judges; "{made}" is what a stage of `prepare` made
    budget  its own, in place of that of the design
    tune    whether its learning rate is chosen from the study's `tune`
    """

    name: str
    method: str
    flags: Mapping[str, object] = field(default_factory=dict)
    about: str = ""
    learns: str = ""
    budget: Budget | None = None
    tune: bool = True


@dataclass(frozen=True)
class Design:
    """How much is run: tasks x seeds x arms, each with this budget, and how it is judged.

    tasks       held-out tasks of the final evaluation; replies: to each of them
    points      evaluations during training
    dev_seeds   seeds of the learning-rate grid, which are used for nothing else
    """

    on: tuple[str, ...]
    seeds: int
    budget: Budget
    tasks: int = 200
    replies: int = 8
    points: int = 4
    arms: tuple[str, ...] = ()
    dev_seeds: int = 2


@dataclass(frozen=True)
class Claim:
    """One claim: in the paper's terms, and as a rule that gives a verdict.

    checks  what must be true of the runs for the rule to say anything; `otherwise` is the verdict where it is not
    change  what would change the verdict
    guess   what was expected before the first run
    """

    name: str
    text: str
    rule: Rule
    checks: tuple[Level, ...] = ()
    otherwise: str = "undecided"
    change: str = ""
    guess: str = ""


@dataclass(frozen=True)
class Study:
    """A claim file as it was read. sha: of its content, which results carry."""

    name: str
    source: Source
    about: str
    quoted: tuple[str, ...]
    departures: tuple[str, ...]
    model: str
    options: Mapping[str, object]
    arms: Mapping[str, Arm]
    full: Design
    quick: Design
    claims: tuple[Claim, ...]
    sha: str
    tune: tuple[float, ...] = ()
    record: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    prepare: Mapping[str, Json] = field(default_factory=dict)
    untested: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def design(self, quick: bool) -> Design:
        return self.quick if quick else self.full
