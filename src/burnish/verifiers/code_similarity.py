"""CodeBLEU of Python, as pure functions: n-grams, n-grams with weighted keywords, syntax trees, data flow.

Programs are parsed and never run. What does not parse has no tree and no data flow.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from burnish.verifiers.similarity import bleu, n_grams

_T = TypeVar("_T")

_CODE_TOKENS = re.compile(r"\w+|[^\w\s]")
OTHER = 0.2  # weight of a token that is no keyword

Edge = tuple[str, str]  # (what is computed, a variable that it is computed from)


def code_tokens(code: str) -> list[str]:
    """Words and single signs, with their case."""
    return _CODE_TOKENS.findall(code)


def codebleu(reply: str, right: str) -> float:
    """(BLEU + weighted BLEU + AST match + data-flow match) / 4 (Ren et al., arXiv 2009.10297), within [0, 1].

    AST match and data-flow match are shares of the reference's subtrees and edges that the program has. A reference
    without data flow (one expression) is compared by the other three.
    """
    own, reference = code_tokens(reply), code_tokens(right)
    if not own or not reference:
        return 0.0
    parts = [bleu(own, [reference]), weighted_bleu(own, reference)]
    tree = parsed(right)
    if tree is not None:
        parsed_reply = parsed(reply)
        parts.append(_shared(subtrees(tree), subtrees(parsed_reply) if parsed_reply is not None else Counter()))
        edges = data_flow(tree)
        if edges:
            parts.append(_shared(edges, data_flow(parsed_reply) if parsed_reply is not None else Counter()))
    return math.fsum(parts) / len(parts)


def weighted_bleu(candidate: Sequence[str], right: Sequence[str]) -> float:
    """BLEU whose unigrams count 1 if they are keywords of Python and OTHER if not."""

    def mass(counts: Counter[tuple[str, ...]]) -> float:
        return sum(n * (1.0 if keyword.iskeyword(word) else OTHER) for (word,), n in counts.items())

    own, reference = n_grams(candidate, 1), n_grams(right, 1)
    plain = sum((own & reference).values()) / len(candidate)
    if not plain:
        return 0.0
    weighted = mass(own & reference) / mass(own)
    orders = min(4, len(candidate))
    correction: float = (weighted / plain) ** (1 / orders)
    return min(1.0, bleu(candidate, [right]) * correction)


def parsed(code: str) -> ast.AST | None:
    """The syntax tree of a program; None where it is not Python."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def subtrees(tree: ast.AST) -> Counter[str]:
    """All subtrees with at least one child, as the kinds of their nodes; names and values do not count."""
    counts: Counter[str] = Counter()

    def shape(node: ast.AST) -> str:
        children = [shape(child) for child in ast.iter_child_nodes(node)]
        text = f"{type(node).__name__}({' '.join(children)})"
        if children:
            counts[text] += 1
        return text

    shape(tree)
    return counts


def data_flow(tree: ast.AST) -> Counter[Edge]:
    """The variables that each assignment, loop and return reads; variables are numbered as they first occur."""
    names: dict[str, str] = {}
    edges: Counter[Edge] = Counter()

    def number(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}")

    def reads(node: ast.AST | None) -> list[str]:
        if node is None:
            return []
        return [number(one.id) for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]

    for node in _in_order(tree):
        if isinstance(node, ast.arg):
            number(node.arg)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
            value = node.iter if isinstance(node, ast.For) else node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            read = reads(value)
            for target in targets:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name):
                        own = [number(one.id)] if isinstance(node, ast.AugAssign) else []
                        edges.update((number(one.id), source) for source in (*read, *own))
        elif isinstance(node, ast.Return):
            edges.update(("return", source) for source in reads(node.value))
    return edges


def _in_order(node: ast.AST) -> list[ast.AST]:
    """The nodes in the order of the text."""
    return [node, *(inner for child in ast.iter_child_nodes(node) for inner in _in_order(child))]


def _shared(right: Counter[_T], candidate: Counter[_T]) -> float:
    """The share of a multiset that is in the other; 1 where it is empty."""
    total = sum(right.values())
    return sum((right & candidate).values()) / total if total else 1.0
