"""Plausible slips in Python source: where one could stand, and the source with one of them planted.

A slip is a small change of one syntax node: a comparison with the wrong edge, a sign, a dropped factor, two arguments
in the wrong order, a keyword argument that is not passed on, a condition turned round. Docstrings, annotations,
messages of errors and names in `__all__` are left alone, because a change there is no mistake that a test could notice.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SYMMETRIC = ("min", "max", "isinstance", "math.isclose", "zip")  # in any order, or an error in every call
UNSEEN = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Slip:
    """One change: `what` kind it is, where it stands, the function (by first line) that holds it, the text before and
    after.
    """

    file: str
    function: str
    first_line: int
    line: int
    what: str
    before: str
    after: str
    signature: bool  # whether it is a default, and not what the function does
    number: int  # of the change among all of its file, in the order of `changes`

    @property
    def key(self) -> str:
        """The slip's name across runs, while its file does not change."""
        return f"{self.file}:{self.line}:{self.what}:{self.number}:{self.before}->{self.after}"


Change = tuple[str, ast.AST, Callable[[], ast.AST]]  # kind of slip, the node, what takes its place


def slips(file: str, source: str) -> list[Slip]:
    """Every slip that could be planted in this source."""
    tree = ast.parse(source)
    functions = list(_functions(tree))
    found = []
    for number, (what, node, other) in enumerate(changes(tree)):
        line = getattr(node, "lineno", 0)
        inside = [f for f in functions if f[1] <= line <= f[2]]
        name, first, _, body = max(inside, key=lambda f: f[1], default=("", 0, 0, 0))
        found.append(Slip(file, name, first, line, what, _text(node), _text(other()), line < body, number))
    return [slip for slip in found if slip.before != slip.after]


def planted(source: str, number: int) -> str:
    """The source with the change of this number made."""
    _, node, other = list(changes(ast.parse(source)))[number]
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [sum(map(len, lines[:k])) for k in range(len(lines))]
    begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
    end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
    text, whole = _text(other()), b"".join(lines)
    if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Call):
        text = f"({text})"
    return (whole[:begin] + text.encode() + whole[end:]).decode()


def changes(tree: ast.Module) -> Iterator[Change]:
    """Every change of one node, in a fixed order."""
    for node in _seen(tree):
        yield from ((what, node, other) for what, other in _others(node))
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield "negated condition", node.test, lambda node=node: ast.UnaryOp(ast.Not(), node.test)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _functions(tree: ast.Module) -> Iterator[tuple[str, int, int, int]]:
    """Name, first line (of a decorator, as code objects have it), last line and first line of the body of every
    function.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(d.lineno for d in decorators)])
            body = node.body.lineno if isinstance(node, ast.Lambda) else node.body[0].lineno
            yield getattr(node, "name", "<lambda>"), first, node.end_lineno or node.lineno, body


def _seen(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in which a slip would change what the program does."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_comment", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, UNSEEN) or _is_text(child):
                continue
            if isinstance(child, ast.If) and _is_guard(child):
                continue
            yield child
            yield from _seen(child)


def _is_text(node: ast.AST) -> bool:
    """A docstring, or `__all__ = [...]`."""
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_guard(node: ast.If) -> bool:
    """`if TYPE_CHECKING:` and `if __name__ == "__main__":`."""
    return "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test)


def _others(node: ast.AST) -> Iterator[tuple[str, Callable[[], ast.AST]]]:
    """The slips that could happen at this node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield "comparison", lambda: _with(node, ops=[COMPARISONS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BinOp):
        if type(node.op) in OPERATORS and not _joins_text(node):
            yield "operator", lambda: _with(node, op=OPERATORS[type(node.op)]())
        if isinstance(node.op, ast.Mult | ast.Div):
            yield "dropped factor", lambda: node.left
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "dropped sign" if isinstance(node.op, ast.USub) else "dropped not", lambda: node.operand
    elif isinstance(node, ast.BoolOp):
        yield "and/or", lambda: _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node)
    elif isinstance(node, ast.Call):
        yield from _other_calls(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "dropped statement", lambda: ast.Pass()
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        yield "operator", lambda: _with(node, op=OPERATORS[type(node.op)]())


def _other_constants(node: ast.Constant) -> Iterator[tuple[str, Callable[[], ast.AST]]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", lambda: ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", lambda: ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", lambda: ast.Constant(value * 2 if value else 1.0)


def _other_calls(node: ast.Call) -> Iterator[tuple[str, Callable[[], ast.AST]]]:
    if (
        len(node.args) >= 2
        and _text(node.func) not in SYMMETRIC
        and not any(isinstance(a, ast.Starred) for a in node.args[:2])
    ):
        first, second, *rest = node.args
        if not any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in (first, second)):
            yield "swapped arguments", lambda: _with(node, args=[second, first, *rest])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "dropped keyword", lambda i=i: _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield "min/max, any/all", lambda: _with(node, func=ast.Name(NAMES[node.func.id], ast.Load()))  # type: ignore[attr-defined]


def _joins_text(node: ast.BinOp) -> bool:
    """Whether strings are put together: their minus is an error that every call notices."""
    return any(
        isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", 0), str)
        for side in (node.left, node.right)
    )


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of the node with other fields."""
    found = copy.copy(node)
    for name, value in fields.items():
        setattr(found, name, value)
    return found
