"""The hand-written documentation: line length, links, files, commands, and the words of CONTRIBUTING's rules.

Pages that a script generates as a whole (docs/methods) are not checked here.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / f"{name}.md" for name in ("README", "AGENTS", "CONTRIBUTING", "CHANGELOG", "benchmarks/results/README")]
    + [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "dev").glob("*.md"), ROOT / "docs" / "tutorials" / "README.md"]
)
WIDTH = 120

# Private words and phrases, each with the field's word. They are searched in prose only, not in code.
BANNED = {
    r"numbers? that (is|are) none": "NaN, Inf or non-finite",
    r"store of keys and values": "KV cache",
    r"recordings|recorded (and replayed|pass|passes)": "CUDA graph",
    r"matrix products?|(our|the|library's) products": "matmul",
    r"looks? at (its|the|their) (own )?(keys|prompt)": "attend to",
    r"go(es)? on with|begins? (again|anew)": "resume, retry or restart",
    r"weights that compute|working copy": "compute copy",
    r"stagehands?|crews?|desk": "worker, supervisor or work queue",
    r"beside (TRL|vLLM|transformers|its peers|others)": "compared with; baseline",
    r"(is|are|was|were|be) told": "given or passed",
    r"nobody|somebody|whoever": "a named subject",
    r"rooms|(a|each|every|its|this|one) room": "stage",
    r"(a|the|each|every|one|several) walks?|walks? through": "pass or step",
    r"the cast|members? of the cast": "models",
    r"nouns": "types",
}
_BANNED = {re.compile(rf"\b(?:{pattern})\b", re.I): instead for pattern, instead in BANNED.items()}
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"^\s*(?:[A-Z_]+=\S+ )*burnish ([a-z]+)\b")
_INLINE = re.compile(r"`([^`\n]*)`")
_FILE = re.compile(
    r"(?<![\w./-])(?:tests|scripts|examples|benchmarks|docs|src)/(?:[\w.-]+/)*[a-z0-9_-]+\.(?:py|md|json|yaml|svg)\b"
)  # not FAMILY.py, which stands for a name


def lines_of(text: str) -> Iterator[tuple[int, str, bool]]:
    """Number, text and whether it is code, of every line. Code is fenced, or indented by four after a blank line."""
    fenced = indented = False
    blank = True
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        indented = not fenced and line.startswith("    ") and (blank or indented)
        yield number, line, fenced or fence or indented
        fenced ^= fence
        blank = not line.strip()


def prose(text: str) -> str:
    """The text without code blocks, inline code and link targets, in one line, so that phrases may be wrapped."""
    joined = " ".join(line.strip() for _, line, code in lines_of(text) if not code)
    return _LINK.sub("]", _INLINE.sub("`", joined))


def long_lines(text: str) -> list[str]:
    """Lines that are too long; table rows and lines with a web address may be."""
    return [
        f"line {number}: {len(line)} columns"
        for number, line, _ in lines_of(text)
        if len(line) > WIDTH and not line.startswith("|") and "://" not in line
    ]


def joined_tables(text: str) -> list[str]:
    """Tables whose rows were wrapped as if they were prose."""
    return [
        f"line {number}: a table in one line" for number, line, code in lines_of(text) if not code and "| |-" in line
    ]


def run_together(text: str) -> list[str]:
    """Blocks without a blank line between them: what follows a table becomes its row, code becomes its paragraph."""
    found, before = [], ""
    for number, line, code in lines_of(text):
        if not code and before.startswith("|") and line.strip() and not line.startswith(("|", "<!--")):
            found.append(f"line {number}: no blank line after a table")
        if not code and line.startswith("    ") and re.match(r"\w(?!\.)|[`*|]", before):
            found.append(f"line {number}: no blank line before code")
        before = "" if code else line
    return found


def headings(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found = [line.lstrip("#").strip() for _, line, code in lines_of(text) if not code and line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links whose file or heading does not exist."""
    found = []
    for _, line, code in lines_of(text):
        for target in [] if code else _LINK.findall(_INLINE.sub("`", line)):
            name, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            file = (page.parent / name) if name else page
            if not file.exists():
                found.append(f"{target}: there is no such file")
            elif anchor and anchor not in headings(text if file == page else file.read_text()):
                found.append(f"{target}: the page has no such heading")
    return found


