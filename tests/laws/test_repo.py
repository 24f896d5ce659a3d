"""The rules of the house, as tests: sizes, docstrings, the table of methods, where imports stand, what text may say."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from at_once import at_once

import burnish
from burnish.cli import main
from burnish.config.options import method_fields
from burnish.methods.table import METHODS, load_all

SRC = Path(burnish.__file__).parent
ROOT = SRC.parent.parent
FILES = sorted(SRC.rglob("*.py"))
OPTIONAL = {
    "peft",
    "ray",
    "datasets",
    "pyarrow",
    "reasoning_gym",
    "math_verify",
    "gguf",
    "llama_cpp",
    "lm_eval",
    "tensorboard",
    "wandb",
    "trackio",
    "mlflow",
    "gymnasium",
    "textarena",
    "verifiers",
    "mcp",
    "websockets",
    "openai",
    "playwright",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef

FILE_LINES, FUNCTION_LINES, METHOD_LINES = 400, 60, 40


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def code_lines(node: Function) -> int:
    """The lines of a function's body without its docstring, comments and blank lines."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len({line for statement in body for line in _lines(statement)})


def _lines(statement: ast.stmt) -> Iterator[int]:
    """The lines on which something stands, whatever stands between them."""
    for node in ast.walk(statement):
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is not None:
            yield first
            yield last


def where(file: Path, node: ast.AST) -> str:
    return f"{file.relative_to(ROOT)}:{node.lineno} {getattr(node, 'name', '')}"  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------------------- sizes


def test_files_are_short() -> None:
    long = [
        f"{file.relative_to(ROOT)} has {n} lines"
        for file in FILES
        if (n := len(file.read_text().splitlines())) > (FILE_LINES if "zoo" not in file.parts else FILE_LINES + 40)
    ]  # a paper is one file, as long as that can be read; above it is a folder
    assert not long, "\n".join(long)


@pytest.mark.parametrize(("mark", "most"), [("fmt: skip", 40), ("type: ignore", 30)])
def test_exceptions_from_the_tools_are_few(mark: str, most: int) -> None:
    """Kernels have long lists of arguments, and some libraries wrong types."""
    found = [f"{file.relative_to(ROOT)}: {n}" for file in FILES if (n := file.read_text().count(f"# {mark}"))]
    assert sum(int(one.rpartition(" ")[2]) for one in found) <= most, "\n".join(found)


def test_functions_are_short() -> None:
    long = [
        f"{where(file, node)} has {code_lines(node)} lines of code"
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, Function) and code_lines(node) > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_code_lines_are_counted_without_docstring_comments_and_blanks() -> None:
    code = (
        'def f(x):\n    """One.\n\n    Two.\n    """\n    # a comment\n    y = (\n        x,\n    )\n\n    return y\n'
    )
    assert code_lines(ast.parse(code).body[0]) == 4  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- docstrings


def undocumented(file: Path) -> Iterator[str]:
    """Modules, and public functions and classes at their top, that say nothing of themselves.

    An empty __init__ needs nothing. Methods of a class speak with its docstring; commands' `main` with their module's.
    """
    module = tree(file)
    if module.body and ast.get_docstring(module) is None:
        yield f"{file.relative_to(ROOT)} has no docstring"
    for node in module.body:
        public = isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
        if public and ast.get_docstring(node) is None and not _speaks_for_itself(node):  # type: ignore[arg-type]
            yield f"{where(file, node)} has no docstring"


def _speaks_for_itself(node: Function | ast.ClassDef) -> bool:
    """A function of one or two statements, whose name and types say it; or a command's `main`."""
    return isinstance(node, Function) and (node.name == "main" or len(node.body) <= 2)


def test_everything_public_has_a_docstring() -> None:
    found = [line for file in FILES for line in undocumented(file)]
    assert not found, "\n".join(found)


# ------------------------------------------------------------------------------------------------------------- methods


def method_source(name: str) -> Function:
    """The registered function itself."""
    text = inspect.getsource(inspect.unwrap(METHODS[name].build))
    node = ast.parse(inspect.cleandoc("\n" + text)).body[0]
    assert isinstance(node, Function)
    return node


@at_once("name", sorted(METHODS))
def test_a_method_is_short(name: str) -> None:
    assert code_lines(method_source(name)) <= METHOD_LINES


