"""Calls that stand alone as all of a reply: JSON or Python (Llama 3 and 4)."""

from __future__ import annotations

import ast
import math
import re
import warnings

from burnish.tool_calls.call import ReadReply, ToolCall, alone, call_of, calls_of_json, json_prefix

PYTHON_TAG = "<|python_tag|>"
PYTHON = ("<|python_start|>", "<|python_end|>")
LONGEST, DEEPEST = 20_000, 64  # characters of calls that are parsed as Python, and brackets in each other
_BUILTIN = re.compile(r"\s*([A-Za-z_]\w*)\.call\((.*)\)\s*", re.DOTALL)


def read_llama_json(text: str) -> ReadReply:
    """{"name": ..., "parameters": {...}}, several with ; between them; after <|python_tag|> also a builtin tool,
    brave_search.call(query="..."), or code for code_interpreter (Llama 3.1 and later)
    """
    before, mark, rest = text.partition(PYTHON_TAG)
    if mark:
        return ReadReply(before.strip(), tuple(_tagged(rest.strip())))
    return read_bare(text, after_text=True)


def read_bare(text: str, after_text: bool = False) -> ReadReply:
    """A reply that is nothing but calls as JSON. after_text: text may stand before them."""
    start = text.find('{"name"') if after_text else 0
    bare = text[max(start, 0) :].strip()
    if not bare.startswith("{") or not bare.endswith("}"):
        return ReadReply(text)
    calls: list[ToolCall] = []
    rest = bare
    while rest:
        try:
            value, rest = json_prefix(rest)
        except ValueError:
            return ReadReply(text, (ToolCall("", {}, "the call is not valid JSON"),)) if calls else ReadReply(text)
        if not alone(value):
            return ReadReply(text)
        calls.append(call_of(value))
        rest = rest.strip().removeprefix(";").strip()
    return ReadReply(text[: max(start, 0)].strip(), tuple(calls))


def read_pythonic(text: str) -> ReadReply:
    """[get_weather(city="Paris", days=3), get_time()], perhaps between <|python_start|> and <|python_end|> (Llama 3.2
    and 4)
    """
    inner = text.replace(PYTHON[0], "").replace(PYTHON[1], "").strip()
    if not (inner.startswith("[") and inner.endswith("]")) or len(inner) > LONGEST or _depth(inner) > DEEPEST:
        return ReadReply(text)
    tree = _parsed(inner)
    if not isinstance(tree, ast.List) or not tree.elts or not all(isinstance(one, ast.Call) for one in tree.elts):
        return ReadReply(text)
    return ReadReply("", tuple(_call(one) for one in tree.elts if isinstance(one, ast.Call)))


def _tagged(rest: str) -> list[ToolCall]:
    if rest.startswith("{"):
        return list(read_bare(rest).calls) or calls_of_json(rest)
    if _BUILTIN.fullmatch(rest) and len(rest) <= LONGEST and _depth(rest) <= DEEPEST:
        tree = _parsed(rest)
        if isinstance(tree, ast.Call):
            return [_call(tree)]
    return [ToolCall("code_interpreter", {"code": rest})]


def _parsed(text: str) -> ast.expr | None:
    """The expression that a text is; None where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unknown escapes in strings
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _depth(text: str) -> int:
    """The most opening brackets and prefix operators that are not closed: what a parser would go down into."""
    depth = most = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        most = max(most, depth)
    return max(most, max(map(len, re.findall(r"(?:[-+~]\s*|not\s+)+", text)), default=0))


def _call(tree: ast.Call) -> ToolCall:
    name = ast.unparse(tree.func).removesuffix(".call") if isinstance(tree.func, ast.Name | ast.Attribute) else ""
    if not re.fullmatch(r"[\w.]{1,200}", name):
        return ToolCall("", {}, "a call is name(argument=value)")
    if tree.args or any(keyword.arg is None for keyword in tree.keywords):
        return ToolCall(name, {}, f"the arguments of {name} have no names; write {name}(argument=value)")
    arguments = {}
    for keyword in tree.keywords:
        try:
            arguments[str(keyword.arg)] = _value(keyword.value)
        except (ValueError, RecursionError):
            return ToolCall(name, {}, f"the argument {keyword.arg} of {name} is no value that JSON has")
    return ToolCall(name, arguments)


def _value(tree: ast.expr) -> object:
    """The value of a literal that JSON has too; raises ValueError."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str | int | float | bool | None):
        if isinstance(tree.value, float) and not math.isfinite(tree.value):
            raise ValueError(tree.value)
        return tree.value
    if isinstance(tree, ast.Name) and tree.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[tree.id]
    if isinstance(tree, ast.List | ast.Tuple):
        return [_value(one) for one in tree.elts]
    if isinstance(tree, ast.Dict) and None not in tree.keys:
        keys = [_value(key) for key in tree.keys if key is not None]
        return {str(key): _value(value) for key, value in zip(keys, tree.values, strict=True)}
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
        value = _value(tree.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value if isinstance(tree.op, ast.USub) else value
    raise ValueError(type(tree).__name__)
