"""Select: which replies are kept, paired, filtered or remembered. `select=select.best_vs_worst()`."""

from burnish.select.apart import apart
from burnish.select.axioms import axiom_pairs
from burnish.select.beside import beside_reference
from burnish.select.confidence import drop_surest
from burnish.select.constrained import best_satisfying, satisfied_vs_violating
from burnish.select.convex import convex_pairs
from burnish.select.feedback import with_feedback
from burnish.select.filters import above, keep_best, mixed, most_spread, note_chosen
from burnish.select.gap import Gaps, easy_pairs
from burnish.select.hindsight import relabel
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
from burnish.select.priority import prioritised
from burnish.select.refill import refilled
from burnish.select.remember import Store, remember, turns_by
from burnish.select.revisions import revisions
from burnish.select.siblings import sibling_pairs
from burnish.select.users import user_pairs
from burnish.select.verified import keep_verified, right_where_hard

__all__ = [
    "note_chosen",
    "revisions",
    "sibling_pairs",
    "axiom_pairs",
    "user_pairs",
    "convex_pairs",
    "beside_reference",
    "most_spread",
    "Gaps",
    "Store",
    "above",
    "apart",
    "best_satisfying",
    "best_vs_worst",
    "best_vs_worst_beside",
    "diverse_vs_usual",
    "drop_surest",
    "easy_pairs",
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
    "partly_right",
    "prioritised",
    "ranked",
    "refilled",
    "relabel",
    "remember",
    "right_where_hard",
    "rival_pairs",
    "satisfied_vs_violating",
    "scored_pairs",
    "solvable",
    "turns_by",
    "unequal_lists",
    "whole_lists",
    "with_feedback",
]
