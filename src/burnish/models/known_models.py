"""The models burnish knows by name, and the one place that turns a name or a path into a model directory."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from burnish.models import smollm2
from burnish.models.gguf import converted
from burnish.models.hub import fetch, hub_name
from burnish.models.packed_model import place_of, unpack
from burnish.models.sizes import check_config
from burnish.util.files import read_json
from burnish.util.paths import expanded

TINY = Path(__file__).parent / "tiny"
TINY_OMNI = Path(__file__).parent / "tiny_omni"
TINY_MASK = Path(__file__).parent / "tiny_mask"
TINY_FLOW = Path(__file__).parent / "tiny_flow"
_UNSAFE = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class KnownModel:
    """A model with a name of its own.

    place  where its directory is, or will be
    get    how to fetch it into a directory; None when it comes with burnish
    unpack how it is made when it is first used, of what comes with burnish
    """

    summary: str
    place: Callable[[], Path]
    get: Callable[[Path | None], Path] | None = None
    unpack: Callable[[], Path] | None = None


MODELS: dict[str, KnownModel] = {
    "tiny": KnownModel("a very small model that comes with burnish, for trials in seconds on a CPU", lambda: TINY),
    "tiny-omni": KnownModel(
        "the same with a tower: it sees small pictures, for trials on a CPU",
        lambda: place_of(TINY_OMNI),
        unpack=lambda: unpack(TINY_OMNI),
    ),
    "tiny-mask": KnownModel(
        "the same as a masked diffusion language model: it fills in hidden tokens",
        lambda: place_of(TINY_MASK),
        unpack=lambda: unpack(TINY_MASK),
    ),
    "tiny-flow": KnownModel(
        "a very small model that draws figures of 16 x 16 pixels",
        lambda: place_of(TINY_FLOW),
        unpack=lambda: unpack(TINY_FLOW),
    ),
    "smollm2": KnownModel("SmolLM2-135M-Instruct, fetched once (93 MB, 540 MB on disk)", smollm2.place, smollm2.get),
}


def resolve(name_or_path: str, *, loads: bool = True) -> Path:
    """The directory of a known model, of a local Hugging Face model with safetensors weights, or of one of the hub.

    loads: False where nothing is loaded, so that a local directory may hold config.json alone
    """
    listed = MODELS.get(name_or_path)
    if listed is not None:
        return _known(name_or_path, listed)
    path = expanded(name_or_path)
    if path.is_dir():
        return path if not loads and described_only(path) else _checked(path)
    if path.is_file() and path.suffix == ".gguf":
        return _checked(converted(path))
    if path.exists():
        raise ValueError(f"model {name_or_path!r} is a file; pass the directory that holds config.json and the weights")
    on_hub = hub_name(name_or_path)
    if on_hub is not None:
        return _checked(fetch(on_hub))
    close = difflib.get_close_matches(name_or_path, MODELS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else f"the known names are {', '.join(MODELS)}"
    raise ValueError(
        f"no model {name_or_path!r}: it is neither a known name nor a local directory nor a name of the Hugging Face "
        f"hub (owner/name); {hint}"
    )


def described_only(path: Path) -> bool:
    """Whether a directory says what a model is (config.json) and holds no weights."""
    if not (path / "config.json").is_file() or any(
        file.suffix in (*_UNSAFE, ".safetensors") for file in path.iterdir()
    ):
        return False
    check_config(path)
    return True


def is_adapter(path: Path) -> bool:
    """Whether a directory holds LoRA adapters instead of a whole model."""
    return (path / "adapter_config.json").is_file() and not (path / "config.json").is_file()


def adapted_model(path: Path) -> Path:
    """The directory of the whole model that a directory's adapters belong to; of a whole model, its own."""
    if not is_adapter(path):
        return path
    told = read_json(path / "adapter_config.json")
    if told is None:
        raise ValueError(f"{path / 'adapter_config.json'} is not a JSON object; copy it from the adapters again")
    base = told.get("base_model_name_or_path") or ""
    if told.get("revision") and hub_name(base) is not None:
        base = f"{base}@{told['revision']}"
    if not base or (not expanded(base).is_dir() and base not in MODELS and hub_name(base) is None):
        raise ValueError(
            f"model directory {path} holds LoRA adapters of {base!r}, which is not here; bring it back, or correct "
            "base_model_name_or_path in adapter_config.json"
        )
    return resolve(base)


def _known(name: str, model: KnownModel) -> Path:
    path = model.place() if model.unpack is None else model.unpack()
    if (path / "config.json").is_file():
        return _checked(path)
    if model.get is None:
        raise ValueError(f"model {name!r} should come with burnish but is not in {path}; install burnish again")
    raise ValueError(f"model {name!r} has not been fetched yet; run `burnish models get {name}`")


def _checked(path: Path) -> Path:
    """The directory, if it is one that can be loaded: a config, and weights in a format that runs no code."""
    for name in sorted(os.listdir(path)):
        if not os.path.isfile(path / name) and not os.path.isdir(path / name):  # a FIFO would be waited for for ever
            raise ValueError(f"model directory {path} holds {name}, which is not a file that can be read; remove it")
    if is_adapter(path):
        adapted_model(path)
        if not (path / "adapter_model.safetensors").is_file():
            pickled = (
                " (adapter_model.bin is pickled, which burnish does not read)" * (path / "adapter_model.bin").exists()
            )
            raise ValueError(
                f"model directory {path} has an adapter_config.json and no adapter_model.safetensors{pickled}; pass a "
                "directory that peft's save_pretrained wrote"
            )
        return path
    if (packed := sorted(path.glob("*.gguf"))) and not any(path.glob("*.safetensors")):
        raise ValueError(f"model directory {path} has only GGUF weights; pass the file: --model {packed[0]}")
    if not (path / "config.json").is_file():
        raise ValueError(f"model directory {path} has no config.json; pass a directory written by save_pretrained")
    if any(path.glob("*.safetensors")):
        check_config(path)
        return path
    unsafe = sorted(file.name for file in path.iterdir() if file.suffix in _UNSAFE)
    if unsafe:
        raise ValueError(
            f"model directory {path} has only pickled weights ({unsafe[0]}), and burnish loads safetensors only; "
            "convert them once with model.save_pretrained(directory) in transformers"
        )
    raise ValueError(
        f"model directory {path} has no *.safetensors weights; pass a directory written by save_pretrained"
    )