def missing_files(text: str) -> list[str]:
    """Files of the repository that a page names and that do not exist: tests, scripts, results."""
    return [f"{name}: there is no such file" for name in _FILE.findall(text) if not (ROOT / name).is_file()]


def private_words(text: str) -> list[str]:
    """Banned words and phrases of a page, with what to write instead."""
    said = prose(text)
    return [f"{match[0]!r}: write {instead}" for word, instead in _BANNED.items() for match in word.finditer(said)]


def commands(text: str) -> list[str]:
    """The burnish subcommands that code blocks and inline code name."""
    blocks = [match[1] for _, line, code in lines_of(text) if code and (match := _COMMAND.match(line))]
    inline = [span for _, line, code in lines_of(text) if not code for span in _INLINE.findall(line)]
    return blocks + [match[1] for span in inline if (match := _COMMAND.match(span))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_narrow_linked_and_plain(page: Path) -> None:
    text = page.read_text()
    problems = long_lines(text) + joined_tables(text) + run_together(text)
    problems += broken_links(page, text) + private_words(text)
    problems += missing_files(text) if page.name != "CHANGELOG.md" else []  # which names files that are gone
    problems += [f"there is no command 'burnish {name}'" for name in commands(text) if name not in COMMANDS]
    assert not problems, "\n".join(problems)


def spoken(file: Path) -> Iterator[str]:
    """The docstrings and comments of a source file, without what stands in backquotes."""
    text = file.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield _INLINE.sub("", ast.get_docstring(node) or "")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield _INLINE.sub("", token.string)


def test_docstrings_and_comments_use_the_words_of_the_field() -> None:
    """Games have rooms, and one walks through them."""
    files = [file for file in (ROOT / "src").rglob("*.py") if "games" not in file.parts]
    found = [
        f"{file.relative_to(ROOT)}: {match[0]!r}: write {instead}"
        for file in files
        if any(word.search(file.read_text()) for word in _BANNED)  # to split a file into tokens takes longer
        for said in spoken(file)
        for word, instead in _BANNED.items()
        for match in word.finditer(said)
    ]
    assert len(files) > 500 and not found, "\n".join(found)


def test_the_page_of_commands_shows_every_command() -> None:
    left_out = {"sweep", "ablate", "eval-reward"}  # the last has a hyphen, which the search for commands does not read
    assert set(commands((ROOT / "docs" / "commands.md").read_text())) >= set(COMMANDS) - left_out


def test_the_home_page_and_the_nav_have_every_page() -> None:
    """Pages of docs/methods are reached from their table."""
    linked = set(_LINK.findall((ROOT / "docs" / "index.md").read_text())) | {"index.md"}
    nav = set(re.findall(r"([\w/-]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages <= linked and pages <= nav, (pages - linked, pages - nav)
    assert {f"tutorials/{page.name}" for page in (ROOT / "docs" / "tutorials").iterdir()} <= nav
    beside = {"changes.md", "contributing.md"}  # pages that scripts/site_hook.py makes
    gone = [name for name in nav - beside if not (ROOT / "docs" / name).is_file()]
    assert not gone, gone


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_checks_find_what_they_look_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = f"""# A page

{"long " * 30}
| {"a table row may be long " * 10} |
https://example.org/{"address" * 20}
[here](page.md#a-page) [gone](gone.md) [no heading](page.md#b) [web](https://example.org)
Nobody is told; each room has numbers that
are none. `nobody` and a headroom are fine.

    burnish train grpo      nobody minds words in code
    PYTHONPATH=src burnish fly
    python -m burnish jump
    python scripts/gone.py tests/laws/test_docs.py my/tests/own.py tests/FILE.py

`burnish sing`, `burnish --help`
"""
    page.write_text(text)
    assert long_lines(text) == ["line 3: 150 columns"]
    assert run_together(text) == ["line 5: no blank line after a table"]
    assert run_together("| a |\n\ntext\n    code\n\n- a list\n    goes on\n") == ["line 4: no blank line before code"]
    assert [problem.split(":")[0] for problem in broken_links(page, text)] == ["gone.md", "page.md#b"]
    assert [problem.split(":")[0].lower() for problem in private_words(text)] == [
        "'numbers that are none'",
        "'is told'",
        "'nobody'",
        "'each room'",
    ]
    assert commands(text) == ["train", "fly", "sing"]
    assert missing_files(text) == ["scripts/gone.py: there is no such file"]
