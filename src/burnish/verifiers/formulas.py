"""Logical formulas: a parser of first-order and propositional logic, and truth tables as bits of an integer.

    not    ¬ ~ ! not              and  ∧ & && /\\ and          or   ∨ | || \\/ or         xor  ⊕ ^ xor
    implies → -> => ⇒ implies     iff  ↔ <-> <=> ⇔ ≡ iff       ∀x ∃x forall x, exists x
Atoms are P, P(x, f(y)), a = b, a ≠ b. Not and quantifiers bind closest, then and, or, xor, implies (to the right), iff;
after a full stop, a colon or a comma the scope of a quantifier is all that follows (∀x. P(x) → Q(x)).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

LONGEST = 5_000  # characters of a formula
DEEPEST = 60  # nested brackets, negations and quantifiers
_WORDS = {"not": "¬", "and": "∧", "or": "∨", "xor": "⊕", "implies": "→", "iff": "↔", "forall": "∀", "exists": "∃"}
_SIGNS = {"~": "¬", "!": "¬", "&&": "∧", "&": "∧", "/\\": "∧", "||": "∨", "|": "∨", "\\/": "∨", "^": "⊕", "->": "→"}
_SIGNS |= {"=>": "→", "⇒": "→", "⟶": "→", "<->": "↔", "<=>": "↔", "⇔": "↔", "≡": "↔", "⟷": "↔", "!=": "≠", "==": "="}
_TOKEN = re.compile(r"\s*(?:(<->|<=>|->|=>|&&|\|\||/\\|\\/|!=|==|[¬~!∧&∨|⊕^→⇒⟶↔⇔≡⟷∀∃=≠(),.:\[\]])|([^\W_][\w']*)|(\S))")
_NAME = re.compile(r"[^\W_][\w']*(?![\w'(])")  # not that of a function or predicate with arguments
_AFTER_ATOMS = "()∧∨⊕→↔=≠"  # what follows an atom, or its name, and not a variable of a quantifier
_LEVELS = ("↔", "→", "⊕", "∨", "∧")  # loosest first


@dataclass(frozen=True)
class Atom:
    """A predicate with its arguments, as text without spaces."""

    text: str


@dataclass(frozen=True)
class Node:
    """sign: one of ¬ ∧ ∨ ⊕ → ↔ ∀ ∃; variable: of a quantifier."""

    sign: str
    parts: tuple[Formula, ...]
    variable: str = ""


Formula = Atom | Node


class NoFormula(ValueError):
    """A text that is no formula."""


def parse(text: str) -> Formula:
    """The formula that a text is; raises NoFormula."""
    if len(text) > LONGEST:
        raise NoFormula(f"it has more than {LONGEST:,} characters")
    reader = _Reader(_tokens(text))
    formula = reader.formula(0)
    if reader.place < len(reader.tokens):
        raise NoFormula(f"{reader.tokens[reader.place]!r} is not expected")
    return formula


def _tokens(text: str) -> list[str]:
    tokens = []
    for sign, word, other in _TOKEN.findall(text.strip()):
        if other:
            raise NoFormula(f"{other!r} is not part of the language")
        tokens.append(_SIGNS.get(sign, sign) if sign else _WORDS.get(word.lower(), word))
    return ["(" if token == "[" else ")" if token == "]" else token for token in tokens]


class _Reader:
    """Reads a formula from tokens by descent; DEEPEST bounds the recursion."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.place, self.depth = tokens, 0, 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        if not token:
            raise NoFormula("it ends too early")
        self.place += 1
        return token

    def formula(self, level: int = 0) -> Formula:
        if level == len(_LEVELS):
            return self.unary()
        sign, parts = _LEVELS[level], [self.formula(level + 1)]
        while self.peek() == sign:
            self.take()
            parts.append(self.formula(level + 1))
        return Node(sign, tuple(parts)) if len(parts) > 1 else parts[0]

    def unary(self) -> Formula:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NoFormula(f"it is nested more than {DEEPEST} deep")
        token = self.take()
        if token == "¬":
            formula: Formula = Node("¬", (self.unary(),))
        elif token in "∀∃":
            formula = self.quantified(token)
        elif token == "(":
            formula = self.formula()
            if self.take() != ")":
                raise NoFormula("a bracket is not closed")
        else:
            self.place -= 1
            formula = self.atom()
        self.depth -= 1
        return formula

    def quantified(self, sign: str) -> Formula:
        variables = [self.name()]
        while self.peek() == "," and self.ahead(1)[:1].isalnum() and (self.ahead(2)[:1] or "(") not in _AFTER_ATOMS:
            self.take()
            variables.append(self.name())
        wide = self.peek() in (".", ":", ",")
        if wide:
            self.take()
        body = self.formula() if wide else self.unary()
        for variable in reversed(variables):
            body = Node(sign, (body,), variable)
        return body

    def ahead(self, steps: int) -> str:
        return self.tokens[self.place + steps] if self.place + steps < len(self.tokens) else ""

    def name(self) -> str:
        token = self.take()
        if not (token[0].isalnum()):
            raise NoFormula(f"{token!r} is no name")
        return token

    def term(self) -> str:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NoFormula(f"it is nested more than {DEEPEST} deep")
        text = self.name()
        if self.peek() == "(":
            self.take()
            inner = [self.term()]
            while self.peek() == ",":
                self.take()
                inner.append(self.term())
            if self.take() != ")":
                raise NoFormula("a bracket is not closed")
            text += f"({','.join(inner)})"
        self.depth -= 1
        return text

    def atom(self) -> Formula:
        left = self.term()
        if self.peek() in ("=", "≠"):
            sign, right = self.take(), self.term()
            equal = Atom("=".join(sorted((left, right))))
            return equal if sign == "=" else Node("¬", (equal,))
        return Atom(left)


