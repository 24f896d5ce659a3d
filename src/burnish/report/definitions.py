"""Definitions of all metrics, for the docs, the dashboard and the tests.

A name with `*` stands for any term (`*/loss` is pg/loss, kl/loss, ...) or any score; the first entry that matches
applies. Means over reply tokens exclude prompts and padding, and no metric depends on the micro-batch size.

What one paper alone records is defined in its file: `METRICS = ((name, chapter, meaning, better), ...)`. That is read
as text, so that a dashboard imports no paper.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import burnish
from burnish.core.notes import NOTES

ZOO = Path(burnish.__file__).parent / "zoo"


@dataclass(frozen=True)
class Definition:
    """Definition of a metric. `chapter` groups metrics; `better` is up, down, or empty if neither is better."""

    name: str
    chapter: str
    what: str
    better: str = ""


def _chapter(title: str, *rows: tuple[str, str] | tuple[str, str, str]) -> list[Definition]:
    return [Definition(row[0], title, row[1], *row[2:]) for row in rows]


def of_papers(folder: Path = ZOO) -> Iterator[Definition]:
    """The metrics that files of papers define."""
    for rows in declared("METRICS", folder).values():
        yield from (Definition(*row) for row in rows)


def declared(name: str, folder: Path = ZOO) -> dict[Path, Any]:
    """The literal of this name (METRICS, NOTES) in each file of a paper that has one."""
    literals = {}
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body if f"\n{name} = " in text else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                literals[file] = ast.literal_eval(node.value)
    return literals


GENERAL: list[Definition] = [
    *_chapter(
        "What was sampled",
        (
            "opponent*/*",
            "the same number for the model of another seat (--opponent own, SEAT=own), from what that model said",
        ),
        ("reward", "mean score of the traces sampled in the step, before any is dropped", "up"),
        (
            "reward/*",
            "the same of one reward, before its weight, over the traces that it applies to; of a shape: how much it "
            "changed the reward",
            "up",
        ),
        (
            "preference_cycles",
            "share of the triples of different replies to a prompt of which, by --preference, each beats another: no "
            "score of single replies explains them",
        ),
        ("correct", "share of the sampled traces that the verifier counts as correct", "up"),
        ("length", "mean tokens of a reply (of each of its turns, where there are several)"),
        ("cut_off", "share of the replies that ran into max_new_tokens", "down"),
        ("distinct_replies", "share of the replies to a prompt that no earlier one equals, mean over groups"),
        ("distinct_bigrams", "share of different ones among the token bigrams of a group, mean over groups"),
        (
            "sampled_tokens",
            "total tokens of the replies that are scored in the step; with --chunk: of those that have ended",
        ),
        ("traces", "traces that reached learn, all phases together"),
        ("temperature", "the temperature that replies were sampled at, where a controller sets it"),
        ("sampled_entropy", "minus the mean log-prob of the sampled tokens that are trained on"),
        ("hinted", "share of the groups that were given a hint"),
        ("answered", "share of the replies that state an answer", "up"),
        ("answer_entropy", "entropy of the answers within a group, in bits: 0 where all replies agree"),
        ("astray", "share of the replies that were cut off or repeat themselves", "down"),
        ("overlong", "mean punishment for replies that come near the limit: 0 or below", "up"),
        ("recorded_return", "mean return of the recorded episodes that were read", "up"),
        (
            "env/*",
            "a number that the environment reports at the end of an episode; env/regret of `bandit` is the sum "
            "over pulls of the best mean minus that of the arm",
        ),
        (
            "played_return",
            "mean return of the episodes that the steered policy, or the manager of `moe_lm`, played",
            "up",
        ),
        (
            "normalised_score",
            "their score beside the recorded ones: 0 is the lowest return, 50 the mean, 100 the best",
            "up",
        ),
        ("mended", "share of the restarts from a wrong reply that ended right", "up"),
        ("broken", "share of the restarts from a right reply that ended wrong", "down"),
        ("all_right_groups", "share of the groups in which every reply is right", "up"),
        ("wins", "share of the comparisons that the policy wins", "up"),
        ("alike", "how alike the replies to a prompt are: 1 if all are equal, 1/n if all n differ", "down"),
        ("self_bleu", "mean BLEU (of 3- to 5-grams) of the replies against earlier ones of the run", "down"),
        ("chosen/*", "share of the steps in which this reward was the lowest, and so the one that counted"),
        ("satisfied", "share of the replies that pass every judge", "up"),
        ("multiplier/*", "Lagrange multiplier of the constraint on this reward"),
        ("shuffled_accuracy", "share of correct replies to prompts whose parts are in another order"),
        ("confidence_stated", "share of the replies that state a confidence which can be read", "up"),
        ("calibration_error", "mean distance of stated confidence and accuracy, over ten bins of confidence", "down"),
        ("brier", "mean squared difference of the stated confidence and of being correct (0 or 1)", "down"),
    ),
    *_chapter(
        "What was kept",
        (
            "staleness",
            "with --lag, --chunk or --train-when: mean number of versions by which the trained weights are ahead of "
            "those that wrote a token",
        ),
        (
            "unfinished",
            "with --chunk, --train-when, --step-deadline: replies or episodes that are unfinished when the step ends "
            "and continue in the next",
        ),
        (
            "zero_variance_groups",
            "share of the groups in which all replies have the same score: they give no gradient",
            "down",
        ),
        (
            "refused",
            "updates rejected because a reward, loss or gradient was NaN or Inf; absent if there were none",
            "down",
        ),
        (
            "canaries_passed",
            "replies that passed tests which contradict each other, so they forged the verdict; absent if there were "
            "none",
            "down",
        ),
        ("reward_failures", "replies that got no reward because a reward failed; absent if there were none", "down"),
        ("judge_cached", "answers of a judge behind an endpoint that came from the cache"),
        ("judge_calls", "questions sent to a judge behind an endpoint, without repeated attempts"),
        (
            "judge_gated",
            "share of the replies without content, which score the lowest and are not shown to a judge",
            "down",
        ),
        (
            "referee_agreement",
            "mean rank agreement (-1 to 1) of the policy as referee with given preferences",
            "up",
        ),
        ("self_score", "mean score in [0, 1] that the policy gives to its own open-ended replies"),
        ("rubric_version", "how often the rubric has been refined"),
        ("judge_unread", "share of a judge's answers that did not come or could not be read", "down"),
        ("draw/*", "share of the draws that a source of the mixture, or a kind of prompt, has by --draw"),
        ("draw_made", "new prompts that were made of others and passed the filters"),
        ("draw_refused", "share of the new prompts that were empty, repeated or refused by a filter", "down"),
        ("informativeness", "mean over prompts of the best reward less the worst"),
        ("battles/won", "share of the battles with other models that the policy won", "up"),
        ("battles/lost", "share of the battles with other models that the policy lost", "down"),
        ("refused/*", "share of the replies that the refusal classifier puts into a category"),
        ("majority_share", "share of the replies that agree with the answer of most replies to their prompt"),
        ("shared_states", "share of the turns that began in a state which another turn of the group began in", "up"),
        ("replayed", "share of the groups in which a past success took the place of a failed episode"),
        ("replay_store", "episodes in a replay store"),
        ("matched", "share of the states in which the policy's action equals the expert's", "up"),
        (
            "restarts",
            "share of an agent's requests that did not go on from an earlier one of its episode",
            "down",
        ),
        ("turns", "replies of the policy in one episode with an environment or tools"),
        ("cut_turns", "share of the replies in episodes that were cut before their end of turn", "down"),
        (
            "episode_ended",
            "share of the episodes that the environment ended; the others ran out of turns or context",
            "up",
        ),
        (
            "env_failures",
            "episodes whose environment raised, hung or answered nonsense; absent if there were none",
            "down",
        ),
        ("episodes/won", "share of the episodes that were won", "up"),
        ("episodes/lost", "share of the episodes that were played to the end and lost", "down"),
        ("episodes/aborted", "share of the episodes that ended because a reply broke the rules", "down"),
        ("tree/nodes", "nodes of a search tree that were visited or valued, mean over tasks"),
        ("tree/tokens", "tokens that were sampled for a search tree, mean over tasks", "down"),
        ("tree/right", "right replies among the finished ones of the search trees", "up"),
        ("tree/best", "the best reward among the finished episodes of a search tree, mean over tasks", "up"),
        ("refilled", "new groups drawn in place of dropped ones"),
        ("dropped/*", "share that a part of select removed, by the reason in the name"),
        ("score/before_selection", "mean score before the best were chosen", "up"),
        ("score/selected", "mean score of the chosen", "up"),
        (
            "score/*",
            "mean over the sampled traces of another score: a component, a shaped reward, a judge's score",
            "up",
        ),
    ),
    *_chapter(
        "Credit",
        ("advantage", "mean advantage of an utterance"),
        ("actions", "mean number of actions that a reply is split into"),
        ("macros", "mean number of macro actions that a reply is split into"),
        ("baseline", "the baseline that is subtracted from the reward"),
        ("margin", "mean of the reply's score minus that of the reference's reply, clipped"),
        ("kl", "mean over reply tokens of the KL penalty's estimate: log-prob minus the reference's"),
        ("teacher_kl", "mean over reply tokens of log-prob minus the teacher's", "down"),
        (
            "teacher_spans",
            "spans of a teacher with another tokenizer over the student's tokens; 1: all tokens are shared",
        ),
        ("chi2", "mean over replies of the symmetric chi-squared divergence from the reference"),
        ("confidence", "mean probability that the policy gives its own reply"),
        ("dense/*", "mean over replies of the sum of a scorer's token rewards, before its weight", "up"),
        ("progress", "mean over prompts of the continuations' reward less that of answers forced before them", "up"),
        ("delta", "running midpoint of the implicit rewards of desirable and undesirable replies"),
        ("label_confidence", "mean chance that a pair's label is right, by the policy"),
        ("flipped", "share of the pairs whose label an ensemble reversed"),
        ("head_spread", "mean standard deviation of a reply's scores over the heads or members of an ensemble"),
        ("token_reward", "mean reward that a DPO model's log-ratio gives to a token"),
        ("accepted", "share of the replies that rejection sampling accepted"),
        ("reference_cached", "share of the replies whose reference log-probs were computed in an earlier epoch"),
        ("demo_weight", "mean weight of a demonstration against the samples"),
        ("distilled", "share of the traces that are distilled from the teacher"),
        ("clipped_by_covariance", "share of the tokens left out for their covariance of log-prob and advantage"),
        ("tempered_share", "share of the trained traces that were sampled at the raised temperature"),
        (
            "mismatch/logp",
            "mean absolute difference of trainer and sampler log-probs, over tokens sampled by the current weights: "
            "rounding only; 0 where a CPU's trainer reuses the sampler's activations (all packs but one in 32)",
            "down",
        ),
        (
            "mismatch/probe",
            "mean absolute difference of trainer and engine log-probs on a fixed probe, after each publish to an "
            "engine with a copy of the weights",
            "down",
        ),
        (
            "mismatch/ratio",
            "mean over sampled tokens of the trainer's probability divided by the sampler's: 1 if they agree",
        ),
        ("mismatch/changed", "share of the tokens whose ratio a correction changed", "down"),
    ),
    *_chapter(
        "Learning",
        ("grad_norm", "norm of the gradient of the model that the method trains and saves, before clipping"),
        ("*/grad_norm", "the same for another trained model (critic/grad_norm)"),
        ("lr", "learning rate of the step's updates, by the schedule"),
        ("*/lr", "the same for another trained model (critic/lr)"),
        ("trust/kl", "KL between the policies before and after the update"),
        ("trust/accepted", "share of the updates that the line search accepted"),
        ("evolution/best", "mean score of the best candidate of the step's population", "up"),
        ("evolution/spread", "standard deviation of the candidates' mean scores; 0: all tie, and nothing moves"),
        ("swarm/drawn", "groups of other nodes that the step learns from"),
        (
            "kl/loss",
            "mean over reply tokens of the estimated KL to the reference (k3, unless the method's page says otherwise)",
        ),
        ("*/loss", "mean loss of a term over its units, with the term's own weights"),
        ("*/entropy", "mean entropy of the policy over the term's tokens"),
        ("*/clipped", "share of the term's tokens (or sequences) whose gradient the clip removed", "down"),
        ("*/old_kl", "k3 estimate of the KL from the sampling policy; 0 on the first update of a batch"),
        ("*/nll", "mean negative log-likelihood of the term's tokens", "down"),
        ("*/accuracy", "share of the pairs ordered correctly; a tie counts one half", "up"),
        ("*/label_accuracy", "share of the replies of which a classifier says all labels right", "up"),
        ("*/precision_*", "of the replies that a classifier puts into a branch, the share that belong there", "up"),
        ("*/recall_*", "of the replies that belong into a branch, the share that a classifier puts there", "up"),
        ("*/accuracy_*", "the same for the pairs of one kind, such as an axiom", "up"),
        (
            "*/ties",
            "share of the pairs of which neither is preferred, as all are where the policy is its reference",
            "down",
        ),
        ("*/margin", "mean margin between the better and the worse of a pair", "up"),
        (
            "*/chosen_*",
            "mean over the preferred (or desirable) replies of their log-prob, their log-ratio to the reference or "
            "their score; of a log-prob that is normalised by length, the mean over tokens",
        ),
        ("*/rejected_*", "the same over the replies that are not preferred"),
        ("*/length_gap", "mean tokens of the preferred reply less those of the other"),
        (
            "*/prefers_longer",
            "share of the pairs of different lengths in which the longer reply has the larger log-ratio",
        ),
        (
            "*/gradient_inner",
            "with --diagnose-every: mean inner product of the gradients of the log-probs of the preferred and the "
            "other reply, with respect to the head's matrix, over the first 8 pairs of the step",
        ),
        ("*/gradient_cosine", "the same divided by both norms: 1 where the loss pulls one direction both ways", "down"),
        (
            "*/raises_chosen",
            "share of these pairs whose inner product is less than the squared norm of the preferred reply's gradient: "
            "a step of DPO makes that reply likelier",
            "up",
        ),
        (
            "*/top10_mass",
            "with --diagnose-every: mean probability of the ten likeliest tokens together, at these pairs' tokens",
        ),
        ("*/weight", "mean weight of a pair"),
        ("*/drift", "mean squared change of the rejected replies' largest features against the reference"),
        ("*/gap", "mean difference of reward within a pair"),
        ("*/odds", "mean ratio of the pair's probability ratios"),
        ("*/ratio", "mean importance ratio of the term's tokens"),
        ("*/taper", "mean weight left by the taper"),
        ("*/kl", "mean KL that the term penalises"),
        ("*/reverse_kl", "mean over tokens of log-prob minus the teacher's", "down"),
        ("*/log_ratio", "mean log-ratio to the policy before the update"),
        ("*/error", "mean absolute error of the predicted value", "down"),
        ("*/estimate", "mean predicted value"),
        (
            "*/explained_variance",
            "1 - Var(return - value) / Var(return) over the term's tokens, with the critic before the step's updates: "
            "1 where it knows the returns, 0 where it knows no more than a constant; absent if all returns are equal",
            "up",
        ),
        ("*/disagreement", "mean standard deviation over the heads of the margin of a pair"),
        ("*/gate_entropy", "mean entropy of the gate's weights of the attributes"),
        ("*/rated", "mean share of the attributes that a reply is rated for"),
        ("*/std", "mean standard deviation that the heads give"),
        ("*/value", "mean soft value"),
        ("*/q", "mean Q of the tokens taken"),
        ("*/reward", "mean reward that the term infers"),
    ),
    *_chapter(
        "Held out",
        (
            "heldout/sampled_accuracy",
            "share of the replies to held-out tasks, sampled at eval_temperature, that are right",
            "up",
        ),
        ("heldout/accuracy", "accuracy of the greedy replies (temperature 0) to held-out tasks", "up"),
        ("heldout/reward", "mean reward of sampled replies to held-out tasks", "up"),
        ("heldout/greedy_reward", "mean reward of the greedy replies to held-out tasks", "up"),
        ("heldout/success", "share of held-out episodes that are won, sampled at eval_temperature", "up"),
        ("heldout/greedy_success", "share of held-out episodes that are won by greedy replies", "up"),
        ("heldout/cut_off", "share of the held-out replies that ran into max_new_tokens", "down"),
        ("heldout/*perplexity", "exp of the negative log-likelihood of held-out demonstrations", "down"),
        ("heldout/*", "the same number as in training, measured on held-out data; for tasks without a verifier"),
    ),
    *_chapter(
        "Time and memory",
        (
            "seconds/*",
            "seconds of a stage in the step: draw, rollout, score, select, credit, learn, publish; `seconds/step` is "
            "the whole, `seconds/saving` a checkpoint",
        ),
        ("memory_mb", "resident memory of the process after the step, in MiB"),
    ),
]


@cache
def definitions() -> tuple[Definition, ...]:
    """All definitions, in the order in which names are looked up."""
    return (*of_papers(), *GENERAL)


@cache
def definition(name: str) -> Definition | None:
    """The definition of a metric; None for an unknown name."""
    held_out = name.startswith("heldout/")
    for entry in definitions():
        if fnmatchcase(name, entry.name) and entry.name.startswith("heldout/") == held_out:
            return entry
    return None


def markdown() -> str:
    """The tables of docs/metrics.md."""
    lines: list[str] = []
    for chapter in dict.fromkeys(entry.chapter for entry in GENERAL):
        lines += ["", f"## {chapter}", "", "| name | what | better |", "|---|---|---|"]
        entries = [entry for entry in (*GENERAL, *of_papers()) if entry.chapter == chapter]
        lines += [f"| `{entry.name}` | {entry.what} | {entry.better} |" for entry in entries]
    lines += ["", "## Notes of a trace", "", "Facts that the store keeps in column `note` of a trace.", ""]
    notes = {**NOTES, **{key: what for own in declared("NOTES").values() for key, what in own.items()}}
    lines += ["| key | what |", "|---|---|", *(f"| `{key}` | {what} |" for key, what in notes.items())]
    return "\n".join(lines) + "\n"
