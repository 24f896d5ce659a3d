"""Curricula by name, for any method that draws prompts: `--draw sec`, `--draw "eva(creator=tiny)"`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from burnish import papers
from burnish.core.parts import Draw
from burnish.draw import rated
from burnish.draw.bandit import Bandit, MovingValues, UpperBounds, by_bandit
from burnish.draw.evolve import OPERATIONS, Evolution, Pool, evolving, informativeness
from burnish.draw.few import few as fixed_set
from burnish.draw.made import require_single_prompts
from burnish.draw.self_instruct import Instructions, Writing, self_instructed
from burnish.judges.rewrites import OF_MORE, OF_REWRITE, Words
from burnish.method import Method, Option, Phase, chain
from burnish.score.judges import Judge, read_judge
from burnish.score.majority import known_or_majority
from burnish.tasks.resolve import mixture_of
from burnish.tasks.source import Source
from burnish.tasks.task_set import task_set

Curriculum = Callable[[Method, Source], Method]
Temperature = Annotated[float, Option("Of the softmax over the sources: large is uniform.", above=0)]

Creator = Annotated[str, Option("Who rewrites prompts (docs/judges.md): policy, a model, or an endpoint.")]
Every = Annotated[int, Option("Steps of a round, after which prompts evolve.", at_least=1)]
Subset = Annotated[float, Option("Share of a round's prompts that evolve.", above=0, at_most=1)]
Variants = Annotated[
    int, Option("New prompts from each, by different operations.", at_least=1, at_most=len(OPERATIONS))
]
Evolved = Annotated[float, Option("Share of evolved prompts in a batch; the rest is original.", at_least=0, at_most=1)]
Writer = Annotated[str, Option("Who writes prompts (docs/judges.md): policy, a model, or an endpoint.")]
Generated = Annotated[float, Option("Share of written prompts in a batch.", at_least=0, at_most=1)]
Similar = Annotated[float, Option("Largest ROUGE-L F1 with another prompt.", at_least=0, at_most=1)]
Examples = Annotated[int, Option("Prompts that the writer sees, two of them its own.", at_least=1)]
Tries = Annotated[int, Option("Prompts asked for, for each one that a batch needs.", at_least=1)]
LeastWords = Annotated[int, Option("Fewest words of a prompt.", at_least=1)]
MostWords = Annotated[int, Option("Most words of a prompt.", at_least=1)]


@dataclass(frozen=True)
class CurriculumEntry:
    """One row of the table."""

    name: str
    build: Callable[..., Curriculum]
    papers: tuple[papers.Paper, ...]
    summary: str
    task: str = "'add:1*1,add:2*1,add:3*1'"

    @property
    def example(self) -> str:
        """A command that uses it."""
        return f"burnish train grpo --task {self.task} --draw {self.name}"


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
    return _between_sources("sec", lambda names: MovingValues(names, alpha, temperature))


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
    return _between_sources("dump", lambda names: UpperBounds(names, window, temperature))


def eva(
    *,
    creator: Creator = "policy(temperature=1)",
    every: Every = 50,
    subset: Subset = 0.25,
    variants: Variants = 4,
    evolved: Evolved = 0.8,
    words: Words = "full",
) -> Curriculum:
    """Evolving prompts by asymmetric self-play.

    info(x) = max r - min r over the replies to x;  after a round, `subset` of its prompts, drawn in proportion to info,
    are rewritten by `variants` operations each (five in depth, five in breadth);  a slot of the next round's batches is
    an evolved prompt with chance `evolved`, else an original

    Evolved prompts replace those of the round before; originals are drawn as without the curriculum, and a prompt with
    info 0 never evolves. The answers to evolved prompts are unknown: a reward function, a reward model or a judge
    scores them, and without one the agreement with the majority (serl). 0.25 and the operations are the paper's; its
    0.8 could not be checked, and `every` and `variants` are ours.
    """
    rule = Evolution(every, subset, variants, evolved, OF_REWRITE[words])
    who = read_judge(creator)

    def apply(method: Method, source: Source) -> Method:
        require_single_prompts(source)
        pool = Pool()

        def change(phase: Phase) -> Phase:
            drawn_by, noted = evolving(phase.draw, pool, rule, who), informativeness(pool)
            return replace(_any_prompt(phase, source), draw=drawn_by, select=chain(noted, phase.select))

        return _changed(method, "eva", change, who)

    return apply


def serl(
    *,
    writer: Writer = "policy(temperature=0.8, top_p=0.95)",
    generated: Generated = 1.0,
    examples: Examples = 8,
    tries: Tries = 2,
    similar: Similar = 0.7,
    least_words: LeastWords = 3,
    most_words: MostWords = 150,
    words: Words = "full",
) -> Curriculum:
    """Self-instruction of SeRL.

    After each step the policy writes prompts like examples of the data (two of the examples are its own). Kept are
    those with ROUGE-L F1 <= `similar` to every other prompt, of a fit length, that ask for no other medium; a slot of
    the next batch is such a prompt with chance `generated`, as long as there are any, else one of the data.

    Generated prompts are scored by agreement with the majority of the replies, unless the run has a reward of its own.
    generated = 0 is the method itself. Departures: no presence penalty, and the examples are prompts that were drawn
    so far.
    """
    rule = Writing(examples, tries, similar, least_words, most_words, generated, OF_MORE[words])
    who = read_judge(writer)

    def apply(method: Method, source: Source) -> Method:
        require_single_prompts(source)
        known = Instructions()

        def change(phase: Phase) -> Phase:
            return replace(_any_prompt(phase, source), draw=self_instructed(phase.draw, known, rule, who))

        return _changed(method, "serl", change, who)

    return apply


def in_order() -> Curriculum:
    """Rows in the order of the file.

    Qwen2.5 processes prompts by decreasing variance of the scores of their replies: `burnish rate --order variance`
    writes rows in this order, and this draws them so. After the last row comes the first.
    """
    return _of_rows("in_order", rated.in_order)


def by_rate(
    *, width: Annotated[float, Option("Deviation of the pass rates of a batch.", above=0)] = 0.15
) -> Curriculum:
    """Batches from easy to hard, by the pass rates that `burnish rate` wrote (Llama-Nemotron).

    centre = highest rate + (lowest - highest) t / (steps - 1);   of a rate p, exp(-(p - centre)^2 / (2 width^2)) of the
    batch, as far as there are rows; the rest from the rates with most rows left

    The paper prints no width.
    """
    return _of_rows("by_rate", lambda source, old: rated.by_rate(source, old, width))


def prioritised() -> Curriculum:
    """Rows in proportion to 1 - s, s the success rate of their last replies (Kimi k1.5).

    A row that was not drawn yet has s = 0.
    """
    return _of_rows("prioritised", rated.by_failure)


def few(*, size: Annotated[int, Option("Prompts of the fixed set.", at_least=1)] = 1) -> Curriculum:
    """The same few prompts again and again, another set for each seed.

    With fewer prompts than a batch has, a batch has these alone: --draw few --prompts 1 --n 128 trains on one prompt,
    128 replies a step (1-shot RLVR, arXiv 2504.20571).
    """
    return _of_rows(f"few({size})", lambda source, old: replace(fixed_set(source, size), heldout=old.heldout))


def _of_rows(name: str, make: Callable[[Source, Draw], Draw]) -> Curriculum:
    return lambda method, source: _changed(method, name, lambda phase: replace(phase, draw=make(source, phase.draw)))


CURRICULA = {
    "sec": CurriculumEntry("sec", sec, (papers.SEC,), "Draw more from sources whose replies have large advantages."),
    "dump": CurriculumEntry("dump", dump, (papers.DUMP,), "The same with an upper confidence bound on each source."),
    "eva": CurriculumEntry(
        "eva", eva, (papers.EVA,), "Rewrite prompts whose replies score differently, and train on them too.", "add"
    ),
    "serl": CurriculumEntry("serl", serl, (papers.SERL,), "Let the policy write more prompts like those given.", "add"),
    "in_order": CurriculumEntry(
        "in_order", in_order, (papers.QWEN2_5,), "Draw rows in the order of the file.", "rated.jsonl"
    ),
    "by_rate": CurriculumEntry(
        "by_rate", by_rate, (papers.LLAMA_NEMOTRON,), "Draw rows from easy to hard, by their pass rates.", "rated.jsonl"
    ),
    "few": CurriculumEntry("few", few, (), "Draw the same few prompts in every step.", "add"),
    "prioritised": CurriculumEntry(
        "prioritised", prioritised, (papers.KIMI_K1_5,), "Draw rows that fail more often.", "rated.jsonl"
    ),
}


def _between_sources(name: str, make: Callable[[list[str]], Bandit]) -> Curriculum:
    """A bandit over the sources of a mixture."""

    def apply(method: Method, source: Source) -> Method:
        mixture = mixture_of(source)
        if mixture is None:
            raise ValueError(
                f"--draw {name} chooses between several sources, and task {source.name!r} is one; write "
                "--task 'a.jsonl*1,b.jsonl*1' or 'add:1*1,add:2*1'"
            )
        return _changed(method, name, lambda phase: replace(phase, draw=by_bandit(mixture, make, phase.draw)))

    return apply


def _changed(method: Method, name: str, change: Callable[[Phase], Phase], who: Judge | None = None) -> Method:
    """The method with its phases that draw prompts changed, and with the models that the curriculum asks."""
    phases = tuple(change(phase) if phase.draw.name == "prompts" else phase for phase in method.phases)
    if phases == method.phases:
        raise ValueError(f"{method.name} does not draw prompts, so {name} cannot draw them; leave out --draw")
    models = {**(who.models if who else {}), **method.models}
    return replace(method, phases=phases, models=models)


def _any_prompt(phase: Phase, source: Source) -> Phase:
    """The phase with a verifier that scores prompts of the run, too: by the majority, where it knows the data alone."""
    if task_set(source).rewarded_by != "task":
        return phase
    parts = (known_or_majority(atom) if atom.kind == "task_reward" else atom for atom in phase.score)
    return replace(phase, score=chain(*parts))
