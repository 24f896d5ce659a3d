"""`burnish export RUN|MODEL`: the trained model for transformers, peft or llama.cpp, with its model card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.export.found import Found
    from burnish.export.write import Export

QUANTIZE = ("stored", "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m")


@dataclass(frozen=True)
class ExportOptions:
    """burnish export RUN|MODEL --to FORM: a directory with the model, its licence and a model card.

    RUN is a path, a name below runs/, the beginning of one, or `last`; MODEL a name (burnish models), a directory such
    as runs/DIR/model, or a model of the hub."""

    to: Literal["hf", "merged", "adapter", "gguf"] = "hf"
    """hf: as it was trained, for transformers or peft; merged: LoRA adapters added into the weights; adapter: the
    adapters alone; gguf: one file for llama.cpp."""
    out: str | None = None
    """The directory to write; by default export/NAME-FORM."""
    quantize: Annotated[str, Option(choices=QUANTIZE)] = "stored"
    """The format of the weights in a GGUF file; stored rounds nothing. q6_k, q5_k_m, q4_k_m need llama-cpp-python."""
    dtype: Literal["auto", "bfloat16", "float16", "float32", "bf16", "fp16", "fp32"] = "auto"
    """The format of whole weights for transformers; auto keeps that of the model."""
    checkpoint: str = "last"
    """Of a run: last, best, or the number of a saved step."""
    licence: str | None = None
    """The licence of the model, for the card; by default that of the base model: apache-2.0."""
    data_licence: str | None = None
    """The licence of the data, for the card."""


def main(words: list[str]) -> int:
    asked = read(ExportOptions, "export", words, plain=1)
    if asked is None:
        return 0
    if not asked[0]:
        raise ValueError("say what to export: burnish export last --to gguf, or burnish export runs/DIR/model")
    from burnish.export.found import find_model
    from burnish.export.write import write_export

    options = asked[1]
    model = find_model(asked[0][0], options.checkpoint)
    out = Path(options.out) if options.out else Path("export") / f"{name_of(model, asked[0][0])}-{options.to}"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists already; remove it, or choose another --out")
    write_export(model, out, export_of(options, name_of(model, asked[0][0])))
    console = stdout_console()
    for file in sorted(path for path in out.rglob("*") if path.is_file()):
        console.print(f"{file}  [dim]{file.stat().st_size / 1e6:,.2f} MB[/]", soft_wrap=True, highlight=False)
    return 0


def name_of(model: Found, asked: str) -> str:
    """The name of an export: that of the run, or of the model."""
    return model.run.name if model.run is not None else asked.rstrip("/").rpartition("/")[2].partition("@")[0]


def export_of(options: ExportOptions, title: str) -> Export:
    """What the options of a command ask for."""
    from burnish.export.card import Card
    from burnish.export.write import Export

    if options.quantize != "stored" and options.to != "gguf":
        raise ValueError(f"--quantize {options.quantize} is a format of GGUF files; add --to gguf, or use --dtype")
    if options.dtype != "auto" and options.to in ("gguf", "adapter"):
        raise ValueError(f"--dtype is for whole weights of transformers; with --to {options.to}, leave it out")
    card = Card(title, options.licence or "", options.data_licence or "", options.to)
    return Export(options.to, card, options.dtype, options.quantize)
