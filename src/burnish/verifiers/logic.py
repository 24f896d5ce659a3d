"""Logical equivalence of a formula and the right one, by truth tables (LogicLLaMA)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Annotated

from burnish import papers
from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.formulas import Formula, NoFormula, atoms, columns, parse, renamed, truth
from burnish.verifiers.read import fenced, wrong
from burnish.verifiers.similarity import edit_distance
from burnish.verifiers.table import Check, Row, verifier

MOST_ATOMS = 12
MOST_BINDINGS = 1000


@verifier(
    papers.LOGICLLAMA,
    needs=("answer",),
    kinds=("logic",),
    summary="Share of the rows of the truth table in which two formulas agree (LogicLLaMA).",
    when="Rows have a formula of first-order or propositional logic as `answer`.",
)
def logical_equivalence(
    *,
    chance: Annotated[
        float, Option("Subtracted from the share and rescaled; 0.5 is guessing.", at_least=0, below=1)
    ] = 0.0,
    rename: Annotated[bool, Option("Atoms of other names may stand for those of the answer.")] = True,
    quantifiers: Annotated[bool, Option("Other quantifiers score 0.")] = True,
    partial: Annotated[bool, Option("Grade by the share; otherwise equivalent formulas alone score.")] = True,
) -> Check:
    """max(0, (s - chance) / (1 - chance)), s = the best share, over bindings of atoms, of rows with the same truth.

    Atoms of the same name are bound to each other; the others in the order of their edit distance, in up to 1000 ways,
    and what remains to atoms that the other formula lacks (arXiv 2305.15541). Two random formulas agree in half of the
    rows, and one that is never true agrees with a conjunction of n atoms in 1 - 2^-n of them: chance=0.5 or
    partial=False take that away.
    Departures: the authors bind equal names freely, so that A -> B equals B -> A; and they do not read quantifiers.
    Here the blocks of quantifiers must be the same (up to names, order inside of a block, and negation), else 0.
    This is the paper's reward; its corrector, a model that is trained on perturbed formulas and then on the mistakes of
    another model, is left out.
    More than 12 atoms, nesting deeper than 60, or what is no formula: 0. The formula is the last line, or block, of
    what follows the thinking; `FOL:` and the like before it are left out.
    """

    def check(row: Row, reply: str) -> Verdict:
        try:
            right = parse(str(row["answer"]))
        except NoFormula as error:
            raise BadRow(f"the answer {str(row['answer'])[:60]!r} of a row is no formula: {error}") from None
        try:
            formula = parse(formula_of(reply))
            share = agreement(formula, right, rename=rename, quantifiers=quantifiers)
        except NoFormula as error:
            return wrong(f"no formula: {error}")
        if share == 1.0:
            return Verdict(1.0, True)
        score = max(0.0, (share - chance) / (1 - chance)) if partial else 0.0
        return wrong(f"the formulas agree in {share:.3f} of the rows", score)

    return check


def formula_of(reply: str) -> str:
    """The text of the formula of a reply."""
    text = spoken(reply)
    blocks = fenced(text)
    lines = [line.strip() for line in (blocks[-1] if blocks else text).splitlines() if line.strip()]
    last = lines[-1].strip("$` ") if lines else ""
    return re.sub(r"^(?:FOL|formula|answer|result)\s*:\s*", "", last, flags=re.IGNORECASE)


def agreement(formula: Formula, right: Formula, *, rename: bool = True, quantifiers: bool = True) -> float:
    """The best share of rows in which two formulas have the same truth; 0 where their quantifiers differ."""
    (formula, own), (right, wanted) = renamed(formula), renamed(right)
    if quantifiers and own != wanted:
        return 0.0
    names, own_names = atoms(right), atoms(formula)
    if rename:  # what the formula says more than the right one is bound to atoms without a name there
        names += [f"no atom {i}" for i in range(len(own_names) - len(names))]
    else:
        names += [name for name in own_names if name not in names]
    count = len(names)
    if count > MOST_ATOMS:
        raise NoFormula(f"there are more than {MOST_ATOMS} atoms")
    tables = dict(zip(names, columns(count), strict=True))
    every = (1 << (1 << count)) - 1
    target = truth(right, tables, every)
    best = 0
    for binding in itertools.islice(bindings(own_names, names), MOST_BINDINGS):
        table = truth(formula, {atom: tables[name] for atom, name in binding.items()}, every)
        best = max(best, (every & ~(table ^ target)).bit_count())
        if best == 1 << count:
            break
    return best / (1 << count)


def bindings(said: list[str], names: list[str]) -> Iterator[dict[str, str]]:
    """The ways to bind atoms to names: equal ones to each other, the others nearest first."""
    fixed = {atom: atom for atom in said if atom in names}
    open_atoms = [atom for atom in said if atom not in fixed]
    free = [name for name in names if name not in fixed]
    greedy: list[str] = []
    for atom in open_atoms:  # the nearest name comes first in the order of the permutations
        greedy.append(min((n for n in free if n not in greedy), key=lambda name: edit_distance(atom, name)))
    rest = [name for name in free if name not in greedy]
    for chosen in itertools.permutations([*greedy, *rest], len(open_atoms)):
        yield fixed | dict(zip(open_atoms, chosen, strict=True))
