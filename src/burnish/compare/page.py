"""The leaderboard as one self-contained HTML file without scripts, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from burnish import __version__
from burnish.compare import phrasing
from burnish.compare.board import Board, Standing
from burnish.compare.budget import written
from burnish.report.charts import STYLE, Line, Row, interval_chart, line_chart, percent, points, short

PAGE_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--card:#f8f9fa;--line:#dee2e6;--accent:#0b7285;--good:#2b8a3e;--bad:#c92a2a}
@media (prefers-color-scheme:dark){:root{--paper:#16181b;--card:#1f2226;--line:#343a40;--accent:#3bc9db;\
--good:#69db7c;--bad:#ff8787}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--chart-ink);\
font:15px/1.55 system-ui,-apple-system,'Segoe UI',sans-serif}
main{max-width:980px;margin:0 auto;padding:40px 24px 80px}
h1{font-size:27px;margin:0 0 4px;letter-spacing:-.01em}h2{font-size:18px;margin:44px 0 10px}
.sub,.note{color:var(--chart-faint)}.note{font-size:13px;max-width:76ch}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:500;color:var(--chart-faint);border-bottom:1px solid var(--line);\
padding:6px 14px 6px 0;white-space:nowrap}
td{padding:7px 14px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:right}
td.name{font-weight:600}td.good{color:var(--good)}td.bad{color:var(--bad)}td.faint{color:var(--chart-faint)}
.care{background:var(--card);border-left:3px solid var(--chart-2);padding:10px 16px;margin:20px 0;\
border-radius:0 6px 6px 0}
.care p{margin:4px 0}code,pre{font:13px ui-monospace,SFMono-Regular,Menlo,monospace}
pre{background:var(--card);padding:12px 16px;border-radius:6px;overflow-x:auto;white-space:pre-wrap}
details{margin:8px 0}summary{cursor:pointer;color:var(--accent)}
svg.chart{display:block;margin:6px 0 2px}.drawn{overflow-x:auto}.drawn svg.chart{min-width:620px}
"""

HOW = """All runs are evaluated on the same held-out tasks. A 95% interval resamples seeds and tasks together and is
widened for the small number of seeds. A pair is distinguishable if its difference is significant in two permutation
tests: one permutes runs (could chance in training explain it?), the other swaps the two scores of a task (could the
choice of tasks explain it?). The larger p counts, and Holm's correction limits the probability of any false positive
among all pairs to 5%. docs/compare.md defines every number."""


def page(board: Board, command: str, extra: str = "", title: str = "") -> str:
    """The HTML file. `extra` is HTML to add under the table (a sweep's effects, an ablation's parts)."""
    title = title or f"{' · '.join(one.label for one in board.standings[:6])} on {board.task}"
    parts = [
        f"<h1>{escape(title)}</h1><p class=sub>{escape(phrasing.method_note(board))}</p>",
        _cautions(board),
        _table(board),
        _values(board),
        extra,
        _curves(board),
        _pairs(board),
        _passes(board),
        _seeds(board),
        _cost(board),
        _failures(board),
        f"<h2>How to read this</h2><p class=note>{escape(HOW)}</p>",
        f"<h2>How to reproduce it</h2><pre>{escape(command)}</pre><p class=note>Finished runs are kept: the same "
        f"command resumes, and more seeds add to these. burnish {__version__}</p>",
    ]
    return document(title, "\n".join(part for part in parts if part))


