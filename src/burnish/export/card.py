"""The model card of an export: README.md with the front matter of the hub, written from the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from burnish.config.options import Options
from burnish.evals.better import SAMPLED, label, written
from burnish.export.found import Found
from burnish.export.licence import licence_of
from burnish.methods.table import find
from burnish.models.hub import name_of
from burnish.models.known_models import MODELS
from burnish.report.catalogue import readable
from burnish.report.charts import standalone
from burnish.report.markdown import cell, samples
from burnish.report.page import made_with
from burnish.report.summary import RunReport, config_text, run_report
from burnish.store.reader import open_store
from burnish.store.records import Evaluation

CURVES = "curves"  # the folder of the figures
MOST_CURVES = 4
ALWAYS = ("method", "task", "model", "steps", "seed")  # options that a card states, changed or not
BESIDE = ("out", "run_name", "tag", "device", "log", "resume")  # of the machine and the folder, not of the model


@dataclass(frozen=True)
class Card:
    """What a card says that no file does.

    title         its heading: the name on the hub, or that of the directory
    licence       of the model; by default that of the base model
    data_licence  of the data
    form          hf, merged, adapter or gguf
    """

    title: str
    licence: str = ""
    data_licence: str = ""
    form: str = "hf"


def write_card(model: Found, out: Path, card: Card) -> None:
    """Write README.md, and the figures that it shows."""
    report = None
    if model.run is not None:
        with readable(model.run), open_store(model.run) as store:
            report = run_report(store)
        (out / "run.yaml").write_text(config_text(report.config), encoding="utf-8")
    curves = _write_curves(report, out) if report else []
    text = "\n\n".join(filter(None, _parts(model, card, report, curves)))
    (out / "README.md").write_text(f"{_front_matter(model, card, report)}\n{text}\n", encoding="utf-8")


def _front_matter(model: Found, card: Card, report: RunReport | None) -> str:
    told: dict[str, object] = {}
    if licence := card.licence or licence_of(model.base):
        told["license"] = licence
    told["library_name"] = {"adapter": "peft", "gguf": "gguf"}.get(card.form, "transformers")
    told["pipeline_tag"] = "text-classification" if model.scores else "text-generation"
    base = str(report.config.get("model", "")) if report else ""
    if "/" in base and not os.path.exists(base):  # of the hub: a name that others can follow
        told["base_model"] = base.partition("@")[0]
        told["base_model_relation"] = "adapter" if card.form == "adapter" else "finetune"
    if report and (data := _hub_data(str(report.config.get("task", "")))):
        told["datasets"] = data
    told["tags"] = ["burnish", *([str(report.config["method"])] if report and "method" in report.config else [])]
    return f"---\n{yaml.safe_dump(told, sort_keys=False)}---\n"


def _hub_data(task: str) -> list[str]:
    """The datasets of the hub in a task: owner/name, without revision and options."""
    from burnish.tasks.data.spec import read_spec

    names = [spec.name.partition("@")[0].partition(":")[0] for spec in read_spec(task)]
    return [name for name in names if name.count("/") == 1 and "." not in name and not os.path.exists(name)]


def _parts(model: Found, card: Card, report: RunReport | None, curves: list[tuple[str, str, str]]) -> Iterator[str]:
    yield f"# {card.title}"
    if report is None:
        yield f"{_what(model, card)} No run of burnish wrote it, so this card has no training data and no results."
        yield _licences(model, card, None)
        return
    method, run = _method(report), report.run
    yield (
        f"{_what(model, card)} It is `{_base_name(report)}`, trained by {method} on `{run.task}` with "
        "[burnish](https://pypi.org/project/burnish/)."
    )
    yield f"**{report.headline}**" if report.headline else ""
    yield _evaluation(report)
    yield _how_to_use(card, model)
    yield "## Training"
    yield _options(report)
    yield "\n\n".join(f"![{title}]({CURVES}/{file})\n\n{what}" for title, file, what in curves)
    yield samples(report)
    yield "".join(f"> **{kind.replace('_', ' ')}**: {text}\n" for kind, text in report.worries.items())
    yield (
        "## How to reproduce it\n\n    burnish train run.yaml\n\n`run.yaml` beside this card has all options. "
        f"On a CPU the same versions give the same numbers, bit for bit. {made_with(report)}"
    )
    yield _licences(model, card, report)


def _what(model: Found, card: Card) -> str:
    kinds = {
        "adapter": "LoRA adapters for peft.",
        "gguf": "A language model as a GGUF file, for llama.cpp.",
        "merged": "A language model into whose weights LoRA adapters were added.",
    }
    return kinds.get(card.form, "A reward model." if model.scores else "A language model.")


def _base_name(report: RunReport) -> str:
    """The base model without the folders of the machine that trained it."""
    name = str(report.config.get("model", "?"))
    if name in MODELS or not os.path.isabs(name):
        return name
    return str(name_of(Path(name)) or Path(name).name)


def _method(report: RunReport) -> str:
    name = str(report.config.get("method", "?"))
    try:
        entry = find(name)
    except ValueError:  # a file of the user's own that is not here
        return f"`{name}`"
    paper = f" ([{entry.title}](https://arxiv.org/abs/{entry.arxiv}))" if entry.arxiv else ""
    return f"`{name}`{paper}"


def _evaluation(report: RunReport) -> str:
    """The held-out results with their intervals."""
    rows = []
    with readable(report.run.path), open_store(report.run.path) as store:
        evaluation = store.evaluation()
    for when in ("before", "after"):
        outcome = evaluation.get(when)
        if outcome:
            rows += [(f"{when} training", *row) for row in _estimates(outcome)]
    if not rows:
        return ""
    lines = [f"| {when} | {what} | {mean} | {band} |" for when, what, mean, band in rows]
    return "\n".join(["## Evaluation", "", "| | held-out measure | mean | 95% interval |", "|---|---|--:|---|", *lines])


def _estimates(outcome: Evaluation) -> Iterator[tuple[str, str, str]]:
    name = outcome["name"]
    values = [(label(name.removeprefix("held-out ")), name, outcome["value"])]
    if (greedy := outcome.get("greedy")) and "greedy" not in name:
        values.append(("accuracy, greedy", "accuracy", greedy))
    if (sampled := outcome.get("sampled")) and SAMPLED not in name:
        values.append((f"accuracy, sampled at temperature {sampled['temperature']:g}", "accuracy", sampled["accuracy"]))
    for shown, key, value in values:
        low, high = written(key, value["low"]), written(key, value["high"])
        yield shown, written(key, value["mean"]), f"{low} to {high}" if value["low"] != value["high"] else ""


def _how_to_use(card: Card, model: Found) -> str:
    if model.scores:
        return ""
    if card.form == "gguf":
        code = 'from llama_cpp import Llama\n\nllm = Llama("MODEL.gguf", n_ctx=0)\n' + (
            'print(llm.create_chat_completion([{"role": "user", "content": "..."}]))'
        )
    elif card.form == "adapter":
        code = "from peft import AutoPeftModelForCausalLM\n\n" + (
            f'model = AutoPeftModelForCausalLM.from_pretrained("{card.title}")'
        )
    else:
        code = f'from transformers import pipeline\n\nchat = pipeline("text-generation", "{card.title}")\n' + (
            'print(chat([{"role": "user", "content": "..."}])[0]["generated_text"][-1])'
        )
    return f"## Use\n\n```python\n{code}\n```"


def _options(report: RunReport) -> str:
    """The options that differ from their defaults, and those that every card states."""
    from burnish.config.options import method_fields

    defaults = {name: p.default for name, p in Options.__dataclass_fields__.items()}
    with suppress(ValueError):  # a file of the user's own that is not here
        defaults |= {name: p.default for name, p in method_fields(find(str(report.config.get("method")))).items()}
    rows = ["| option | value |", "|---|---|"]
    for name, value in report.config.items():
        if name in ALWAYS or (name not in BESIDE and value != defaults.get(name)):
            rows.append(f"| `{name}` | {cell(_base_name(report) if name == 'model' else str(value))} |")
    steps = f"{report.run.step} of {report.run.steps} steps were trained" if report.run.step < report.run.steps else ""
    return "\n".join(filter(None, [steps and f"{steps}.\n", *rows])) + "\n\nEvery other option has its default."


def _write_curves(report: RunReport, out: Path) -> list[tuple[str, str, str]]:
    """Write the first learning curves as SVG files; their titles, file names and definitions."""
    written_files = []
    for curve in [curve for curve in report.curves if curve.chapter == "Learning"][:MOST_CURVES]:
        file = f"{curve.name.replace('/', '-')}.svg"
        (out / CURVES).mkdir(exist_ok=True)
        (out / CURVES / file).write_text(standalone(curve.drawn()), encoding="utf-8")
        written_files.append((curve.name, file, curve.what))
    return written_files


def _licences(model: Found, card: Card, report: RunReport | None) -> str:
    base = licence_of(model.base)
    model_licence = card.licence or base
    lines = [
        f"- this model: {model_licence or 'not stated; its base model names none'}",
        f"- base model: {base or 'not stated in its files'}",
    ]
    if report is not None:
        stated = card.data_licence or "not stated"
        lines.append(f"- data (`{report.run.task}`): {stated}")
    return "\n".join(["## Licences", "", *lines])
