"""Rollout: what is sampled or read for each task, the only stage that generates. `rollout=rollout.sample(8)`."""

from burnish.engine.mixture import Blend, arithmetic, by_values, geometric, guided, masked_by
from burnish.rollout.again import again
from burnish.rollout.assisted import assisted, states
from burnish.rollout.axioms import by_axioms
from burnish.rollout.beams import beams
from burnish.rollout.branch import Cuts, lines, next_steps, probed, tree, uncertain
from burnish.rollout.branching import Branches, above, branching, by_chance, second_tries
from burnish.rollout.candidates import Guide, by_candidates
from burnish.rollout.checked import checked
from burnish.rollout.completions import Prefix, completions
from burnish.rollout.conditioned import under
from burnish.rollout.corrected import corrected
from burnish.rollout.demonstrated import demonstrated
from burnish.rollout.directed import directed
from burnish.rollout.early_exit import early_exits
from burnish.rollout.expert_steps import expert_steps
from burnish.rollout.filled import filled
from burnish.rollout.forced import continued_or_forced
from burnish.rollout.fragments import fragments
from burnish.rollout.given import given
from burnish.rollout.given_steps import given_steps
from burnish.rollout.graded import graded
from burnish.rollout.guides import by_chances, by_lookahead, by_value_models
from burnish.rollout.hinted import hinted
from burnish.rollout.hosted import hosted
from burnish.rollout.improved import improved
from burnish.rollout.in_context import EXAMPLES, INSTRUCTION, in_context
from burnish.rollout.injected import injected
from burnish.rollout.intents import intents
from burnish.rollout.listed import listed
from burnish.rollout.operated import answered, expanded, operated
from burnish.rollout.particles import particles
from burnish.rollout.planned import reflected
from burnish.rollout.play import of_episodes, play
from burnish.rollout.population import by_population
from burnish.rollout.recalled import recalled
from burnish.rollout.reflective import reflective
from burnish.rollout.replayed import replayed
from burnish.rollout.reranked import next_candidates, reranked
from burnish.rollout.resets import Cut, any_stage, anywhere, handed_over, reset, restarted, sliding_stage
from burnish.rollout.rolled_in import rolled_in
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
from burnish.rollout.staged import staged
from burnish.rollout.steered import steered
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
from burnish.rollout.takeover import takeovers
from burnish.rollout.tempered import EntropyMeter, tempered
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
    "EXAMPLES",
    "EntropyMeter",
    "Guide",
    "INSTRUCTION",
    "Prefix",
    "above",
    "again",
    "answered",
    "answers",
    "any_stage",
    "anywhere",
    "arithmetic",
    "assisted",
    "at_birth",
    "at_visit",
    "beams",
    "best_end",
    "blended",
    "branching",
    "by_axioms",
    "by_candidates",
    "by_chance",
    "by_chances",
    "by_lookahead",
    "by_model",
    "by_population",
    "by_probability",
    "by_value_models",
    "by_values",
    "checked",
    "completions",
    "continued_or_forced",
    "corrected",
    "demonstrated",
    "directed",
    "discounted",
    "early_exits",
    "either",
    "end_of_best_path",
    "ends_by",
    "enough",
    "every_node",
    "expanded",
    "expert_steps",
    "filled",
    "finished",
    "fragments",
    "geometric",
    "given",
    "given_steps",
    "good_end",
    "graded",
    "greedy",
    "growing_ucb",
    "guided",
    "half_of_children",
    "handed_over",
    "hinted",
    "hosted",
    "improved",
    "in_context",
    "injected",
    "intents",
    "join",
    "lines",
    "listed",
    "log_puct",
    "looking_ahead",
    "masked_by",
    "mean_of_children",
    "mixed_value",
    "next_candidates",
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
    "reflected",
    "reflective",
    "replayed",
    "replies_with",
    "reranked",
    "reset",
    "restarted",
    "rolled_in",
    "root_puct",
    "sample",
    "searched",
    "second_tries",
    "simulated",
    "sliding_stage",
    "staged",
    "states",
    "steered",
    "stepped",
    "takeovers",
    "tempered",
    "trajectories",
    "tree",
    "tree_values",
    "ucb_after_one",
    "uct",
    "uncertain",
    "under",
    "with_siblings",
]
