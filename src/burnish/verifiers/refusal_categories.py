"""Why replies refuse: categories in two branches (arXiv 2412.16974), and how the labels of a row are read.

The paper has 16 categories; their names here are reconstructed from its abstract and summaries of it. Classifiers can
be trained with other names.
"""

from __future__ import annotations

from dataclasses import dataclass

CANNOT = (
    "input_modality",
    "output_modality",
    "skill",
    "missing_context",
    "missing_identity",
    "knowledge_cutoff",
    "unknown",
    "invalid_premise",
    "no_access",
)
SHOULD_NOT = (
    "chain_of_command",
    "legal",
    "information_hazard",
    "privacy",
    "intellectual_property",
    "nsfw",
    "misinformation",
)
BRANCHES = ("cannot", "should_not")


@dataclass(frozen=True)
class Categories:
    """The categories of both branches, in the order of a classifier's outputs: first those of `cannot`."""

    cannot: tuple[str, ...] = CANNOT
    should_not: tuple[str, ...] = SHOULD_NOT

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.cannot, *self.should_not)

    def places(self, branch: str) -> slice:
        """Where the categories of a branch stand among the outputs."""
        split = len(self.cannot)
        return {"cannot": slice(0, split), "should_not": slice(split, None), "any": slice(None)}[branch]

    def labels(self, value: object, where: str) -> list[float]:
        """1 for each category in a list (or a text with commas), 0 for the others; an empty list is no refusal."""
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list | tuple):
            raise ValueError(f"{where} has the categories {str(value)[:60]!r}; they must be a list of names")
        stated = {str(name).strip() for name in names} - {""}
        if unknown := sorted(stated - set(self.names)):
            raise ValueError(
                f"{where} has the category {unknown[0]!r}, which is not among {', '.join(self.names)}; name the "
                "categories with --cannot and --should-not"
            )
        return [float(name in stated) for name in self.names]


def categories_of(cannot: str, should_not: str) -> Categories:
    """The categories that two texts with commas name; raises ValueError where a branch has none or a name is twice."""
    both = [tuple(name.strip() for name in text.split(",") if name.strip()) for text in (cannot, should_not)]
    names = [name for branch in both for name in branch]
    if not all(both) or len(set(names)) < len(names):
        raise ValueError(
            "each branch needs categories, and a category belongs to one branch; write --cannot a,b --should-not c"
        )
    return Categories(*both)
