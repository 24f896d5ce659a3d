"""The source of a script's reward functions, with the imports, constants and functions that they use."""

from __future__ import annotations

import ast

_TRAINING = {"unsloth", "trl", "peft", "transformers", "datasets", "torch", "vllm", "accelerate", "bitsandbytes"}
_LOADS = ("from_pretrained", "load_dataset", "get_peft_model", "Trainer", "Config", "input", "open")


def sources_of(tree: ast.Module, wanted: list[str]) -> tuple[dict[str, str], list[str]]:
    """The functions by name, each with its source ("" holds what they share), and the names that they lack.

    Statements that load models or data are left out: their names are lacking.
    """
    places: dict[str, ast.stmt] = {}
    for node in _statements(tree.body):
        for name in _defines(node):
            places[name] = node
    order: list[ast.stmt] = []
    lacking: list[str] = []
    seen: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in places:
            continue
        seen.add(name)
        node = places[name]
        if _loads(node):
            lacking.append(name)
            continue
        if node not in order:
            order.append(node)
        waiting += [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
    order.sort(key=lambda node: (not isinstance(node, ast.Import | ast.ImportFrom), node.lineno))
    shared = [ast.unparse(node) for node in order if not _is_wanted(node, wanted)]
    own = {node.name: ast.unparse(node) for node in order if isinstance(node, ast.FunctionDef) and node.name in wanted}
    return {"": "\n\n".join(shared), **own}, sorted(lacking)


def file_text(sources: dict[str, str], path: str) -> str:
    """The file with the reward functions."""
    parts = [f'"""Reward functions of {path}, carried over by burnish import."""', sources.get("", "")]
    parts += [source for name, source in sources.items() if name]
    return "\n\n\n".join(part for part in parts if part) + "\n"


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of the module, those inside `if` and `try` too."""
    statements_below: list[ast.stmt] = []
    for node in body:
        statements_below.append(node)
        for inner in ("body", "orelse") if isinstance(node, ast.If | ast.Try | ast.With) else ():
            statements_below += _statements(getattr(node, inner, []))
    return statements_below


def _defines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        case ast.Assign():
            return [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _is_wanted(node: ast.stmt, wanted: list[str]) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in wanted


def _loads(node: ast.stmt) -> bool:
    """Whether a statement needs the training libraries, or does more than to define something."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        return any(name.partition(".")[0] in _TRAINING - {"torch"} for name in names)
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        calls = [ast.unparse(one.func) for one in ast.walk(node.value) if isinstance(one, ast.Call)]
        return any(call.endswith(_LOADS) for call in calls)
    return False
