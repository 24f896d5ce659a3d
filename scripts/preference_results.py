"""What benchmarks/results/preference_methods.json says: tables, sentences and curves, with intervals and tests.

    python scripts/preference_results.py       writes docs/preference-methods.md

Methods of given pairs are compared with `dpo`, methods that sample with `online_dpo`: on the same problems, with the
same seeds, by the permutation tests of `burnish compare`. Of many comparisons some are significant by chance: the
p-values are corrected to a false discovery rate (Benjamini and Hochberg, 1995), as five seeds can give no p below
2/252, which no correction for any false finding leaves below 5%.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from burnish.compare.statistics import Matrix, Test, interval, paired_test
from burnish.evals.evaluate import Interval
from burnish.methods.table import load_all

ROOT = Path(__file__).parent.parent
RAW = ROOT / "benchmarks" / "results" / "preference_methods.json"
PAGE = ROOT / "docs" / "preference-methods.md"
BASES = {"pairs": "dpo", "task": "online_dpo"}
RATE = 0.05  # of false discoveries
MEASURE = "accuracy of sampled replies"
LESSONS = (
    "- Losses that make preferred replies likelier come first on given pairs: `slic`, `orpo` and `cpo` by a likelihood "
    "term, `apo_zero` and `kto` by losses of each reply by itself. Preferred replies are right here, so imitating them "
    "is what the task wants.",
    "- Many relatives of `dpo` are not told apart from it when each has its own learning rate. Their ideas answer to "
    "data that this task does not have: wrong labels, lengths, several annotators.",
    "- Most chosen settings lie at an edge of the grid (learning rate 1e-5, five times the strength): the gentlest "
    "setting was best, and a wider grid may lift these methods.",
)
Found = dict[str, Any]


@cache
def stored() -> Found:
    """The raw file."""
    return dict(json.loads(RAW.read_text()))


def rows_of(found: Found, name: str) -> list[dict[str, Any]]:
    """The runs of a tuned method, by seed."""
    mine = [row for row in found["rows"] if (row["method"], row["stage"]) == (name, "seeded")]
    return sorted(mine, key=lambda row: int(row["seed"]))


def names_of(found: Found) -> list[str]:
    """The methods that were run, the best first."""
    names = {row["method"] for row in found["rows"] if row["stage"] == "seeded"}
    return sorted(names, key=lambda name: (-estimate(found, name).mean, name))


def scores(found: Found, name: str) -> Matrix:
    """x[s, t]: the share of right replies of the run with seed s to problem t."""
    return np.array([row["right"] for row in rows_of(found, name)])


def estimate(found: Found, name: str) -> Interval:
    return interval(scores(found, name))


def base_of(found: Found, name: str) -> str:
    """What a method is compared with."""
    return BASES[rows_of(found, name)[0]["data"]]


def discovered(p_values: Mapping[str, float], rate: float = RATE) -> set[str]:
    """The names with p_(k) <= k rate / m for the largest such k of the m sorted values: Benjamini and Hochberg."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    kept = [k for k, name in enumerate(ordered, start=1) if p_values[name] <= k * rate / len(ordered)]
    return set(ordered[: max(kept, default=0)])


def tests(found: Found) -> dict[str, Test]:
    """Every method against its base."""
    others = [name for name in names_of(found) if name not in BASES.values()]
    return {name: paired_test(scores(found, name), scores(found, base_of(found, name))) for name in others}


@cache
def different() -> set[str]:
    """The methods that differ from their base at a false discovery rate of 5%."""
    return discovered({name: test.p for name, test in tests(stored()).items()})


def curve(found: Found, name: str) -> Found:
    """The runs of a method in the form of benchmarks/curves.json."""
    runs = [{"seed": row["seed"], "heldout": row["curve"], "reward": []} for row in rows_of(found, name)]
    return {"task": found["task"], "steps": found["steps"], "measure": MEASURE, "runs": runs}


def settings(found: Found, name: str) -> str:
    """The learning rate and the strength that the tuning chose: `--lr 3e-05 --beta 0.5`."""
    row = rows_of(found, name)[0]
    words = [f"--lr {row['rate']:g}"]
    if row["factor"] != 1:
        words.append(f"--{strength_of(name).replace('_', '-')} {row['strength']:g}")
    return " ".join(words)


def strength_of(name: str) -> str:
    from preference_methods import strength

    return strength(name) or ""


