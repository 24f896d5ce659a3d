"""Learn: terms to minimise, how each is averaged, and how the weights move. `learn=learn.Learn(learn.pg_clip(0.2))`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.learn.learn import Learn as Learn
    from burnish.learn.learn import Move as Move
    from burnish.learn.norms import Norm as Norm
    from burnish.learn.norms import constant as constant
    from burnish.learn.norms import constant_over_all as constant_over_all
    from burnish.learn.norms import group_mean as group_mean
    from burnish.learn.norms import seq_mean as seq_mean
    from burnish.learn.norms import seq_sum_mean as seq_sum_mean
    from burnish.learn.norms import token_mean as token_mean
    from burnish.learn.norms import unit_mean as unit_mean
    from burnish.learn.search import Search as Search
    from burnish.learn.term import CLAIMED as CLAIMED
    from burnish.learn.term import Live as Live
    from burnish.learn.term import Term as Term
    from burnish.learn.terms.compared import list_term as list_term
    from burnish.learn.terms.compared import pair_term as pair_term
    from burnish.learn.terms.compared import unpaired_term as unpaired_term
    from burnish.learn.terms.denoising import kl_steps as kl_steps
    from burnish.learn.terms.distillation import distil as distil
    from burnish.learn.terms.fit import chance_fit as chance_fit
    from burnish.learn.terms.fit import value_fit as value_fit
    from burnish.learn.terms.imitation import imitate as imitate
    from burnish.learn.terms.policy import entropy_bonus as entropy_bonus
    from burnish.learn.terms.policy import kl_k2 as kl_k2
    from burnish.learn.terms.policy import kl_k3 as kl_k3
    from burnish.learn.terms.policy import pg_clip as pg_clip
    from burnish.learn.terms.policy import pg_reinforce as pg_reinforce
    from burnish.learn.terms.preference import dpo as dpo
    from burnish.learn.terms.preference_pairs import against_population as against_population
    from burnish.learn.terms.preference_pairs import simpo as simpo
    from burnish.learn.terms.preference_pairs import uniform_reference as uniform_reference
    from burnish.learn.terms.preference_pairs import weighted_tokens as weighted_tokens
    from burnish.learn.terms.preference_unpaired import likelihood as likelihood
    from burnish.learn.terms.preference_unpaired import log_ratio as log_ratio
    from burnish.learn.terms.process import step_chance as step_chance
    from burnish.learn.terms.process import step_regression as step_regression
    from burnish.learn.terms.regression import regress_advantage as regress_advantage
    from burnish.learn.terms.reward import head_pairs as head_pairs
    from burnish.learn.terms.reward import score_all_pairs as score_all_pairs
    from burnish.learn.terms.reward import score_pairs as score_pairs
    from burnish.learn.terms.self_imitation import imitate_smoothed as imitate_smoothed
    from burnish.learn.terms.self_imitation import imitate_weighted as imitate_weighted
    from burnish.learn.terms.sequence import regress_rewards as regress_rewards
    from burnish.learn.terms.surrogates import pg_held_ratio as pg_held_ratio
    from burnish.learn.terms.value import value_clip as value_clip
    from burnish.learn.terms.value import value_mse as value_mse
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
