"""Select: which replies are kept, paired, filtered or remembered. `select=select.best_vs_worst()`."""

from burnish.select.apart import apart
from burnish.select.axioms import axiom_pairs
from burnish.select.battles import decided_battles, winners
from burnish.select.beside import beside_reference
from burnish.select.confidence import drop_surest
from burnish.select.constrained import best_satisfying, satisfied_vs_violating
from burnish.select.convex import convex_pairs
from burnish.select.expert_pairs import expert_over_own
from burnish.select.feedback import with_feedback
from burnish.select.filters import above, between, keep_best, mixed, most_spread, note_chosen
from burnish.select.filtration import STRATEGIES, Fits, filtered, r_squared
from burnish.select.gap import Gaps, easy_pairs
from burnish.select.hindsight import relabel
from burnish.select.improved import best_of_states
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
from burnish.select.recovered import recovered
from burnish.select.refill import refilled
from burnish.select.refined import refined
from burnish.select.remember import Store, remember, remember_right, turns_by
from burnish.select.returns import Returns, best_returns, compared, normalised_score, watched
from burnish.select.revisions import REVISIONS, revisions
from burnish.select.shorter import shortest_vs_longer
from burnish.select.siblings import sibling_pairs
from burnish.select.swarm import with_swarm
from burnish.select.swarm_files import SwarmFolder
from burnish.select.task_replay import TaskStore, beside_successes, replay_where_failed
from burnish.select.turn_rows import by_turn
from burnish.select.users import user_pairs
from burnish.select.verified import keep_verified, right_where_hard

__all__ = [
    "Fits",
    "Gaps",
    "REVISIONS",
    "Returns",
    "STRATEGIES",
    "Store",
    "SwarmFolder",
    "TaskStore",
    "above",
    "apart",
    "axiom_pairs",
    "beside_reference",
    "beside_successes",
    "best_of_states",
    "best_returns",
    "best_satisfying",
    "best_vs_worst",
    "best_vs_worst_beside",
    "between",
    "by_turn",
    "compared",
    "convex_pairs",
    "decided_battles",
    "diverse_vs_usual",
    "drop_surest",
    "easy_pairs",
    "every_contrast",
    "every_pair",
    "expert_over_own",
    "filtered",
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
    "prioritised",
    "r_squared",
    "ranked",
    "recovered",
    "refilled",
    "refined",
    "relabel",
    "remember",
    "remember_right",
    "replay_where_failed",
    "revisions",
    "right_where_hard",
    "rival_pairs",
    "satisfied_vs_violating",
    "scored_pairs",
    "shortest_vs_longer",
    "sibling_pairs",
    "solvable",
    "turns_by",
    "unequal_lists",
    "user_pairs",
    "watched",
    "whole_lists",
    "winners",
    "with_feedback",
    "with_swarm",
]
