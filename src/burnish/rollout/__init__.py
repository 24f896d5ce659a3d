"""Rollout: what is sampled or read for each task, the only stage that generates. `rollout=rollout.sample(8)`."""

from burnish.engine.mixture import Blend, arithmetic, by_values, geometric, guided, masked_by
from burnish.rollout.again import again
from burnish.rollout.branch import Cuts, lines, next_steps, probed, tree, uncertain
from burnish.rollout.branching import Branches, above, branching, by_chance, second_tries
from burnish.rollout.candidates import Guide, by_candidates
from burnish.rollout.completions import Prefix, completions
from burnish.rollout.conditioned import under
from burnish.rollout.demonstrated import demonstrated
from burnish.rollout.given import given
from burnish.rollout.given_steps import given_steps
from burnish.rollout.guides import by_chances, by_lookahead, by_value_models
from burnish.rollout.hosted import hosted
from burnish.rollout.intents import intents
from burnish.rollout.listed import listed
from burnish.rollout.operated import answered, expanded, operated
from burnish.rollout.particles import particles
from burnish.rollout.play import of_episodes, play
from burnish.rollout.recalled import recalled
from burnish.rollout.resets import Cut, any_stage, anywhere, handed_over, reset, restarted, sliding_stage
from burnish.rollout.sample import either, greedy, join, prefixed, sample
from burnish.rollout.search_tree import (
    discounted,
    growing_ucb,
    half_of_children,
    log_puct,
    mean_of_children,
    puct,
    root_puct,
    ucb_after_one,
    uct,
)
from burnish.rollout.searched import finished, mixed_value, ranked_by, replies_with, searched
from burnish.rollout.stepped import (
    answers,
    best_end,
    by_probability,
    end_of_best_path,
    enough,
    every_node,
    good_end,
    paths,
    stepped,
    tree_values,
)
from burnish.rollout.trajectories import trajectories
from burnish.rollout.valued import (
    at_birth,
    at_visit,
    blended,
    by_model,
    ends_by,
    looking_ahead,
    simulated,
    with_siblings,
)

__all__ = [
    "Blend",
    "Branches",
    "Cut",
    "Cuts",
    "Guide",
    "Prefix",
    "above",
    "again",
    "answered",
    "answers",
    "any_stage",
    "anywhere",
    "arithmetic",
    "at_birth",
    "at_visit",
    "best_end",
    "blended",
    "branching",
    "by_candidates",
    "by_chance",
    "by_chances",
    "by_lookahead",
    "by_model",
    "by_probability",
    "by_value_models",
    "by_values",
    "completions",
    "demonstrated",
    "discounted",
    "either",
    "end_of_best_path",
    "ends_by",
    "enough",
    "every_node",
    "expanded",
    "finished",
    "geometric",
    "given",
    "given_steps",
    "good_end",
    "greedy",
    "growing_ucb",
    "guided",
    "half_of_children",
    "handed_over",
    "hosted",
    "intents",
    "join",
    "lines",
    "listed",
    "log_puct",
    "looking_ahead",
    "masked_by",
    "mean_of_children",
    "mixed_value",
    "next_steps",
    "of_episodes",
    "operated",
    "particles",
    "paths",
    "play",
    "prefixed",
    "probed",
    "puct",
    "ranked_by",
    "recalled",
    "replies_with",
    "reset",
    "restarted",
    "root_puct",
    "sample",
    "searched",
    "second_tries",
    "simulated",
    "sliding_stage",
    "stepped",
    "trajectories",
    "tree",
    "tree_values",
    "ucb_after_one",
    "uct",
    "uncertain",
    "under",
    "with_siblings",
]