@at_once("name", sorted(METHODS))
def test_a_method_says_what_it_is(name: str) -> None:
    entry = METHODS[name]
    assert entry.family and entry.summary and entry.title
    assert entry.summary.endswith(".") and "\n" not in entry.summary
    assert entry.catalogue and all(re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", one) for one in entry.catalogue)
    assert not entry.arxiv or re.fullmatch(r"\d{4}\.\d{4,5}", entry.arxiv)
    assert "docs" not in entry.example and entry.example.startswith("burnish ")


@at_once("name", sorted(METHODS))
def test_a_methods_docstring_holds_its_formula_and_its_options(name: str) -> None:
    text = inspect.getdoc(inspect.unwrap(METHODS[name].build)) or ""
    assert "=" in text, "the docstring has no formula"
    assert len(text.splitlines()) >= 3
    untyped = [p.name for p in inspect.signature(METHODS[name].build).parameters.values() if p.annotation is p.empty]
    assert not untyped, f"options without a type: {untyped}"


def test_the_command_line_lists_every_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == set(METHODS)
    assert all({"name", "family", "catalogue", "title", "arxiv", "summary"} <= row.keys() for row in rows)


# ------------------------------------------------------------------------------------------------------------- imports


def test_optional_packages_are_imported_where_they_are_used() -> None:
    found = [
        where(file, node)
        for file in FILES
        for node in _outside_functions(tree(file))
        if isinstance(node, ast.Import | ast.ImportFrom) and _roots(node) & OPTIONAL
    ]
    assert not found, "\n".join(found)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.Lambda) and not _for_types_alone(child):
            yield child
            yield from _outside_functions(child)


def _for_types_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _roots(node: ast.Import | ast.ImportFrom) -> set[str]:
    named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.split(".")[0] for name in named}


# ---------------------------------------------------------------------------------------------------------------- text

ELSEWHERE = (
    "/work" + "/",
    "/root" + "/",
    "sub" + "agent",
    "as an " + "AI",
)  # places and voices that are not the project's


def tracked() -> list[Path]:
    """The text files of the repository, as git knows them."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except OSError:
        pytest.skip("git is not installed")
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def foreign(word: str, text: str) -> bool:
    """Whether a text has the word. A folder of another place begins with its slash: envs/work is ours."""
    before = r"(?<!\w)" if word.startswith("/") else ""
    return re.search(before + re.escape(word), text, re.IGNORECASE) is not None


def test_the_project_speaks_of_itself_alone() -> None:
    found = []
    for file in tracked():
        if file.is_file() and file.suffix not in (".safetensors", ".png", ".gif", ".ico"):
            try:
                text = file.read_text()
            except UnicodeDecodeError:
                continue
            found += [f"{file.relative_to(ROOT)}: {word!r}" for word in ELSEWHERE if foreign(word, text)]
    assert not found, "\n".join(found)


# ------------------------------------------------------------------------------------------------------- method pages


def test_every_method_has_its_page() -> None:
    """What, when, formula, composition, flags, command, paper and, where it was measured, its curve
    (write_method_docs.py).
    """
    load_all()
    pages, measured = (
        ROOT / "docs" / "methods",
        json.loads((ROOT / "benchmarks" / "curves.json").read_text())["methods"],
    )
    for name, entry in METHODS.items():
        assert entry.when, f"{name} does not say when to use it: register(when=...)"
        page = (pages / f"{name}.md").read_text()
        wanted = [entry.summary, entry.when, entry.title, entry.example, "## The formula", "## The composition"]
        wanted += ["## Its own flags"] if method_fields(entry) else []
        wanted += [f"({name}.svg)"] if name in measured else []
        for words in wanted:
            assert words in page, f"docs/methods/{name}.md lacks {words!r}; run scripts/write_method_docs.py"
        for flag in method_fields(entry):
            assert f"`--{flag.replace('_', '-')}`" in page, f"docs/methods/{name}.md lacks --{flag}"


def test_tests_import_each_other_as_pytest_finds_them() -> None:
    """`from tests.x import` works under `python -m pytest` in the root alone: `pytest` puts the folders on the path."""
    wrong = re.compile(r"^\s*(from|import) tests\b", re.MULTILINE)
    found = [str(file) for file in sorted((ROOT / "tests").rglob("*.py")) if wrong.search(file.read_text())]
    assert not found, f"{found}: import the module by its own name, as `from conftest import ...`"


def test_a_test_that_hangs_is_a_failure(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Every test has a time limit, and what passes it ends with an error, even where it does not return to Python."""
    assert 0 < float(pytestconfig.getini("timeout")) <= 300
    (tmp_path / "test_hang.py").write_text(
        "import ctypes\n\n\ndef test_hang():\n    ctypes.CDLL(None).sleep(60)\n"
    )  # ctypes lets go of the interpreter's lock; a signal would wait for the call
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=1",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "Timeout" in done.stdout + done.stderr