def told(found: Found, name: str) -> str:
    """What was measured of a method, in words."""
    one, base = estimate(found, name), base_of(found, name)
    seeds = len(rows_of(found, name))
    before = float(rows_of(found, name)[0]["curve"][0][1])
    words = (
        f"`tiny`, task `{found['task']}`, {found['steps']} steps of {found['prompts']} at `{settings(found, name)}`, "
        f"tuned on other seeds and problems; {seeds} seeds: {MEASURE} {before:.1%} -> {one.mean:.1%} "
        f"[{one.low:.1%}, {one.high:.1%}]"
    )
    if name != base:
        by = paired_test(scores(found, name), scores(found, base)).difference
        sure = "a difference" if name in different() else "no clear difference"
        words += (
            f"; `{base}`, tuned in the same way, {estimate(found, base).mean:.1%}: {sure} of "
            f"{100 * by.mean:+.1f} points [{100 * by.low:+.1f}, {100 * by.high:+.1f}]"
        )
    raw = "[raw numbers](../../benchmarks/results/preference_methods.json)"
    return f"{words}. How they were made: [preference methods compared](../preference-methods.md), {raw}."


def table(found: Found, data: str) -> list[str]:
    """The methods of one kind of data, the best first, as a Markdown table."""
    compared = tests(found)
    lines = ["| method | right replies | against the base | settings |", "|---|---|---|---|"]
    for name in names_of(found):
        if base_of(found, name) != BASES[data]:
            continue
        one = estimate(found, name)
        cells = [f"[{name}](methods/{name}.md)", f"{one.mean:.1%} [{one.low:.1%}, {one.high:.1%}]"]
        if name in compared:
            by = compared[name].difference
            star = " \\*" if name in different() else ""
            cells.append(f"{100 * by.mean:+.1f} [{100 * by.low:+.1f}, {100 * by.high:+.1f}]{star}")
        else:
            cells.append("the base")
        lines.append(f"| {' | '.join([*cells, f'`{settings(found, name)}`'])} |")
    return lines


def counted(found: Found, names: Sequence[str]) -> str:
    """How many of some methods are better and worse than their base."""
    compared = tests(found)
    sure = [compared[name].difference.mean for name in names if name in different()]
    better = sum(mean > 0 for mean in sure)
    return f"{better} are better, {len(sure) - better} worse, and of {len(names) - len(sure)} the data do not say"


def page(found: Found) -> str:
    """docs/preference-methods.md."""
    compared = tests(found)
    kinds = {data: [name for name in compared if base_of(found, name) == base] for data, base in BASES.items()}
    stopped = sorted({row["method"] for row in found["rows"] if row["stage"] == "seeded" and "stopped" in row})
    start = float(rows_of(found, "dpo")[0]["curve"][0][1])
    seeds = len(rows_of(found, "dpo"))
    text = [
        "# Preference methods compared",
        f"All {len(compared) + len(BASES)} preference methods on one small task, each at a learning rate and a "
        "strength of its own. It shows that they differ here and in which direction; on another task and model the "
        "order may be another.",
        "    python scripts/preference_methods.py --workers 16",
        f"`tiny` learns to sort ({start:.1%} of its sampled replies are right before). Methods of given pairs learn "
        f"from the same {found['train']} pairs, the best and the worst of 8 replies of `tiny` to a prompt; methods "
        f"that sample get prompts and the verifier. A run has {found['steps']} steps of {found['prompts']} pairs or "
        "prompts. A method's learning rate (1e-5, 3e-5, 1e-4, 3e-4) and then its strength (the default, a fifth and "
        "five times of it) were chosen by two development seeds on 100 development problems. Then it ran with "
        f"{seeds} other seeds and was measured on 100 other problems, two replies to each at temperature 1.",
        "Intervals are 95% intervals over seeds and problems. \\* marks a difference at a false discovery rate of 5% "
        "(Benjamini and Hochberg), by the [tests of `burnish compare`](compare.md#what-is-measured). Raw: "
        "`benchmarks/results/preference_methods.json`; this page is written by `scripts/preference_results.py`.",
        "## On given pairs",
        f"Against `dpo`: {counted(found, kinds['pairs'])}.",
        "\n".join(table(found, "pairs")),
        "## On replies that the method samples",
        f"Against `online_dpo`: {counted(found, kinds['task'])}.",
        "\n".join(table(found, "task")),
        "## What to make of it",
        *LESSONS,
    ]
    if stopped:
        text.append(f"Runs that ended before their last step are measured where they ended: {', '.join(stopped)}.")
    return "\n\n".join(map(wrapped, text)) + "\n"


def wrapped(paragraph: str) -> str:
    """A paragraph in lines of at most 120 columns; tables and commands as they are."""
    if paragraph.startswith(("|", "    ", "#")):
        return paragraph
    own = "  " if paragraph.startswith("- ") else ""
    return textwrap.fill(paragraph, 120, subsequent_indent=own, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    load_all()
    PAGE.write_text(page(stored()))


if __name__ == "__main__":
    main()
