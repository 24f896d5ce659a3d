"""Titles and units of metrics, for charts: `pg/entropy` is "Policy entropy", in nats per token.

A name with `*` stands for any term, score or reason, which `{}` in the title repeats; the first match applies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from burnish.report.definitions import definition

SHARE = "%"  # the unit of a share from 0 to 1, shown in percent
_NATS, _TOKENS = "nats per token", "tokens"


@dataclass(frozen=True)
class Title:
    """A metric's title and unit; the unit is empty for a plain number."""

    title: str
    unit: str = ""


_TABLE: tuple[tuple[str, str, str], ...] = (
    ("reward", "Reward", "mean score"),
    ("reward/*", "Reward: {}", "mean score"),
    ("correct", "Correct replies", SHARE),
    ("length", "Reply length", _TOKENS),
    ("cut_off", "Replies cut off", SHARE),
    ("distinct_replies", "Different replies in a group", SHARE),
    ("distinct_bigrams", "Different bigrams in a group", SHARE),
    ("sampled_tokens", "Sampled tokens", "tokens per step"),
    ("traces", "Traces trained on", "per step"),
    ("temperature", "Sampling temperature", ""),
    ("sampled_entropy", "Entropy of the samples", _NATS),
    ("hinted", "Groups with a hint", SHARE),
    ("answered", "Replies with an answer", SHARE),
    ("answer_entropy", "Entropy of the answers", "bits"),
    ("astray", "Replies gone astray", SHARE),
    ("overlong", "Punishment of long replies", "score"),
    ("mended", "Wrong replies mended", SHARE),
    ("broken", "Right replies broken", SHARE),
    ("all_right_groups", "Groups all right", SHARE),
    ("wins", "Comparisons won", SHARE),
    ("alike", "Likeness of the replies in a group", ""),
    ("self_bleu", "Likeness to earlier replies", "BLEU"),
    ("chosen/*", "Lowest reward: {}", SHARE),
    ("satisfied", "Replies that satisfy the judges", SHARE),
    ("multiplier/*", "Multiplier of {}", ""),
    ("shuffled_accuracy", "Correct replies to shuffled prompts", SHARE),
    ("confidence_stated", "Replies that state a confidence", SHARE),
    ("calibration_error", "Calibration error of stated confidence", ""),
    ("brier", "Brier score of stated confidence", "squared"),
    ("staleness", "Staleness of the samples", "versions"),
    ("unfinished", "Unfinished replies", "replies"),
    ("zero_variance_groups", "Groups without variance", SHARE),
    ("refused", "Rejected updates", "per step"),
    ("canaries_passed", "Canaries passed", "replies"),
    ("draw/*", "Drawn from {}", SHARE),
    ("shared_states", "Turns in shared states", SHARE),
    ("restarts", "Conversations begun anew", SHARE),
    ("turns", "Turns of an episode", "replies"),
    ("episode_ended", "Episodes that ended", SHARE),
    ("env_failures", "Failed environments", "episodes"),
    ("dense/*", "Token rewards: {}", "sum"),
    ("reward_failures", "Failed rewards", "replies"),
    ("judge_cached", "Judgements from the cache", "answers"),
    ("judge_calls", "Questions to the judge", "calls"),
    ("judge_gated", "Replies without content", SHARE),
    ("referee_agreement", "Referee's agreement with preferences", "rank agreement"),
    ("self_score", "Policy's score of its own replies", "score"),
    ("rubric_version", "Version of the rubric", ""),
    ("judge_unread", "Unreadable judgements", SHARE),
    ("refilled", "Groups drawn again", "groups"),
    ("dropped/*", "Dropped: {}", SHARE),
    ("score/before_selection", "Score before selection", "mean score"),
    ("score/selected", "Score of the selected", "mean score"),
    ("score/*", "Score: {}", "mean score"),
    ("advantage", "Advantage", "mean"),
    ("actions", "Actions of a reply", "actions"),
    ("macros", "Macro actions of a reply", "actions"),
    ("baseline", "Baseline", "score"),
    ("margin", "Margin over the reference's reply", "score"),
    ("kl", "KL penalty", _NATS),
    ("teacher_kl", "KL to the teacher", _NATS),
    ("chi2", "Chi-squared divergence from the reference", ""),
    ("confidence", "Confidence in the reply", "probability"),
    ("label_confidence", "Confidence in the labels", "probability"),
    ("accepted", "Replies accepted", SHARE),
    ("reference_cached", "Reference log-probs known", SHARE),
    ("demo_weight", "Weight of demonstrations", ""),
    ("distilled", "Traces distilled", SHARE),
    ("clipped_by_covariance", "Tokens clipped by covariance", SHARE),
    ("tempered_share", "Traces at the raised temperature", SHARE),
    ("mismatch/logp", "Trainer against sampler", "nats per token, absolute"),
    ("mismatch/probe", "Trainer against engine, on a probe", "nats per token, absolute"),
    ("mismatch/ratio", "Trainer's over sampler's probability", "ratio"),
    ("mismatch/changed", "Ratios corrected", SHARE),
    ("lr", "Learning rate", ""),
    ("*/lr", "Learning rate: {}", ""),
    ("grad_norm", "Gradient norm", "before clipping"),
    ("*/grad_norm", "Gradient norm: {}", "before clipping"),
    ("trust/kl", "KL of the update", _NATS),
    ("trust/accepted", "Updates accepted", SHARE),
    ("kl/loss", "KL to the reference", _NATS),
    ("*/loss", "Loss: {}", "mean over its units"),
    ("*/entropy", "Policy entropy", _NATS),
    ("*/clipped", "Tokens clipped", SHARE),
    ("*/old_kl", "KL from the sampling policy", _NATS),
    ("*/nll", "Negative log-likelihood", _NATS),
    ("*/accuracy", "Pairs in the right order", SHARE),
    ("*/ties", "Tied pairs", SHARE),
    ("*/gradient_inner", "Inner product of chosen and rejected gradients", ""),
    ("*/gradient_cosine", "Cosine of chosen and rejected gradients", ""),
    ("*/length_gap", "Length of chosen less rejected", _TOKENS),
    ("*/prefers_longer", "Pairs whose longer reply is preferred", SHARE),
    ("*/raises_chosen", "Pairs whose chosen reply rises", SHARE),
    ("*/top10_mass", "Probability of the ten likeliest tokens", "probability"),
    ("*/margin", "Margin of the pairs", "nats, times beta"),
    ("*/gap", "Reward gap of the pairs", "score"),
    ("*/odds", "Odds of the pairs", "ratio"),
    ("*/ratio", "Importance ratio: {}", "ratio"),
    ("*/kl", "KL: {}", _NATS),
    ("*/reverse_kl", "Reverse KL to the teacher", _NATS),
    ("*/log_ratio", "Log-ratio to the old policy", "nats"),
    ("*/error", "Value error: {}", "absolute"),
    ("*/estimate", "Value estimate: {}", "mean"),
    ("*/value", "Soft value: {}", "mean"),
    ("*/reward", "Inferred reward: {}", "mean"),
    ("*/chosen_logp", "Log-prob of the chosen", "nats"),
    ("*/rejected_logp", "Log-prob of the rejected", "nats"),
    ("seconds/*", "Time: {}", "s per step"),
    ("memory_mb", "Memory of the process", "MiB"),
)


