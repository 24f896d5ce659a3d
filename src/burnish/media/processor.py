"""The one processor of a model that sees: a picture becomes tokens and the tower's inputs here, and nowhere else.

transformers' own processor of the model directory does both, called for one picture at a time: what a picture becomes
never depends on the pictures beside it. It runs on Pillow and numpy; torchvision is not needed. Sampler and trainer
read the ids and inputs that come out, and no text is ever expanded again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Sequence
from functools import cached_property, partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.media.decode import BadPicture, decoded, require_pillow
from burnish.media.ids import ids_of
from burnish.media.store import STORE, ChangedPicture, Ready, Store, digest, key_for
from burnish.util.files import read_json

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "chat_template.json",
)
OF_TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
TINY = 1e-30  # makes a tile of zeros a picture, and changes no product
MARKER = "<image>"  # what stands for a picture in the text of a row


def sees(path: Path) -> bool:
    """Whether the model in a directory reads pictures: its configuration has a tower, and there is a processor."""
    told = read_json(path / "config.json") or {}
    tower = any(isinstance(told.get(name), dict) for name in ("vision_config", "vision_tower_config"))
    return tower and any((path / name).is_file() for name in FILES[:2])


class PictureReader:
    """The processor of a model directory.

    placeholder, marker  the token that the chat template writes where a picture stands, and its id
    soft                 the id that the processor writes for each of the tower's vectors
    files                the processor's files, which are saved beside a model that was trained
    """

    def __init__(self, path: Path, store: Store = STORE) -> None:
        self.path, self.store = path, store
        self.files = {name: (path / name).read_bytes() for name in FILES if (path / name).is_file()}
        told = read_json(path / "config.json") or {}
        soft = next((told[name] for name in ("image_token_id", "image_token_index") if name in told), None)
        if not isinstance(soft, int):
            raise ValueError(f"the config.json in {path} does not say image_token_id, by which its pictures are placed")
        self.soft = soft

    @cached_property
    def processor(self) -> Any:
        """transformers' processor of the directory, with its image processor on Pillow."""
        require_pillow()
        import transformers
        from transformers import AutoImageProcessor, AutoTokenizer

        usual: Any = importlib.import_module("transformers.models.auto.processing_auto")
        told = [read_json(self.path / name) or {} for name in (*FILES[:2], "tokenizer_config.json")]
        kind = (read_json(self.path / "config.json") or {}).get("model_type")
        names = [one["processor_class"] for one in told if isinstance(one.get("processor_class"), str)]
        name = next(iter(names), usual.PROCESSOR_MAPPING_NAMES.get(str(kind)))
        kind_of = getattr(transformers, name, None) if isinstance(name, str) else None
        if kind_of is None:
            raise ValueError(f"the processor in {self.path} is a {name!r}, which transformers does not know")
        wanted = signature(kind_of.__init__).parameters
        options = {key: value for key, value in told[1].items() if key in wanted and not isinstance(value, dict)}
        options |= {"video_processor": None} if "video_processor" in wanted else {}
        # A processor with a part for videos refuses to be made without torchvision. Pictures do not use that part.
        unchecked = type(str(name), (kind_of,), {"check_argument_for_proper_class": lambda *_: None})
        try:
            return unchecked(
                image_processor=AutoImageProcessor.from_pretrained(self.path, backend="pil", trust_remote_code=False),
                tokenizer=AutoTokenizer.from_pretrained(self.path, trust_remote_code=False),
                **options,
            )
        except ImportError as error:
            why = str(error).strip().partition("\n")[0]
            raise ValueError(f"the processor in {self.path} cannot be made ({why})") from None

    @cached_property
    def identity(self) -> str:
        """A name for all that a picture's tokens and inputs depend on, apart from the picture."""
        told = [self.processor.__class__.__name__, self.processor.image_processor.to_dict(), self.soft]
        told += [sorted((name, content.decode("utf-8", "replace")) for name, content in self.files.items())]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @cached_property
    def placeholder(self) -> str:
        token: str = self.processor.image_token
        return token

    @cached_property
    def marker(self) -> int:
        number: int = self.processor.tokenizer.convert_tokens_to_ids(self.placeholder)
        return number

    def read(self, reference: str) -> Ready:
        """A picture, by its reference (media/store.py), as the model reads it."""
        try:
            content = digest(self.store.raw(reference))
            return self.store.ready(content, self.identity, partial(self._made, reference, content))
        except OSError as error:
            raise ValueError(f"the picture {reference} cannot be read ({error.strerror})") from None
        except BadPicture as error:
            raise ValueError(f"the picture {named(reference)} {error}") from None

    def spliced(self, ids: Sequence[int], references: Sequence[str]) -> list[int]:
        """Token ids in which each placeholder has become the tokens of its picture, in order."""
        places = [i for i, number in enumerate(ids) if number == self.marker]
        if len(places) != len(references):
            raise ValueError(
                f"the chat template writes {len(places)} pictures of the {len(references)} that a conversation has; "
                "use another with --chat-template, or put the pictures into messages of the user"
            )
        whole: list[int] = []
        last = 0
        for place, reference in zip(places, references, strict=True):
            whole += [*ids[last:place], *self.read(reference).tokens]
            last = place + 1
        return [*whole, *ids[last:]]

    def _made(self, reference: str, content: str) -> Ready:
        raw = self.store.raw(reference)
        if digest(raw) != content:
            raise ChangedPicture(f"the picture {reference} has changed since it was read; start the run again")
        key = key_for(content, self.identity)
        picture = decoded(raw)
        inputs, ids = self._processed(picture)
        count = ids.count(self.soft)
        if not count:
            raise BadPicture(f"becomes no token of the model ({picture.width} x {picture.height} pixels)")
        media = iter(ids_of(key, count).tolist())
        tokens = tuple(next(media) if number == self.soft else number for number in ids)
        return Ready(key, tokens, count, inputs, self.identity, picture.size)

    def _processed(self, picture: Image) -> tuple[dict[str, Tensor], list[int]]:
        """What the tower reads, and the ids of the expanded placeholder."""
        try:
            out = self.processor(
                text=[self.placeholder], images=[picture], return_tensors="pt", add_special_tokens=False
            )
        except (ValueError, TypeError, ZeroDivisionError, IndexError, RuntimeError) as error:
            why = (str(error).strip().partition("\n")[0] or type(error).__name__)[:160].rstrip(". ")
            raise BadPicture(f"of {picture.width} x {picture.height} pixels cannot be processed ({why})") from None
        ids: list[int] = out["input_ids"][0].tolist()
        inputs = {name: value for name, value in out.items() if name not in OF_TEXT}
        tiles = inputs.get("pixel_values")
        if tiles is not None and tiles.ndim == 5:  # Idefics' towers drop tiles of zeros, which they take for padding
            black = (tiles == 0).flatten(2).all(-1)
            tiles[black] = TINY
        return inputs, ids


def named(reference: str) -> str:
    """A reference for people to read: the name of the file, or that there is none."""
    return reference if not reference.startswith("media:") else "that came inside the row"
