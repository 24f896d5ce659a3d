"""Select: which replies are kept, paired, filtered or remembered. `select=select.best_vs_worst()`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.select.filters import keep_best as keep_best
    from burnish.select.filters import mixed as mixed
    from burnish.select.lists import best_vs_worst_beside as best_vs_worst_beside
    from burnish.select.lists import diverse_vs_usual as diverse_vs_usual
    from burnish.select.lists import first_round as first_round
    from burnish.select.lists import keep_accepted as keep_accepted
    from burnish.select.lists import longest_vs_any as longest_vs_any
    from burnish.select.lists import unequal_lists as unequal_lists
    from burnish.select.lists import whole_lists as whole_lists
    from burnish.select.pairs import best_vs_worst as best_vs_worst
    from burnish.select.pairs import every_contrast as every_contrast
    from burnish.select.pairs import every_pair as every_pair
    from burnish.select.pairs import given_pairs as given_pairs
    from burnish.select.pairs import ranked as ranked
    from burnish.select.pairs import scored_pairs as scored_pairs
    from burnish.select.refill import refilled as refilled
    from burnish.select.remember import Store as Store
    from burnish.select.remember import remember as remember
    from burnish.select.remember import turns_by as turns_by
    from burnish.select.returns import Returns as Returns
    from burnish.select.returns import watched as watched
    from burnish.select.siblings import sibling_pairs as sibling_pairs
    from burnish.select.task_replay import TaskStore as TaskStore
    from burnish.select.turn_rows import by_turn as by_turn
    from burnish.select.verified import keep_verified as keep_verified
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
