"""Rollout: what is sampled or read for each task, the only stage that generates. `rollout=rollout.sample(8)`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.engine.mixture import Blend as Blend
    from burnish.engine.mixture import geometric as geometric
    from burnish.engine.mixture import guided as guided
    from burnish.rollout.branch import lines as lines
    from burnish.rollout.branch import probed as probed
    from burnish.rollout.candidates import Guide as Guide
    from burnish.rollout.candidates import by_candidates as by_candidates
    from burnish.rollout.completions import Prefix as Prefix
    from burnish.rollout.completions import completions as completions
    from burnish.rollout.conditioned import under as under
    from burnish.rollout.demonstrated import demonstrated as demonstrated
    from burnish.rollout.given import given as given
    from burnish.rollout.given_steps import given_steps as given_steps
    from burnish.rollout.guides import by_lookahead as by_lookahead
    from burnish.rollout.listed import listed as listed
    from burnish.rollout.play import of_episodes as of_episodes
    from burnish.rollout.play import play as play
    from burnish.rollout.recalled import recalled as recalled
    from burnish.rollout.resets import anywhere as anywhere
    from burnish.rollout.resets import reset as reset
    from burnish.rollout.sample import greedy as greedy
    from burnish.rollout.sample import join as join
    from burnish.rollout.sample import sample as sample
    from burnish.rollout.search_tree import uct as uct
    from burnish.rollout.searched import finished as finished
    from burnish.rollout.searched import replies_with as replies_with
    from burnish.rollout.searched import searched as searched
    from burnish.rollout.stepped import answers as answers
    from burnish.rollout.stepped import paths as paths
    from burnish.rollout.stepped import stepped as stepped
    from burnish.rollout.stepped import tree_values as tree_values
    from burnish.rollout.trajectories import trajectories as trajectories
    from burnish.rollout.valued import by_model as by_model
    from burnish.rollout.valued import ends_by as ends_by
    from burnish.rollout.valued import simulated as simulated
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
