"""How many tokens fit into memory at once, found out by running out of it.

A pass that runs out of memory is repeated in smaller pieces, and all later ones are as small. Micro-batches cannot
change a gradient, so the run goes on as if nothing had happened. The limit is part of a checkpoint: a resumed run does
not run out of memory again, and repeats the same sums.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from burnish.util.failures import out_of_memory

T = TypeVar("T")


class TokenRoom:
    """The limit that a run's models share. asked: the run's own token budget, on which the limit depends.

    warnings: what the run's monitor is to say
    """

    name = "token_room"

    def __init__(self, asked: int = 0) -> None:
        self.asked = asked
        self.limit: int | None = None
        self.warnings: list[str] = []

    def within(self, budget: int) -> int:
        """A budget of tokens, as far as it fits."""
        return budget if self.limit is None else min(budget, self.limit)

    def fitting(self, attempt: Callable[[], T], largest: Callable[[], tuple[int, int]], undo: Callable[[], None]) -> T:
        """What `attempt` gives, which is made again with a lower limit as often as it runs out of memory.

        largest: tokens and rows of its largest pass;  undo: takes back what a failed attempt has left
        """
        failed: tuple[int, str] | None = None  # tokens of the first pass that did not fit, and where
        while True:
            try:
                result = attempt()
                if failed is not None:
                    self._say(*failed)
                return result
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                where = "the GPU" if isinstance(error, torch.OutOfMemoryError) else "the machine"
            # here the traceback, and with it the tensors of the failed attempt, are gone
            tokens, rows = largest()
            undo()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.lower(tokens, rows, where)
            failed = failed or (tokens, where)

    def lower(self, tokens: int, rows: int, where: str) -> None:
        """Lower the limit: a pass of so many tokens in so many rows did not fit. ValueError for a single row."""
        if rows < 2:
            raise ValueError(
                f"{where} is out of memory with a single row of {tokens:,} tokens; use --checkpoint-activations, "
                "--lora, a smaller --max-length or --max-new-tokens, or a smaller model"
            )
        self.limit = max(1, tokens // 2)

    def _say(self, tokens: int, where: str) -> None:
        self.warnings.append(
            f"{where} ran out of memory with {tokens:,} tokens at once; micro-batches now have up to {self.limit:,} "
            f"tokens, with the same gradient (--token-budget {self.limit} begins with that)"
        )

    def state_dict(self) -> dict[str, int | None]:
        return {"asked": self.asked, "limit": self.limit}

    def load_state_dict(self, state: dict[str, int | None]) -> None:
        """A run that is resumed with another --token-budget finds out again."""
        self.limit = state["limit"] if state["asked"] == self.asked else None


def or_out_of_memory(attempt: Callable[[], T], rank: int, budget: int) -> T:
    """What `attempt` gives. It is not repeated in smaller pieces: the other ranks are in the middle of an exchange."""
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
    raise ValueError(
        f"rank {rank} is out of memory with passes of up to {budget:,} tokens, and where ranks divide gradients or "
        f"weights (--shard) none can repeat a pass in smaller pieces: use --token-budget {max(1, budget // 2)}, or "
        "--checkpoint-activations"
    )
