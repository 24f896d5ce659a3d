"""The cache of a run's encoded texts: which datasets and which tokenizer it belongs to."""

from __future__ import annotations

from burnish.models.chat import Chat
from burnish.models.text_cache import TextCache
from burnish.tasks.data.cache import fingerprint
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source


def remember_texts(source: Source, chat: Chat) -> None:
    """From now on, encode every text of the source's datasets once. Rows given in Python are kept in memory alone;
    texts of other sources, which never end, and of templates that read the clock are not kept.
    """
    datasets = datasets_of(source)
    encoding = chat.text_identity() if datasets else None
    if encoding is None:
        chat.texts = None
        return
    states = [dataset.identity(dataset.part("train").rows) for dataset in datasets]
    chat.texts = TextCache(None if None in states else fingerprint("texts", encoding, *states))
