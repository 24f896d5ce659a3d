"""Which parts of a model learn (`--only`): its tower, the connector between tower and language model, or the latter;
of a model that draws what reads the caption, or the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import nn

from burnish.forward.denoise import denoising_of
from burnish.forward.module import bare, decoder
from burnish.forward.sight import sight_of

PARTS = ("connector", "language", "tower", "text", "picture")
DRAWING = ("text", "picture")  # of a model that draws
_CONNECTOR = re.compile(r"connector|projector|merger|mlp1|aligner|projection_weight")


def parts_of(only: str) -> tuple[str, ...]:
    """The parts that a text names, with commas between them."""
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    wrong = [name for name in names if name not in PARTS]
    if wrong or not names:
        raise ValueError(f"--only is {only!r}; it takes {', '.join(PARTS)}, several with commas")
    return names


def train_only(module: nn.Module, only: str) -> None:
    """Freeze the parameters of all other parts. With adapters, which are of the language half, those learn as well."""
    names = parts_of(only)
    draws = denoising_of(module) is not None
    if not draws and sight_of(module) is None:
        raise ValueError("--only is about models that see or draw, and this one reads text alone; leave it out")
    if strange := [name for name in names if (name in DRAWING) != draws]:
        raise ValueError(
            f"--only is {only!r}, but the model {'draws' if draws else 'sees'}, and has no part {strange[0]!r}; its "
            f"parts are {', '.join(DRAWING if draws else PARTS[:3])}"
        )
    if draws:
        for name, parameter in bare(module).named_parameters():
            if "lora_" not in name:
                part = "text" if name.startswith(("text_encoder.", "embed_tokens.")) else "picture"
                parameter.requires_grad_(parameter.requires_grad and part in names)
        return
    adapted = any(not p.requires_grad for p in decoder(module).parameters())
    for part, parameter in _by_part(module):
        if not (adapted and part == "language"):
            parameter.requires_grad_(part in names)


def _by_part(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter with its part. Heads belong to the language half."""
    inner = bare(module)
    language = {id(p) for p in decoder(module).parameters()}
    seen = {id(p) for p in inner.base_model.parameters()} - language
    for name, parameter in inner.named_parameters():
        if id(parameter) not in seen:
            yield "language", parameter
        else:
            yield "connector" if _CONNECTOR.search(name) else "tower", parameter
