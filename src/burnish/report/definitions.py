"""Every metric's name and meaning, in one table: the docs, the dashboard and the tests read it here.

A name with `*` stands for any term (`*/loss` is pg/loss, kl/loss, ...) or any score; the first entry that fits is meant.
All are computed over what the words say and nothing else (a reply's tokens, never its prompt or padding), and none depends on how a
batch was split into micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache


@dataclass(frozen=True)
class Definition:
    """What a metric is. `chapter` groups them; `better` says which way is good, where one is: up, down."""

    name: str
    chapter: str
    what: str
    better: str = ""


def _chapter(title: str, *rows: tuple[str, str] | tuple[str, str, str]) -> list[Definition]:
    return [Definition(row[0], title, row[1], *row[2:]) for row in rows]


DEFINITIONS: list[Definition] = [
    *_chapter(
        "What was sampled",
        ("reward", "mean score of the traces sampled in the step, before any is dropped", "up"),
        ("correct", "share of the sampled traces that the verifier counts as correct", "up"),
        ("length", "mean tokens of a reply (of each of its turns, where there are several)"),
        ("cut_off", "share of the replies that ran into max_new_tokens", "down"),
        ("sampled_tokens", "tokens of the replies that the step goes on with, all together; with --chunk: of those that have ended"),
        ("traces", "traces that reached learn, all phases together"),
        ("temperature", "the temperature that replies were sampled at, where a controller sets it"),
        ("sampled_entropy", "minus the mean log-prob of the sampled tokens that are trained on"),
        ("hinted", "share of the groups that were given a hint"),
        ("answered", "share of the replies that state an answer", "up"),
        ("answer_entropy", "entropy of the answers within a group, in bits: 0 where all replies agree"),
        ("astray", "share of the replies that were cut off or repeat themselves", "down"),
        ("overlong", "mean punishment for replies that come near the limit: 0 or below", "up"),
        ("mended", "share of the restarts from a wrong reply that ended right", "up"),
        ("broken", "share of the restarts from a right reply that ended wrong", "down"),
        ("all_right_groups", "share of the groups in which every reply is right", "up"),
        ("wins", "share of the comparisons that the policy wins", "up"),
    ),
    *_chapter(
        "What was kept",
        ("staleness", "with --lag or --chunk: versions by which the learning weights are ahead of those that wrote a token, on average"),
        ("unfinished", "with --chunk: replies that are still being written when the step ends, and go on in the next"),
        ("zero_variance_groups", "share of the groups in which all replies score the same: they teach nothing", "down"),
        ("refused", "updates refused because a reward, a loss or a gradient was not finite; absent where there was none", "down"),
        ("reward_failures", "replies whose reward function gave no answer; absent where there was none", "down"),
        ("refilled", "groups drawn anew in place of dropped ones"),
        ("dropped/*", "share that a part of select took out, by the reason in the name"),
        ("score/before_selection", "mean score before the best were chosen", "up"),
        ("score/selected", "mean score of the chosen", "up"),
        ("score/*", "mean over the sampled traces of another score: a component, a shaped reward, what a judge gave", "up"),
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
        ("chi2", "mean over replies of the symmetric chi-squared divergence from the reference"),
        ("confidence", "mean probability that the policy gives its own reply"),
        ("dense_bonus", "mean over reply tokens of the bonus that a log-ratio gives"),
        ("demo_weight", "mean weight of a demonstration against the samples"),
        ("distilled", "share of the traces that are distilled from the teacher"),
        ("local_weight", "mean weight of the within-group advantage against the batch's"),
        ("clipped_by_covariance", "share of the tokens left out for their covariance of log-prob and advantage"),
        ("tempered_share", "share of what is trained that was sampled at the raised temperature"),
        ("mismatch/logp", "mean absolute difference of the trainer's and the sampler's log-probs, of tokens that the present weights sampled: rounding alone; 0 where a CPU's trainer goes on from the sampler's own numbers (all packs but one in 32)", "down"),
        ("mismatch/probe", "mean absolute difference of the trainer's and the engine's log-probs of a fixed probe, after each publish to an engine that holds a copy of the weights", "down"),
        ("mismatch/ratio", "mean over sampled tokens of trainer's over sampler's probability: 1 where they agree"),
        ("mismatch/changed", "share of the tokens whose ratio a correction changed", "down"),
    ),
    *_chapter(
        "Learning",
        ("grad_norm", "norm of the policy's gradient before clipping"),
        ("*/grad_norm", "the same of another trainee (critic/grad_norm)"),
        ("trust/kl", "KL between the policies before and after the update"),
        ("trust/accepted", "share of the updates that the line search accepted"),
        ("kl/loss", "mean over reply tokens of the estimated KL to the reference (k3, unless the method's page says otherwise)"),
        ("*/loss", "mean loss of a term over its units, by the term's own weights"),
        ("*/entropy", "mean entropy of the policy over the term's tokens"),
        ("*/clipped", "share of the term's tokens (or sequences) whose gradient the clip took", "down"),
        ("*/old_kl", "k3 estimate of the KL from the sampling policy; 0 on the first update of a batch"),
        ("*/nll", "mean negative log-likelihood of the term's tokens", "down"),
        ("*/accuracy", "share of the pairs ordered rightly", "up"),
        ("*/margin", "mean margin between the better and the worse of a pair", "up"),
        ("*/gap", "mean difference of reward within a pair"),
        ("*/odds", "mean ratio of the pair's probability ratios"),
        ("*/ratio", "mean importance ratio of the term's tokens"),
        ("*/taper", "mean weight left by the taper"),
        ("*/kl", "mean KL that the term holds down"),
        ("*/reverse_kl", "mean over tokens of log-prob minus the teacher's", "down"),
        ("*/log_ratio", "mean log-ratio to the policy before the update"),
        ("*/error", "mean absolute error of the predicted value", "down"),
        ("*/estimate", "mean predicted value"),
        ("*/value", "mean soft value"),
        ("*/q", "mean Q of the tokens taken"),
        ("*/reward", "mean reward that the term infers"),
    ),
    *_chapter(
        "Held out",
        ("heldout/accuracy", "accuracy on held-out tasks, one sampled reply each, every eval_every steps", "up"),
        ("heldout/*", "the same number as in training, measured on held-out data; for tasks without a verifier"),
    ),
    *_chapter(
        "Time and memory",
        ("seconds/*", "seconds of a room in the step: draw, rollout, score, select, credit, learn, publish; `seconds/step` is the whole, `seconds/saving` a checkpoint"),
        ("memory_mb", "MiB that the process holds after the step"),
    ),
]  # fmt: skip


@cache
def definition(name: str) -> Definition | None:
    """What a metric is; None for a name that is in no table."""
    held_out = name.startswith("heldout/")
    for found in DEFINITIONS:
        if fnmatchcase(name, found.name) and found.name.startswith("heldout/") == held_out:
            return found
    return None


def markdown() -> str:
    """The tables of docs/metrics.md."""
    lines: list[str] = []
    for chapter in dict.fromkeys(one.chapter for one in DEFINITIONS):
        lines += ["", f"## {chapter}", "", "| name | what | better |", "|---|---|---|"]
        lines += [f"| `{one.name}` | {one.what} | {one.better} |" for one in DEFINITIONS if one.chapter == chapter]
    return "\n".join(lines) + "\n"
