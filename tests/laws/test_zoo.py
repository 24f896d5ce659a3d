"""The border between the library and the zoo: one file per paper, and stages that hold what several papers share."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest

import burnish
from burnish.commands.methods import DATA, data_of
from burnish.commands.methods import main as methods
from burnish.methods.index import INDEX
from burnish.methods.table import METHODS, find, load_all

SOURCE = Path(burnish.__file__).parent
STAGES = ("draw", "rollout", "score", "select", "credit", "learn")
load_all()


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in SOURCE.rglob("*.py")}


def exported() -> dict[str, dict[str, str]]:
    """Stage -> public name -> the module that has it."""
    found: dict[str, dict[str, str]] = {}
    for stage in STAGES:
        tree = ast.parse((SOURCE / stage / "__init__.py").read_text())
        lines = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        found[stage] = {alias.asname or alias.name: str(line.module) for line in lines for alias in line.names}
    return found


def users() -> dict[str, set[str]]:
    """Module -> the modules that use it, by an import or by a name of its stage (`credit.gae`)."""
    names, found = exported(), defaultdict(set)
    for module, file in MODULES.items():
        if module in {f"burnish.{stage}" for stage in STAGES}:
            continue
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    stage = names.get(node.module.removeprefix("burnish."), {})
                    found[inner if inner in MODULES else stage.get(alias.name, node.module)].add(module)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                found[names[node.value.id].get(node.attr, "")].add(module)
    return found


def test_the_index_is_where_methods_are_registered() -> None:
    actual = {name: inspect.unwrap(entry.build).__module__ for name, entry in METHODS.items() if name in INDEX}
    assert actual == INDEX
    registered = set()
    for folder in ("methods", "zoo"):
        for file in (SOURCE / folder).rglob("*.py"):
            for node in ast.parse(file.read_text()).body:
                marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
                if isinstance(node, ast.FunctionDef) and any(mark.startswith("register(") for mark in marks):
                    registered.add(node.name)
    assert registered == set(INDEX), registered ^ set(INDEX)


def test_a_file_of_the_zoo_imports_no_other() -> None:
    found = []
    for file in (SOURCE / "zoo").rglob("*.py"):
        for module in re.findall(r"^\s*(?:from|import) (burnish\.zoo[\w.]*)", file.read_text(), re.MULTILINE):
            if not module.startswith(module_of(file)):
                found.append(f"{file.name} imports {module}")
    assert not found, "\n".join(found)


def test_what_one_paper_alone_uses_stands_in_its_file() -> None:
    found = []
    for module, by in users().items():
        stage = module.split(".")[1] if "." in module else ""
        if stage in STAGES and module in MODULES and len(by) == 1 and next(iter(by)).startswith("burnish.zoo."):
            found.append(f"{module} is used by {next(iter(by))} alone; move it there")
    assert not found, "\n".join(found)


def users_of_names() -> dict[tuple[str, str], set[str]]:
    """(stage, exported name) -> the modules of src that use it, other than the one that has it."""
    homes = exported()
    by_home = {(home, name): (stage, name) for stage, names in homes.items() for name, home in names.items()}
    found: dict[tuple[str, str], set[str]] = {key: set() for key in by_home.values()}
    for module, file in MODULES.items():
        if module in {f"burnish.{stage}" for stage in STAGES}:
            continue
        tree, stages, modules = ast.parse(file.read_text()), {}, {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    package = node.module.removeprefix("burnish.")
                    key = by_home.get((node.module, alias.name), (package, alias.name))
                    if key in found and homes[key[0]][key[1]] != module:
                        found[key].add(module)
                    if node.module == "burnish" and alias.name in STAGES:
                        stages[alias.asname or alias.name] = alias.name
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                short = node.value.id
                key = (stages[short], node.attr) if short in stages else by_home.get((modules.get(short), node.attr))
                if key in found and homes[key[0]][key[1]] != module:
                    found[key].add(module)
    return found


def test_a_stage_exports_what_two_files_use() -> None:
    """What one method or paper alone uses is imported from its file; tests and documentation do not count."""
    found = users_of_names()
    alone = [f"{stage}.{name}: {sorted(by)}" for (stage, name), by in found.items() if len(by) < 2]
    assert not alone, "do not export these, or move them to the one that uses them:\n" + "\n".join(alone)
    assert len(found) <= 200, len(found)


def test_finding_a_method_imports_its_file_alone(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom burnish.methods.table import find\nfind('grpo')\n"
        "own = [name for name in sys.modules if name.startswith('burnish.')]\n"
        "assert not any(name.startswith('burnish.zoo') for name in own), own\n"
        "assert 'torch' not in sys.modules or len(own) < 60, len(own)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_methods_shows_the_library_and_finds_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    def lines(*words: str) -> list[str]:
        assert methods(list(words)) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]

    library = lines()
    assert library[:3] == ["grpo", "ppo", "rloo"] and set(library) == {n for n, e in METHODS.items() if e.library}
    assert set(lines("--all")) == set(METHODS)
    assert set(lines("preference")) == {name for name in library if METHODS[name].family == "preference"}
    assert "clip_cov" in lines("entropy") and "dpo" not in lines("entropy")
    assert lines("--data", "steps") == ["process_reward_model"]
    with pytest.raises(ValueError, match=r"has that word.*burnish methods --all"):
        methods(["qqqq"])
    with pytest.raises(ValueError, match="--data is 'rows'; it must be prompts, pairs"):
        methods(["--data", "rows"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dpo", "pairs"), ("sft", "demonstrations"), ("grpo", "prompts"), ("gigpo", "episodes"), ("ilql", "episodes")],
)
def test_the_data_of_a_method_is_what_its_parts_read(name: str, kind: str) -> None:
    assert data_of(find(name)) == kind and (kind == "prompts" or kind in DATA)
