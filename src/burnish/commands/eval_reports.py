"""What `burnish eval` prints of measures that judge no replies, and the tables of all measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from burnish.evals.better import written

if TYPE_CHECKING:
    from burnish.evals.evaluate import Evaluation, Interval
    from burnish.evals.measures import Likelihood, Preference
    from burnish.evals.token_shift import Shifts

CUT_MANY = 0.05  # a larger share of replies that are cut is worth a word about the limit
SHIFTED = 8  # words shown of those that the base would not have written


@dataclass(frozen=True)
class Report:
    """What an evaluation found: for JSON, and to print."""

    numbers: dict[str, Any]
    heading: str
    parts: tuple[Table | Text, ...]


def of_likelihood(found: Likelihood) -> Report:
    """The perplexity of demonstrations."""
    tokens, nll, perplexity = sum(found.tokens), found.per_token(), found.perplexity()
    numbers = {"measure": "likelihood", "tasks": len(found.nll), "tokens": tokens, "nll": plain(nll)}
    numbers["perplexity"] = plain(perplexity)
    table = table_of("", "mean", "95%")
    low, mean, high = (written("perplexity", one) for one in (perplexity.low, perplexity.mean, perplexity.high))
    table.add_row("perplexity", f"[bold]{mean}[/]", f"[dim]{low} to {high}[/]")
    table.add_row("NLL per token", f"[bold]{nll.mean:.4f}[/]", between(nll, "{:.4f}"))
    for label, name in ((True, "good"), (False, "bad")):
        if (own := found.labelled(label)) is not None:
            numbers[f"nll_{name}"] = plain(one := own.per_token())
            table.add_row(f"of {len(own.nll)} labelled {name}", f"[bold]{one.mean:.4f}[/]", between(one, "{:.4f}"))
    what = "labelled replies" if found.good else "demonstrations"
    return Report(numbers, f"{len(found.nll)} held-out {what}, {tokens:,} tokens", (table,))


def of_preference(found: Preference, of: str) -> Report:
    """How many pairs are in the right order, compared by `of`."""
    accuracy, margin, ties = found.accuracy(), found.margin(), found.ties()
    numbers: dict[str, object] = {"measure": "preference", "tasks": len(found.margins), "of": of}
    numbers |= {"accuracy": plain(accuracy), "ties": ties, "margin": plain(margin)}
    table = table_of("", "mean", "95%")
    table.add_row("pairs in the right order", f"[bold]{accuracy.mean:.1%}[/]", between(accuracy, "{:.1%}"))
    if found.per_token:
        normed = found.accuracy_per_token()
        numbers["accuracy_per_token"] = plain(normed)
        table.add_row("the same, per token", f"[bold]{normed.mean:.1%}[/]", between(normed, "{:.1%}"))
    table.add_row("ties, each half right", f"{ties:.1%}", "")
    table.add_row(f"margin of {of}", f"[bold]{margin.mean:.3f}[/]", between(margin, "{:.3f}"))
    return Report(numbers, f"{len(found.margins)} held-out pairs, compared by {of}", (table,))


def of_shifts(found: Shifts, base: str) -> Report:
    """How often the greedy token is the base's likeliest, its second or third, or none of them."""
    from burnish.evals.token_shift import KINDS

    tokens, whole = sum(map(len, found.ranks)), found.shares()
    numbers: dict[str, object] = {
        "measure": "shift",
        "base": base,
        "tasks": len(found.ranks),
        "tokens": tokens,
        **whole,
    }
    numbers |= {"positions": found.by_position(), "words": dict(found.shifted[:SHIFTED])}
    table = table_of("", *(f"{kind} tokens" for kind in KINDS))
    for name, shares in {"all": whole, **found.by_position()}.items():
        label = name if name == "all" else f"tokens {name}"
        table.add_row(label, *(f"[bold]{shares[kind]:.1%}[/]" for kind in KINDS))
    parts: list[Table | Text] = [table]
    if found.shifted:
        words = ", ".join(f"{word!r} {count}" for word, count in found.shifted[:SHIFTED])
        parts.append(Text(f"shifted most often: {words}"))
    heading = f"{len(found.ranks)} greedy replies, {tokens:,} tokens, by their ranks under {base}"
    return Report(numbers, heading, tuple(parts))


def cut_replies(greedy: Evaluation, several: Evaluation | None, longest: int) -> list[Text]:
    """How many replies ran into the limit, and what to do about it; nothing where none did."""
    shares = [("greedy", greedy.cut), *([("sampled", several.cut)] if several else [])]
    if not any(cut for _, cut in shares):
        return []
    told = ", ".join(f"{cut:.1%} of the {which} ones" for which, cut in shares)
    remedy = "; they have no end to judge: raise --max-new-tokens" if max(cut for _, cut in shares) > CUT_MANY else ""
    return [Text(f"replies cut at {longest} tokens: {told}{remedy}")]


def table_of(*columns: str) -> Table:
    """A table without lines; numbers are on the right."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "replies") else "right")
    return table


def plain(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def range_of(interval: Interval) -> str:
    return between(interval, "{:.1%}")


def between(interval: Interval, form: str) -> str:
    return f"[dim]{form.format(interval.low)} to {form.format(interval.high)}[/]"
