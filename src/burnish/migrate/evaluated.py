"""Values of expressions in a script that is not executed: constants, variables, arithmetic, and the datasets library.

What cannot be known without running the script is an `Unread`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from burnish.migrate.draft import Unread

LARGEST = 2**63
LONGEST = 100_000  # characters of a text
_OPERATORS: dict[type, Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: dict[type, Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_BUILTINS: dict[str, Callable[..., object]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "min": min,
    "max": max,
    "round": round,
    "abs": abs,
    "len": len,
}
_BF16 = ("is_bfloat16_supported", "is_bf16_supported", "is_available", "is_torch_bf16_gpu_available")


@dataclass(frozen=True)
class Data:
    """Rows that a script loads: sources with options, and what was done to them."""

    sources: tuple[tuple[str, dict[str, object]], ...]
    done: tuple[tuple[str, str], ...] = ()  # (what the script calls, what becomes of it here)
    weights: tuple[float, ...] = ()
    system: str | None = None

    def optioned(self, **options: object) -> Data:
        return replace(self, sources=tuple((name, {**before, **options}) for name, before in self.sources))

    def after(self, call: str, text: str) -> Data:
        return replace(self, done=(*self.done, (call, text)))


@dataclass(frozen=True)
class Function:
    """A function of the script, by name."""

    name: str


@dataclass
class Scope:
    """Variables while statements are followed, and the functions that the script defines."""

    names: dict[str, object] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef | ast.ClassDef] = field(default_factory=dict)
    depth: int = 0


Call = Callable[[ast.Call, Scope], object]


def value_of(node: ast.expr, scope: Scope, call: Call) -> object:
    """The value of an expression; `call` gives that of calls."""
    unread = Unread(" ".join(ast.unparse(node).split())[:200])
    try:
        value = _value(node, scope, call)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
        return unread
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > LARGEST:
        return unread
    if isinstance(value, str | list | tuple) and len(value) > LONGEST:
        return unread
    return unread if isinstance(value, Unread) and not value.text else value


def _value(node: ast.expr, scope: Scope, call: Call) -> object:
    def of(inner: ast.expr) -> Any:
        value = value_of(inner, scope, call)
        if isinstance(value, Unread):
            raise ValueError("unread")
        return value

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id in scope.functions and node.id not in scope.names:
                return Function(node.id)
            return scope.names[node.id]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [of(item) for item in items]
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return {of(key): value_of(value, scope, call) for key, value in pairs if key is not None}
        case ast.BinOp(op=ast.Pow()):
            base, power = of(node.left), of(node.right)
            return base**power if abs(power) <= 64 and abs(base) <= 1024 else Unread("")
        case ast.BinOp():
            left, right = of(node.left), of(node.right)
            numbers = all(isinstance(one, int | float) for one in (left, right))
            if not numbers and not (isinstance(node.op, ast.Add) and isinstance(left, type(right))):
                return Unread("")  # a text that is repeated or formatted
            return _OPERATORS[type(node.op)](left, right)
        case ast.UnaryOp(op=ast.USub()):
            return -of(node.operand)
        case ast.UnaryOp(op=ast.Not()):
            return not of(node.operand)
        case ast.BoolOp():
            values = [of(one) for one in node.values]
            return all(values) if isinstance(node.op, ast.And) else next((one for one in values if one), values[-1])
        case ast.Compare(ops=[only], comparators=[other]):
            return _COMPARED[type(only)](of(node.left), of(other))
        case ast.IfExp():
            return of(node.body if of(node.test) else node.orelse)
        case ast.JoinedStr():
            return "".join(_formatted(part, of) for part in node.values)
        case ast.Subscript():
            container, key = of(node.value), of(node.slice)
            return container.optioned(split=key) if isinstance(container, Data) else container[key]
        case ast.Attribute():
            return _attribute(node)
        case ast.Call():
            return _call(node, scope, call, of)
    return Unread("")


def _formatted(part: ast.expr, of: Callable[[ast.expr], object]) -> str:
    if isinstance(part, ast.FormattedValue):
        if part.format_spec is not None:
            raise ValueError("a format")
        return str(of(part.value))
    return str(of(part))


def _attribute(node: ast.Attribute) -> object:
    """torch.bfloat16 is the text bfloat16; other attributes are not known."""
    if isinstance(node.value, ast.Name) and node.value.id == "torch":
        return node.attr
    return Unread("")


def _call(node: ast.Call, scope: Scope, call: Call, of: Callable[[ast.expr], object]) -> object:
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    if last in _BF16:
        return True  # what a GPU of today answers
    if name in _BUILTINS and not node.keywords:
        return _BUILTINS[name](*(of(one) for one in node.args))
    if name in ("os.getenv", "os.environ.get"):
        return of(node.args[1]) if len(node.args) > 1 else Unread("")
    if name in ("os.path.join", "Path"):
        return "/".join(str(of(one)) for one in node.args)
    return call(node, scope)