def document(title: str, body: str) -> str:
    """An HTML document with our style around a body."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{PAGE_STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]], right: Sequence[int] = ()) -> str:
    """An HTML table; a cell is (text, class), and the columns in `right` are right-aligned."""

    def cell(i: int, text: str, kind: str) -> str:
        kinds = " ".join(filter(None, [kind, "n" if i in right else ""]))
        return f'<td class="{kinds}">{escape(text)}</td>' if kinds else f"<td>{escape(text)}</td>"

    top = "".join(f"<th{' class=n' if i in right else ''}>{escape(head)}</th>" for i, head in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell(i, *content) for i, content in enumerate(row))}</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{top}</tr>{body}</table></div>"


def scrolling(chart: str) -> str:
    """A chart that scrolls instead of shrinking on a small screen, so that its labels stay readable."""
    return f"<div class=drawn>{chart}</div>"


def _cautions(board: Board) -> str:
    warnings = "".join(f"<p>{escape(sentence)}</p>" for sentence in phrasing.cautions(board))
    return f'<div class="care">{warnings}</div>' if warnings else ""


def _table(board: Board) -> str:
    rows = []
    for place, one in enumerate(board.standings, 1):
        verdict = phrasing.against(one, board)
        kind = "good" if verdict.startswith("be") else "bad" if verdict.startswith("worse") else "faint"
        rows.append(
            [
                (str(place), "faint"),
                (one.label, "name"),
                (phrasing.number(one.value.mean, board.percent), "name"),
                (phrasing.ranged(one.value, board.percent), ""),
                (phrasing.number(one.start, board.percent), "faint"),
                (verdict, kind),
            ]
        )
    heads = [
        "",
        "candidate",
        f"held-out {board.measure.removeprefix('held-out ')}",
        "95% interval",
        "before training",
        phrasing.against_whom(board),
    ]
    return "<h2>Leaderboard</h2>" + table(heads, rows, (2, 4))


def _values(board: Board) -> str:
    places = _colours(board)
    rows = []
    for one in board.standings:
        shown = phrasing.number(one.value.mean, board.percent)
        rows.append(Row(one.label, one.value.mean, one.value.low, one.value.high, shown, places[one.label]))
    start = sum(one.start for one in board.standings) / len(board.standings)
    note = "The dashed line is the score before training." if len(board.standings[0].curve) else ""
    chart = interval_chart(
        rows, x=board.measure, form=percent if board.percent else short, rule=start if note else None, width=860
    )
    return f"{scrolling(chart)}<p class=note>{note}</p>"


def _curves(board: Board) -> str:
    places, form = _colours(board), percent if board.percent else short
    lines = [
        Line(
            one.label,
            [(x, v.mean) for x, v in one.curve],
            [(x, v.low, v.high) for x, v in one.curve],
            places[one.label],
        )
        for one in board.standings[:12]
    ]
    if not any(line.points for line in lines):
        return ""
    chart = line_chart(
        lines,
        x=board.budget.unit,
        y=f"held-out {board.measure}",
        y_form=form,
        rule=board.threshold,
        width=860,
        height=360,
    )
    more = f" The first 12 of {len(board.standings)} are drawn." if len(board.standings) > 12 else ""
    level = ""
    if board.threshold is not None:
        threshold = phrasing.number(board.threshold, board.percent)
        level = f" The dashed line is the threshold of {threshold}, at which sample efficiency is measured."
    note = f"Bands are 95% intervals over seeds and tasks.{level}{more}"
    return f"<h2>Learning curves</h2>{scrolling(chart)}<p class=note>{note}</p>"


def _pairs(board: Board) -> str:
    if not board.pairs:
        return ""
    rows, drawn = [], []
    for pair in board.pairs:
        test, verdict, name = pair.test, phrasing.verdict(pair, board), f"{pair.a} - {pair.b}"
        rows.append(
            [
                (name, "name"),
                (phrasing.gap(test.difference, board.percent), ""),
                (f"{test.runs:.3g}", "faint"),
                (f"{test.tasks:.3g}", "faint"),
                (f"{pair.adjusted:.3g}", ""),
                (verdict, "good" if pair.distinct else "faint"),
            ]
        )
        d = test.difference
        drawn.append(Row(name, d.mean, d.low, d.high, "" if pair.distinct else verdict, 1, not pair.distinct))
    heads = ["pair", "difference [95%]", "p, runs", "p, tasks", "p, corrected", "verdict"]
    unit = "difference in points" if board.percent else "difference"
    chart = interval_chart(drawn, x=unit, form=points if board.percent else short, rule=0.0, width=860)
    return f"<h2>Pairs</h2>{scrolling(chart)}{table(heads, rows, (2, 3, 4))}"


def _passes(board: Board) -> str:
    places = _colours(board)
    lines = []
    for one in board.standings[:12]:
        if len(one.passes) > 1:
            means = [(k, v.mean) for k, v in one.passes.items()]
            band = [(k, v.low, v.high) for k, v in one.passes.items()]
            lines.append(Line(one.label, means, band, places[one.label]))
    if not lines:
        return ""
    chart = line_chart(lines, x="k", y="pass@k", y_form=percent, log_x=True, width=860, height=280)
    note = "The probability that at least one of k replies is correct, an unbiased estimate from the sampled replies."
    return f"<h2>pass@k</h2>{scrolling(chart)}<p class=note>{note}</p>"


def _seeds(board: Board) -> str:
    rows = []
    for one in board.standings:
        worst, best = (phrasing.number(value, board.percent) for value in (min(one.by_seed), max(one.by_seed)))
        each = ", ".join(phrasing.number(value, board.percent) for value in one.by_seed)
        deviation = (
            "-" if len(one.by_seed) < 2 else f"{100 * one.spread:.1f} points" if board.percent else f"{one.spread:.3f}"
        )
        rows.append([(one.label, "name"), (each, ""), (deviation, ""), (worst, ""), (best, "")])
    heads = ["candidate", "each seed", "standard deviation", "lowest", "highest"]
    return "<h2>Stability over seeds</h2>" + table(heads, rows, (2, 3, 4))


def _cost(board: Board) -> str:
    level = (
        f"{board.budget.unit} to {phrasing.number(board.threshold, board.percent)}"
        if board.threshold is not None
        else ""
    )
    heads = [
        "candidate",
        *([level] if level else []),
        "steps",
        "tokens sampled",
        "tokens trained on",
        "samples",
        "FLOPs",
        "seconds",
    ]
    rows = []
    for one in board.standings:
        cells = [(one.label, "name"), *([(phrasing.reach(one, board), "")] if level else [])]
        cells += [
            (written(one.cost(name)), "") for name in ("steps", "sampled", "trained", "samples", "flops", "seconds")
        ]
        rows.append(cells)
    note = "Means over seeds. Seconds are those of training steps on this machine, while other runs used it too."
    return f"<h2>Sample efficiency and cost</h2>{table(heads, rows, range(1, len(heads)))}<p class=note>{note}</p>"


def _failures(board: Board) -> str:
    rows = [[(row.label, "name"), (str(row.seed), ""), (row.reason, "")] for row in board.failures]
    return "<h2>Failed runs</h2>" + table(["candidate", "seed", "why"], rows) if rows else ""


def _colours(board: Board) -> dict[str, int]:
    """A colour for each candidate, the same in every chart."""

    def place(one: Standing) -> int:
        return board.standings.index(one) + 1

    return {one.label: place(one) for one in board.standings}
