"""The recipes in the box: box/NAME.yaml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from burnish import papers
from burnish.methods.table import METHODS, load_all
from burnish.recipes.recipe import Recipe, read_recipe

BOX = Path(__file__).parent / "box"


@dataclass(frozen=True)
class Boxed:
    """A recipe in the box, as a row of the tables of papers and recipes."""

    name: str
    recipe: Recipe

    @property
    def papers(self) -> tuple[papers.Paper, ...]:
        """The papers that it follows."""
        load_all()  # papers of the zoo stand in the files of their methods
        by_id = {one.id: one for entry in METHODS.values() for one in entry.papers}
        by_id |= {one.id: one for one in vars(papers).values() if isinstance(one, papers.Paper)}
        return tuple(by_id[paper] for paper in self.recipe.papers)

    @property
    def example(self) -> str:
        """A command that uses it."""
        return f"burnish recipe {self.name}"


@cache
def boxed() -> dict[str, Boxed]:
    """All recipes in the box, by name."""
    return {file.stem: Boxed(file.stem, read_recipe(file)) for file in sorted(BOX.glob("*.yaml"))}


def file_of(name: str) -> Path:
    """The file of a recipe: a path, or the name of one in the box."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if (BOX / f"{name}.yaml").is_file() and name.replace("-", "").replace("_", "").isalnum():
        return BOX / f"{name}.yaml"
    names = sorted(file.stem for file in BOX.glob("*.yaml"))
    near = difflib.get_close_matches(name, names, 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise ValueError(f"there is no recipe {name!r} in the box; {hint} A file ends in .yaml")
