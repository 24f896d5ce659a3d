"""Curricula by name, for any method with advantages: `--draw sec`, `--draw "dump(temperature=0.2)"`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from burnish import papers
from burnish.draw.bandit import MovingValues, UpperBounds, by_bandit
from burnish.method import Method, Option, Phase
from burnish.parts import Draw
from burnish.rewards.named import bound, read_call
from burnish.tasks.mixture import Mixture
from burnish.tasks.resolve import mixture_of
from burnish.tasks.source import Source

Curriculum = Callable[[Mixture, Draw], Draw]
Temperature = Annotated[float, Option("Of the softmax over the sources: large is uniform.", above=0)]


@dataclass(frozen=True)
class CurriculumEntry:
    """One row of the table."""

    name: str
    build: Callable[..., Curriculum]
    papers: tuple[papers.Paper, ...]
    summary: str

    @property
    def example(self) -> str:
        """A command that uses it."""
        return f"burnish train grpo --task 'add:1*1,add:2*1,add:3*1' --draw {self.name}"


def sec(
    *,
    alpha: Annotated[float, Option("How fast a source's value follows its last |A|.", above=0, at_most=1)] = 0.5,
    temperature: Temperature = 1.0,
) -> Curriculum:
    """Self-evolving curriculum.

    Q <- (1 - alpha) Q + alpha mean |A|, from 0;  each slot of a batch draws a source by softmax(Q / temperature)

    Sources that were not drawn keep their Q. A large temperature draws uniformly; alpha = 1 keeps the last value. The
    paper searches alpha and the temperature for each task; 0.5 and 1 are ours.
    """
    return lambda mixture, old: by_bandit(mixture, lambda names: MovingValues(names, alpha, temperature), old)


def dump(
    *,
    window: Annotated[int, Option("Replies of a source whose |A| is averaged.", at_least=1)] = 300,
    temperature: Temperature = 0.1,
) -> Curriculum:
    """Distribution-level curriculum by an upper confidence bound.

    score_d = mean |A| of the last `window` replies of d + sqrt(2 ln(n + 1) / (n_d + 1)), n_d the replies that d ever
    had;  a source is drawn by softmax(score / temperature), a task of it uniformly. The released code feeds rewards of
    validation replies; advantages of the training replies are the paper's, and ours.
    """
    return lambda mixture, old: by_bandit(mixture, lambda names: UpperBounds(names, window, temperature), old)


CURRICULA = {
    "sec": CurriculumEntry("sec", sec, (papers.SEC,), "Draw more from sources whose replies have large advantages."),
    "dump": CurriculumEntry("dump", dump, (papers.DUMP,), "The same with an upper confidence bound on each source."),
}


def drawn(method: Method, text: str | None, source: Source) -> Method:
    """The method with its prompts drawn by a curriculum."""
    if not text:
        return method
    call = read_call(text)
    if call is None or call.name not in CURRICULA:
        near = difflib.get_close_matches(text, CURRICULA, 2, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(CURRICULA)}"
        raise ValueError(f"there is no curriculum {text!r}; {hint}")
    entry = CURRICULA[call.name]
    arguments = bound(call, entry.build)
    mixture = mixture_of(source)
    if mixture is None:
        raise ValueError(
            f"--draw {call.name} chooses between several sources, and task {source.name!r} is one; write "
            "--task 'a.jsonl*1,b.jsonl*1' or 'add:1*1,add:2*1'"
        )
    curriculum = entry.build(**arguments)
    phases = tuple(_in_phase(phase, curriculum, mixture) for phase in method.phases)
    if phases == method.phases:
        raise ValueError(f"{method.name} does not draw prompts, so {call.name} cannot draw them; leave out --draw")
    return replace(method, phases=phases)


def _in_phase(phase: Phase, curriculum: Curriculum, mixture: Mixture) -> Phase:
    return replace(phase, draw=curriculum(mixture, phase.draw)) if phase.draw.name == "prompts" else phase
