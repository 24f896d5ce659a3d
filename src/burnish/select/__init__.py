"""Select: which replies are kept, paired, filtered or remembered. `select=select.best_vs_worst()`."""

from burnish.select.filters import above, between, keep_best, mixed, most_spread, note_chosen
from burnish.select.lists import (
    best_vs_worst_beside,
    diverse_vs_usual,
    first_round,
    gold_and_pair,
    keep_accepted,
    large_margins,
    longest_vs_any,
    rival_pairs,
    unequal_lists,
    whole_lists,
)
from burnish.select.outcomes import partly_right, solvable
from burnish.select.pairs import best_vs_worst, every_contrast, every_pair, given_pairs, ranked, scored_pairs
from burnish.select.refill import refilled
from burnish.select.remember import Store, remember, remember_right, turns_by
from burnish.select.returns import Returns, best_returns, compared, normalised_score, watched
from burnish.select.shorter import shortest_vs_longer
from burnish.select.siblings import sibling_pairs
from burnish.select.task_replay import TaskStore, beside_successes, replay_where_failed
from burnish.select.turn_rows import by_turn
from burnish.select.verified import keep_verified, right_where_hard

__all__ = [
    "Returns",
    "Store",
    "TaskStore",
    "above",
    "beside_successes",
    "best_returns",
    "best_vs_worst",
    "best_vs_worst_beside",
    "between",
    "by_turn",
    "compared",
    "diverse_vs_usual",
    "every_contrast",
    "every_pair",
    "first_round",
    "given_pairs",
    "gold_and_pair",
    "keep_accepted",
    "keep_best",
    "keep_verified",
    "large_margins",
    "longest_vs_any",
    "mixed",
    "most_spread",
    "normalised_score",
    "note_chosen",
    "partly_right",
    "ranked",
    "refilled",
    "remember",
    "remember_right",
    "replay_where_failed",
    "right_where_hard",
    "rival_pairs",
    "scored_pairs",
    "shortest_vs_longer",
    "sibling_pairs",
    "solvable",
    "turns_by",
    "unequal_lists",
    "watched",
    "whole_lists",
]
