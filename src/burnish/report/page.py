"""The report of one run as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from burnish.report.catalogue import duration
from burnish.report.charts import COLOURS
from burnish.report.charts import STYLE as CHARTS
from burnish.report.summary import RunReport, Sample, config_text, when
from burnish.store.records import EventRow, TraceRow

STYLE = """
:root{--bg:#faf8f5;--card:#fff;--ink:#23201c;--dim:#7a736a;--line:#e6e0d8;--good:#2e8b57;--bad:#c2362c;\
--warn:#8a5a10;--warnbg:#fff6e0}
@media (prefers-color-scheme:dark){:root{--bg:#17150f;--card:#211e18;--ink:#ece6dc;--dim:#9d9488;--line:#37322a;\
--good:#5cc48a;--bad:#f0736a;--warn:#e5b454;--warnbg:#362c17}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:940px;margin:0 auto;padding:40px 24px 80px}
h1{font-size:28px;letter-spacing:-.02em;margin:0}h2{font-size:18px;margin:38px 0 12px}.dim{color:var(--dim)}
.head{font-size:19px;font-weight:600;margin:14px 0}
.worry{background:var(--warnbg);border-left:4px solid var(--warn);border-radius:8px;padding:9px 14px;margin:8px 0}
.worry b{color:var(--warn)}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(390px,100%),1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:12px;padding:8px 10px}
figure svg,.card svg{width:100%;height:auto}
figcaption{font-size:12.5px;color:var(--dim);padding:0 6px 4px}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 18px;\
overflow-x:auto}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:7px 14px 7px 0;border-top:1px solid var(--line)}
th{border:none;color:var(--dim);font-weight:500}
.say{white-space:pre-wrap;font:12.5px/1.5 ui-monospace,monospace;overflow-wrap:anywhere}
.right{color:var(--good)}.wrong{color:var(--bad)}
pre{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 18px;overflow-x:auto;\
font:13px/1.5 ui-monospace,monospace}
.stages{display:flex;height:22px;border-radius:6px;overflow:hidden}
@media print{body{background:#fff}figure,.card{break-inside:avoid}}
"""


def html(report: RunReport) -> str:
    """The report as an HTML page."""
    run = report.run
    title = f"{run.method} on {run.task}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(run.path.name)} · {escape(run.model)} · seed {run.seed} · {escape(run.state)} after '
        f"{run.step} of {run.steps} steps · started {when(run.created)}</p>",
        f'<p class="head">{escape(report.headline)}</p>',
        *(
            f'<div class="worry"><b>{escape(kind.replace("_", " "))}</b>: {escape(text)}</div>'
            for kind, text in report.worries.items()
        ),
        curves(report),
        _time(report),
        samples(report.samples),
        *(_traces(title, traces) for title, traces in report.traces.items()),
        _events(report.events),
        _reproduction(report),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{CHARTS}{STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{"".join(body)}</main></body></html>\n'


def curves(report: RunReport, chapters: tuple[str, ...] = ("Learning", "Health", "Everything else")) -> str:
    """The charts, by chapter."""
    sections = []
    for chapter in chapters:
        drawn = [
            f"<figure>{curve.drawn()}<figcaption>{escape(curve.what)}</figcaption></figure>"
            for curve in report.curves
            if curve.chapter == chapter
        ]
        if drawn:
            sections.append(f'<h2>{chapter}</h2><div class="grid">{"".join(drawn)}</div>')
    return "".join(sections)


def samples(answers: list[Sample]) -> str:
    """Table of held-out answers before and after training."""
    if not answers:
        return ""
    rows = [
        f'<tr><td class="say">{escape(answer.prompt)}</td>'
        f"{_reply(answer.before, answer.before_right)}{_reply(answer.after, answer.after_right)}</tr>"
        for answer in answers
    ]
    head = "<tr><th>prompt</th><th>before</th><th>after</th></tr>"
    return f'<h2>Held-out answers</h2><div class="card"><table>{head}{"".join(rows)}</table></div>'


def _reply(text: str | None, right: bool) -> str:
    if text is None:
        return "<td></td>"
    mark, kind = ("✓", "right") if right else ("✗", "wrong")
    return f'<td class="say {kind}">{mark} {escape(text)}</td>'


def _time(report: RunReport) -> str:
    if not report.time:
        return ""
    pace = report.seconds / max(1, report.run.step)
    return (
        '<h2>Where the time goes</h2><div class="card">'
        f'<p class="dim">{duration(report.seconds)} in {report.run.step} steps, {pace:.2f} s each</p>'
        f"{_bar(report)}</div>"
    )


def _bar(report: RunReport) -> str:
    """Time of each stage as a segment of one bar, with a legend."""
    parts, legend = [], []
    for i, (name, seconds) in enumerate(report.time):
        colour, share = f"var(--chart-{i % COLOURS + 1})", seconds / report.seconds
        parts.append(f'<span style="width:{share:.2%};background:{colour}"></span>')
        legend.append(f'<b style="color:{colour}">■</b> {escape(name)} {share:.1%}')
    return f'<div class="stages">{"".join(parts)}</div><p>{" &#160; ".join(legend)}</p>'


def _traces(title: str, traces: Sequence[TraceRow]) -> str:
    if not traces:
        return ""
    rows = []
    for trace in traces:
        scores = ", ".join(f"{name} {value:.3g}" for name, value in trace["scores"].items() if value is not None)
        scores += f"; dropped by {trace['dropped']}" if trace["dropped"] else ""
        rows.append(
            f'<tr><td class="say">{escape(trace["prompt"])}</td><td class="say">{escape(trace["text"])}</td>'
            f'<td class="dim">{escape(scores)}</td></tr>'
        )
    return f'<h2>{escape(title)}</h2><div class="card"><table>{"".join(rows)}</table></div>'


def _events(events: Sequence[EventRow]) -> str:
    if not events:
        return ""
    rows = []
    for event in events[-40:]:
        step = "" if event["step"] is None else f"step {event['step']}"
        kind = ' class="wrong"' if event["level"] == "error" else ""
        rows.append(
            f"<tr><td class='dim'>{step}</td><td>{escape(event['kind'])}</td>"
            f"<td{kind}>{escape(event['text'])}</td></tr>"
        )
    return f'<h2>Events</h2><div class="card"><table>{"".join(rows)}</table></div>'


def _reproduction(report: RunReport) -> str:
    return (
        "<h2>How to reproduce it</h2>"
        "<p>Save this as <code>run.yaml</code>, then <code>burnish train run.yaml</code>. "
        "On a CPU the same versions give the same numbers, bit for bit.</p>"
        f"<pre>{escape(config_text(report.config))}</pre>"
        f'<p class="dim">{escape(made_with(report))}</p>'
    )


def made_with(report: RunReport) -> str:
    """Versions, machine and commit in one sentence."""
    facts_of = report.environment
    names = ("burnish", "torch", "transformers", "python")
    facts = ", ".join(f"{name} {facts_of[name]}" for name in names if facts_of.get(name))
    facts += f"; {facts_of.get('platform', '')}, {facts_of.get('cores', '?')} cores"
    facts += f", {facts_of['gpu']}" if facts_of.get("gpu") else ""
    if report.git:
        changed = f" with {len(report.git['changed'])} files changed" if report.git["changed"] else ""
        facts += f"; commit {report.git['commit'][:12]}{changed}"
    return f"Made with {facts}."
