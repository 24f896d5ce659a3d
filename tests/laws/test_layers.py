"""Layers: a package imports only packages below it, and no two packages import each other.

    util, papers <- core <- sandbox <- media, tool_calls <- forward <- engine <- models <- verifiers
         <- reward_functions, judges <- envs, serve <- tasks <- stages <- methods, store <- rewards
         <- compose <- zoo, config <- evals <- datagen, bench, migrate
         <- checkpoint <- run <- simulator <- distributed <- report <- export <- api
         <- recipes <- compare <- studies, commands <- cli
    kernels: above engine, reached by lookup alone

Imports inside functions count. Imports for the type checker alone (TYPE_CHECKING) may look up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from at_once import at_once

import burnish

SOURCE = Path(burnish.__file__).parent
CORE = {"core", "method"}  # burnish/method.py is what the file of a method imports
STAGES = {"draw", "rollout", "score", "select", "credit", "learn"}
LAYERS: list[set[str]] = [
    {"util"},
    {"papers"},
    {"core"},
    {"sandbox"},
    {"media"},
    {"tool_calls"},
    {"forward"},
    {"engine"},
    {"models"},
    {"kernels"},  # it implements protocols of forward, engine and models; nothing below the run imports it
    {"verifiers"},
    {"reward_functions"},
    {"judges"},
    {"envs"},
    {"serve"},
    {"tasks"},
    {"stages"},
    {"methods"},
    {"store"},
    {"rewards"},
    {"compose"},
    {"zoo"},
    {"config"},
    {"evals"},
    {"datagen"},
    {"bench"},
    {"migrate"},
    {"checkpoint"},
    {"run"},
    {"simulator"},
    {"distributed"},
    {"report"},
    {"export"},
    {"api"},
    {"recipes"},
    {"compare"},
    {"studies"},
    {"commands"},
    {"cli"},
    {"__main__"},
    {"__init__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# (importer, imported): why it may look up. Each is an import inside a function.
ALLOWED = {
    ("store/reader.py", "burnish.report.notebook"): "a Store shows itself in a notebook",
}


def layer_of(module: str) -> str:
    """The layer of a dotted module: its package, "core" for the files of the core, "stages" for the stages."""
    names = module.split(".")
    if len(names) == 1:
        return "burnish"
    first = names[1]
    return "core" if first in CORE else "stages" if first in STAGES else first


def imports(node: ast.AST) -> Iterator[str]:
    """Modules of burnish that run-time code imports, at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module and child.module.split(".")[0] == "burnish":
            if child.module == "burnish":
                yield from (f"burnish.{alias.name}" for alias in child.names)
            else:
                for alias in child.names:  # `from burnish.forward import outputs` imports a module
                    inner = SOURCE.joinpath(*child.module.split(".")[1:], f"{alias.name}.py")
                    yield f"{child.module}.{alias.name}" if inner.exists() else child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name.split(".")[0] == "burnish")
        else:
            yield from imports(child)


FILES = sorted(SOURCE.rglob("*.py"))


@at_once("file", FILES)
def test_a_file_imports_only_its_own_layer_and_those_below(file: Path) -> None:
    place = file.relative_to(SOURCE)
    mine = layer_of(".".join(("burnish", *place.with_suffix("").parts)))
    for module in imports(ast.parse(file.read_text())):
        theirs = layer_of(module)
        if mine == theirs or theirs in ("burnish", "__version__") or (str(place), module) in ALLOWED:
            continue
        assert theirs in LEVEL, f"{place} imports {module}, which belongs to no layer; add it to LAYERS"
        assert mine in LEVEL, f"{place} belongs to no layer; add its package to LAYERS"
        assert LEVEL[theirs] < LEVEL[mine], f"{place} ({mine}) imports {module} ({theirs}), which is not below it"
        assert theirs != "kernels", f"{place} imports {module}: kernels are reached by the lookup in forward alone"


def test_no_two_packages_import_each_other() -> None:
    """Also among the stages, which are one layer."""
    edges: dict[tuple[str, str], str] = {}
    for file in FILES:
        place = file.relative_to(SOURCE)
        mine = place.parts[0]
        for module in imports(ast.parse(file.read_text())):
            theirs = module.split(".")[1] if "." in module else ""
            if (SOURCE / theirs).is_dir() and theirs != mine and (str(place), module) not in ALLOWED:
                edges[mine, theirs] = f"{place} imports {module}"
    both = [f"{edges[a, b]}, {edges[b, a]}" for a, b in edges if a < b and (b, a) in edges]
    assert not both, "\n".join(both)


def test_the_diagram_shows_every_package_and_every_import() -> None:
    """The second diagram in docs/architecture.md: an arrow is an import, and each import is a path of arrows."""
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    diagram = page[page.index("flowchart TD") : page.index("```", page.index("flowchart TD"))]
    boxes = {name: set(label.split()) for name, label in re.findall(r'\b(\w+)\["([^"]+)"\]', diagram)}
    arrows = [(a, b) for a, b in re.findall(r'(\w+)(?:\["[^"]+"\])? --> (\w+)', diagram)]
    for name in {name for arrow in arrows for name in arrow}:
        boxes.setdefault(name, {name})
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {"core"}
    assert set().union(*boxes.values()) == packages, packages ^ set().union(*boxes.values())
    box = {package: name for name, inside in boxes.items() for package in inside}
    edges = package_edges(packages)
    wrong = [(a, b) for a, b in arrows if not any((x, y) in edges for x in boxes[a] for y in boxes[b])]
    assert arrows and not wrong, wrong
    below = {name: {name} for name in boxes}  # each box and what arrows lead to from it
    for _ in boxes:
        for a, b in arrows:
            below[a] |= below[b]
    hidden = [(a, b) for a, b in sorted(edges) if box[b] not in below[box[a]]]
    assert not hidden, hidden


def package_edges(packages: set[str]) -> set[tuple[str, str]]:
    """(importer, imported) of packages, but for what is allowed as an exception."""
    edges = set()
    for file in FILES:
        place = file.relative_to(SOURCE)
        mine = "core" if place.with_suffix("").parts[0] in CORE else place.parts[0]
        for module in imports(ast.parse(file.read_text())):
            theirs = "core" if layer_of(module) == "core" else "".join(module.split(".")[1:2])
            if mine != theirs and {mine, theirs} <= packages and (str(place), module) not in ALLOWED:
                edges.add((mine, theirs))
    return edges


def test_the_folders_are_those_of_the_page() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    block = page[page.index("    src/burnish/\n") : page.index("    tests/  ")]
    shown = set(re.findall(r"(\w+)/", block)) - {"src", "burnish"}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert shown == packages | {"core"}, shown ^ packages


def test_the_loop_imports_only_the_core() -> None:
    for path in [*sorted((SOURCE / "core").glob("*.py")), SOURCE / "method.py"]:
        name = path.stem
        found = {layer_of(module) for module in imports(ast.parse(path.read_text()))} - {"core", "util"}
        assert not found, f"{name}.py imports {', '.join(sorted(found))}"


def test_the_rule_notices_an_import_upwards() -> None:
    tree = ast.parse("def f():\n    from burnish.run.train import execute\n")
    assert list(imports(tree)) == ["burnish.run.train"] and LEVEL["run"] > LEVEL[layer_of("burnish.core.loop")]
