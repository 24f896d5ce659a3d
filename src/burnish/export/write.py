"""Write an export into a directory that appears whole or not at all."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from burnish.export.card import Card, write_card
from burnish.export.directory import write_adapter, write_as_trained, write_merged
from burnish.export.found import Found
from burnish.export.gguf_model import write_gguf
from burnish.export.licence import licence_of
from burnish.models.precision import AUTO
from burnish.util.files import whole_directory

FORMS = ("hf", "merged", "adapter", "gguf")


@dataclass(frozen=True)
class Export:
    """What to write: the form, the number format of whole weights, the format of a GGUF file, and the card."""

    form: str
    card: Card
    dtype: str = AUTO
    quantize: str = "stored"

    def file_name(self, out: Path) -> str:
        """The name of the GGUF file in a directory."""
        stem = self.card.title.rpartition("/")[2] or out.name
        return f"{stem}.gguf" if self.quantize == "stored" else f"{stem}-{self.quantize}.gguf"


def write_export(model: Found, out: Path, export: Export) -> Path:
    """Write the export into `out`, with its model card; return `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_directory(out) as aside:
        if export.form == "hf":
            write_as_trained(model, aside, export.dtype)
        elif export.form == "merged":
            write_merged(model, aside, export.dtype)
        elif export.form == "adapter":
            write_adapter(model, aside)
        else:
            _write_gguf(model, aside, export)
        write_card(model, aside, export.card)
    return out


def _write_gguf(model: Found, out: Path, export: Export) -> None:
    if model.scores:
        raise ValueError("a reward model has no head of language, which a GGUF file needs; use --to hf or merged")
    licence, file = export.card.licence or licence_of(model.base), out / export.file_name(out)
    if not model.adapter:
        return write_gguf(model.path, file, export.quantize, licence=licence, name=export.card.title)
    with tempfile.TemporaryDirectory(prefix="burnish-merged-", dir=out.parent) as folder:
        write_merged(model, Path(folder))
        write_gguf(Path(folder), file, export.quantize, licence=licence, name=export.card.title)
    return None