def atoms(formula: Formula) -> list[str]:
    """The atoms of a formula, in order, each once."""
    if isinstance(formula, Atom):
        return [formula.text]
    return list(dict.fromkeys(text for part in formula.parts for text in atoms(part)))


def truth(formula: Formula, values: Mapping[str, int], every: int) -> int:
    """The truth table of a formula without its quantifiers: bit i says whether it holds in row i.

    values: the table of each atom; every: the table of what is always true
    """
    if isinstance(formula, Atom):
        return values[formula.text]
    inner = [truth(part, values, every) for part in formula.parts]
    if formula.sign in "∀∃":
        return inner[0]
    if formula.sign == "¬":
        return every & ~inner[0]
    if formula.sign == "→":  # to the right: a → (b → c)
        return reduce(lambda after, before: every & (~before | after), reversed(inner))
    return reduce(
        {
            "∧": lambda a, b: a & b,
            "∨": lambda a, b: a | b,
            "⊕": lambda a, b: a ^ b,
            "↔": lambda a, b: every & ~(a ^ b),
        }[formula.sign],
        inner,
    )


def columns(count: int) -> list[int]:
    """The truth tables of `count` independent atoms over their 2^count rows."""
    rows, tables = 1 << count, []
    for k in range(count):
        block = ((1 << (1 << k)) - 1) << (1 << k)  # 2^k zeros, then 2^k ones
        width = 1 << (k + 1)
        column = block
        while width < rows:
            column |= column << width
            width *= 2
        tables.append(column)
    return tables


def renamed(formula: Formula) -> tuple[Formula, list[tuple[str, frozenset[str]]]]:
    """The formula with its bound variables named by their first appearance in an atom, and its blocks of quantifiers.

    A block is a run of quantifiers of one kind, from left to right, with the set of its variables, whose order says
    nothing. Under a negation and left of an implication ∀ counts as ∃ and the other way round; inside of ↔ and ⊕ a
    quantifier acts both ways, and its kind is "∀∃".
    """
    kinds: list[str] = []  # of each quantifier from left to right
    names: dict[int, str] = {}  # number of a quantifier -> name of its variable

    def walk(node: Formula, polarity: int, bound: Mapping[str, int]) -> Formula:
        if isinstance(node, Atom):
            return Atom(_NAME.sub(lambda match: _name(match[0], bound, names), node.text))
        if node.sign in "∀∃":
            flipped = "∃" if node.sign == "∀" else "∀"
            kinds.append({1: node.sign, -1: flipped, 0: "∀∃"}[polarity])
            bound = {**bound, node.variable: len(kinds) - 1}
        last = len(node.parts) - 1
        signs = [
            0 if node.sign in "↔⊕" else -polarity if node.sign == "¬" or (node.sign == "→" and i < last) else polarity
            for i in range(len(node.parts))
        ]
        return Node(node.sign, tuple(walk(p, own, bound) for p, own in zip(node.parts, signs, strict=True)))

    result = walk(formula, 1, {})
    blocks: list[tuple[str, frozenset[str]]] = []
    for place, kind in enumerate(kinds):
        name = frozenset({names[place]} if place in names else ())
        if blocks and blocks[-1][0] == kind:
            blocks[-1] = kind, blocks[-1][1] | name
        else:
            blocks.append((kind, name))
    return result, blocks


def _name(word: str, bound: Mapping[str, int], names: dict[int, str]) -> str:
    if word not in bound:
        return word
    return names.setdefault(bound[word], f"v{len(names) + 1}'")