_HELD_OUT = {
    "heldout/accuracy": Title("Held-out accuracy, greedy", SHARE),
    "heldout/sampled_accuracy": Title("Held-out accuracy, sampled", SHARE),
    "heldout/success": Title("Held-out success, sampled", SHARE),
    "heldout/greedy_success": Title("Held-out success, greedy", SHARE),
    "heldout/reward": Title("Held-out reward", "score"),
    "heldout/greedy_reward": Title("Held-out reward, greedy", "score"),
    "heldout/cut_off": Title("Held-out replies cut off", SHARE),
    "heldout/perplexity": Title("Held-out perplexity", ""),
}


@cache
def title_of(name: str) -> Title:
    """The title and unit of a metric; one that is not listed has its key as title, and its unit by its definition."""
    if name in _HELD_OUT:
        return _HELD_OUT[name]
    if name.startswith("heldout/"):
        inner = title_of(name.removeprefix("heldout/"))
        return Title(f"Held out: {inner.title[0].lower()}{inner.title[1:]}", inner.unit)
    for pattern, title, unit in _TABLE:
        start, star, end = pattern.partition("*")
        if name == pattern or (star and name.startswith(start) and name.endswith(end) and len(name) >= len(pattern)):
            middle = name[len(start) : len(name) - len(end)]
            return Title(title.replace("{}", middle.replace("_", " ")), unit)
    head, _, last = name.rpartition("/")
    words = last.replace("_", " ") or name
    defined = definition(name)
    unit = SHARE if defined and defined.what.startswith("share") else ""
    return Title(f"{words[0].upper()}{words[1:]}" + (f": {head.replace('_', ' ')}" if head else ""), unit)


def is_share(name: str) -> bool:
    """Whether a metric is a share, shown in percent."""
    return title_of(name).unit == SHARE


def titles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Titles and units by name, for the dashboard."""
    return {name: {"title": title_of(name).title, "unit": title_of(name).unit} for name in names}
