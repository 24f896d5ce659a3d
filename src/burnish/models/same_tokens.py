"""Whether two models mean the same by a token id, from the files of their tokenizers: no weights are loaded for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from burnish.core.method import Method
from burnish.models.known_models import adapted_model, is_adapter, resolve
from burnish.models.load import TOKENIZER_FILES, load_chat
from burnish.util.files import read_json

READS = ("logp", "logits", "entropy", "greedy", "hidden")  # what a language model says of the tokens of another one
BY_TEXT = "opd and kdrl"  # the methods whose teacher may have any tokenizer


def require_same_tokens(method: Method, base: Path, others: Collection[str] = ()) -> None:
    """Raise ValueError where a model that reads the policy's tokens (a teacher) has another tokenizer than the run's.

    A judge is asked in words and may have any tokenizer; what scores tokens is compared when it is loaded.
    others: models that read the tokens of other models, which they began as
    """
    for name in sorted(token_readers(method).difference(others)):
        role = method.models[name]
        for source in (role.source, role.mixed_with):
            if source is not None and source != "base" and role.follows is None:
                differs = difference(base, resolve(source))
                if differs:
                    other = (
                        f"; {BY_TEXT} read the text in the teacher's own tokens, and sft learns from what any model "
                        f"writes (burnish rate --model {source} --reply best)"
                    )
                    raise ValueError(
                        f"the model {source!r} ({name}) has another tokenizer than the model that it is to read tokens "
                        f"of: {differs}; pass one with the same tokenizer, such as a larger model of the same family"
                        + (other if name == "teacher" else "")
                    )


def token_readers(method: Method) -> set[str]:
    """The models that read tokens of others: in a part that does not let them write, or in a term. Critics among them,
    which have a value for each token; not what reads replies as text (`kind` "words").
    """
    readers: set[str] = set()
    for phase in method.phases:
        groups = [placed.part.reads for placed in phase.parts() if getattr(placed.part, "kind", "") != "words"]
        for reads in [*groups, *(term.reads for term in phase.learn.terms)]:
            asked = [name.removeprefix("model:").split(".") for name in reads if name.startswith("model:")]
            writes = {model for model, what in asked if what == "generate"}
            readers |= {model for model, what in asked if what in (*READS, "value") and model not in writes}
    return {name for name in readers if name in method.models}


def difference(one: Path, other: Path) -> str:
    """How the tokens of two model directories differ; empty where an id means the same in both.

    One of the two may have special tokens that the other lacks (Qwen3 has more than Qwen2.5), and more embeddings than
    tokens: what only one has is cut off before a softmax (engine/mixture.py, learn/maths/distillation.py).
    """
    places = [_whole(path) for path in (one, other)]
    files = [path / "tokenizer.json" for path in places]
    if all(file.is_file() for file in files) and files[0].read_bytes() == files[1].read_bytes():
        return ""
    if not all(any(file for pattern in TOKENIZER_FILES for file in path.glob(pattern)) for path in places):
        return ""  # a described model (`burnish plan`) has none; a run refuses it when it is loaded
    (ids, special), (other_ids, their_special) = (_tokens(path) for path in places)
    for token in sorted(ids.keys() & other_ids.keys()):
        if ids[token] != other_ids[token]:
            return f"{token!r:.40} is {ids[token]} in one and {other_ids[token]} in the other"
    by_id = {number: token for token, number in other_ids.items()}
    for token, number in ids.items():
        if token not in other_ids and number in by_id:
            return f"{number} is {token!r:.40} in one and {by_id[number]!r:.40} in the other"
    alone = sorted((ids.keys() - other_ids.keys() - special) | (other_ids.keys() - ids.keys() - their_special))
    return f"only one of them has {alone[0]!r:.40}" if alone else ""


def _whole(path: Path) -> Path:
    """Where the tokenizer lies: adapters that were saved without one have that of their model."""
    return adapted_model(path) if is_adapter(path) and not any(path.glob("tokenizer*")) else path


def _tokens(path: Path) -> tuple[Mapping[str, int], set[str]]:
    """The ids of all tokens, and which tokens were added to the vocabulary that the tokenizer was made with."""
    told = read_json(path / "tokenizer.json")
    listed = _listed(told) if told is not None else None
    if listed is not None:
        return listed
    tokenizer: Any = load_chat(path).tokenizer  # several files, which transformers' own classes know
    ids: dict[str, int] = dict(tokenizer.get_vocab())
    return ids, set(tokenizer.get_added_vocab())


def _listed(told: Mapping[str, object]) -> tuple[dict[str, int], set[str]] | None:
    """The same of a tokenizer.json; None for one of another form."""
    model, added = told.get("model"), told.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # Unigram: [[token, score], ...]
        vocabulary = {pair[0]: number for number, pair in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        return None
    extra = {token["content"]: token["id"] for token in added}
    return {**vocabulary, **extra}, set(extra)
