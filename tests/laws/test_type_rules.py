"""The types of the source: how often they say Any, where mypy is strict, and names that say nothing."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import burnish

SRC = Path(burnish.__file__).parent
ROOT = SRC.parent.parent
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINED = (ast.FunctionDef, ast.ClassDef)
ANY_PER_THOUSAND = 8  # only ever lowered
STILL_FOUND = {  # packages in which results may still be called `found`, rather than by what they are
    *("commands", "envs", "kernels", "rewards", "rollout", "score", "tasks", "zoo"),
}


def test_any_is_rare() -> None:
    """`Any` switches the type checker off: a dict of known fields is a TypedDict, what is only passed on an object."""
    texts = [file.read_text() for file in SRC.rglob("*.py")]
    share = 1000 * sum(len(re.findall(r"\bAny\b", text)) for text in texts) / sum(text.count("\n") for text in texts)
    assert share <= ANY_PER_THOUSAND, f"{share:.1f} Any per 1,000 lines; at most {ANY_PER_THOUSAND} are allowed"


def test_mypy_is_strict_but_for_the_kernels() -> None:
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert mypy["strict"] is True
    assert [one["module"] for one in mypy["overrides"] if one.get("warn_return_any") is False] == ["burnish.kernels.*"]


def test_a_fixed_set_of_texts_is_a_literal() -> None:
    """Option(choices=...) is for the names of a table, which a type cannot list; other sets are the type itself."""
    listed = re.compile(r"choices=\([^*()]*\)")
    texts = {file.relative_to(SRC): file.read_text() for file in SRC.rglob("*.py")}
    wrong = [f"{file}: {match[0]}" for file, text in texts.items() for match in listed.finditer(text)]
    assert not wrong, f"write Annotated[Literal[...], Option(...)] in {wrong}"


def test_variables_are_named_by_what_they_hold() -> None:
    assigned = re.compile(r"\bfound(?:: [^=\n]+)? (?::|\+|\|)?= .*|\bfor found in .*")
    named = [
        f"{file.relative_to(SRC)}: {match[0].strip()}"
        for file in SRC.rglob("*.py")
        if file.relative_to(SRC).parts[0] not in STILL_FOUND
        for match in assigned.finditer(file.read_text())
    ]
    assert not named, named


def hidden(tree: ast.Module) -> Iterator[str]:
    """Functions in which a comprehension's variable has the name of a global that the function reads elsewhere."""
    top = {alias.asname or alias.name for node in tree.body if isinstance(node, _IMPORTS) for alias in node.names}
    top |= {node.name for node in tree.body if isinstance(node, _DEFINED)}
    if not any(top & _variables(node) for node in ast.walk(tree) if isinstance(node, _COMPREHENSIONS)):
        return
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        loops = [node for node in ast.walk(function) if isinstance(node, _COMPREHENSIONS)]
        for name in top & {name for loop in loops for name in _variables(loop)}:
            inside = {id(one) for loop in loops if name in _variables(loop) for one in ast.walk(loop)}
            same = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
            rest = [node for node in same if id(node) not in inside]
            if rest and all(isinstance(node.ctx, ast.Load) for node in rest):
                yield f"{function.name}: {name}"


def _variables(loop: ast.ListComp | ast.SetComp | ast.DictComp) -> set[str]:
    targets = (node for one in loop.generators for node in ast.walk(one.target))
    return {node.id for node in targets if isinstance(node, ast.Name)}


def test_a_comprehension_hides_no_global_of_its_function() -> None:
    """Early releases of Python 3.12 then look for the global among the local names, and the run ends with an error."""
    text = "from a import label\ndef f(x):\n    return [label for label in x], [label(y) for y in x]\n"
    assert list(hidden(ast.parse(text))) == ["f: label"]
    assert not list(hidden(ast.parse(text.replace("label(y)", "y"))))
    trees = {file: ast.parse(file.read_text()) for file in SRC.rglob("*.py")}
    wrong = [f"{file.relative_to(SRC)}: {name}" for file, tree in trees.items() for name in hidden(tree)]
    assert not wrong, wrong
