"""What "better" means: the one rule by which a run is measured on held-out tasks.

The measure follows the signal that a method learns from. Early stopping, the best checkpoint, `burnish runs`, reports
and the last lines of a run go by it and name it, with its value before training beside it.

| learned from | measure | name |
|---|---|---|
| replies judged 0 or 1 | accuracy of sampled replies, that of the greedy one beside it | sampled_accuracy |
| replies with a graded reward | mean reward of sampled replies, and of the greedy one | reward |
| replies scored by a reward model or a judge | mean reward; where there are answers, accuracy beside it | reward |
| episodes of an environment | share of won ones, or the mean return where rewards are graded | success, reward |
| demonstrations; the log-probs of a teacher | negative log-likelihood, or loss, and perplexity | */nll, */loss |
| preferences, also of a reward model | share of pairs in the right order, and the margin | */accuracy |

`--eval-measure` chooses another: accuracy (of the greedy reply), sampled, reward, or loss (what the method's own terms
say of given replies). A method that samples no replies is measured by the greedy one first.
"""

from __future__ import annotations

from typing import Literal

from burnish.core.method import Method, Phase
from burnish.evals.evaluate import can_evaluate
from burnish.learn.learn import plan_of
from burnish.rollout.episodes import rewarded_while_played
from burnish.tasks.source import Source
from burnish.tasks.task_set import task_set

Kind = Literal["judged", "scored", "terms"]  # by the task, by the method's own score stage, by its terms

ACCURACY, SAMPLED, REWARD, SUCCESS = "accuracy", "sampled_accuracy", "reward", "success"
GREEDY = {SAMPLED: ACCURACY, REWARD: "greedy_reward", SUCCESS: "greedy_success"}  # what stands beside the measure
OF_GIVEN = ("accuracy", "nll", "loss")  # endings of the metrics of terms; the first that a method reports is taken
WHOLE = 1e4  # numbers beyond are written without decimals
LARGE = 1e6  # numbers beyond are written with an exponent
_LABELS = {
    ACCURACY: "accuracy, greedy",
    SAMPLED: "accuracy, sampled",
    REWARD: "reward",
    SUCCESS: "success",
    "greedy_reward": "reward, greedy",
    "greedy_success": "success, greedy",
}


def kind_of(method: Method, source: Source, asked: str = "auto") -> Kind:
    """What measures the product of a method on this task; raises ValueError for a measure that cannot be taken."""
    judged = method.generates and source.size("heldout") != 0 and can_evaluate(source)
    scored = method.generates and method.samples and any(map(scores_held_out, method.phases))
    if asked == "loss":
        if method.samples and not _follows_a_teacher(method):
            raise ValueError(
                f"--eval-measure loss is for methods that learn from given replies, and {method.name} samples its own; "
                "leave it out"
            )
        return "terms"
    if asked in ("accuracy", "sampled") and not judged:
        why = "writes no replies" if not method.generates else f"has no answers to judge by ({source.name})"
        raise ValueError(f"--eval-measure {asked} judges replies, but {method.name} {why}; leave it out")
    if asked == "reward" and not (judged or scored):
        raise ValueError(f"--eval-measure reward needs a reward of replies, and {method.name} has none; leave it out")
    if asked in ("accuracy", "sampled") or (asked == "reward" and not scored):
        return "judged"
    if judged and (rewarded_while_played(source) or not trains(method)):
        return "judged"
    if scored and (learned(method, source) or not judged):
        return "scored"
    if asked == "auto" and trains(method) and (not method.samples or _follows_a_teacher(method)):
        return "terms"
    return "judged" if judged else "terms"


def scores_held_out(phase: Phase) -> bool:
    """Whether replies to held-out tasks get a reward in this phase."""
    written = phase.rollout.writes.union(*(part.writes | part.updates for part in phase.score))
    return phase.draw.heldout is not None and "score:reward" in written


def learned(method: Method, source: Source) -> bool:
    """Whether the reward of replies comes from a model or a scorer of the run, not from the task's own verifier."""
    if task_set(source).rewarded_by == "scorers":
        return True
    asked = {
        name.removeprefix("model:").partition(".")[0]
        for phase in method.phases
        for part in phase.score
        if "score:reward" in part.writes
        for name in part.reads
        if name.startswith("model:")
    }
    return bool(asked - {method.product})


def sampled_first(method: Method, asked: str = "auto") -> bool:
    """Whether sampled replies are the measure, and the greedy one stands beside them: where the method samples."""
    return asked in ("sampled", "reward") or (asked == "auto" and method.samples and trains(method))


def trains(method: Method) -> bool:
    """Whether the method changes weights; one that does not is measured by the replies that it selects."""
    return any(plan_of(phase).trainees for phase in method.phases)


def _follows_a_teacher(method: Method) -> bool:
    return "teacher" in method.models and not any(map(scores_held_out, method.phases))


def better_is_lower(name: str) -> bool:
    return name.endswith(("nll", "loss", "perplexity"))


def is_share(name: str) -> bool:
    """Whether a measure is a share, written in percent."""
    return name.endswith(("accuracy", "success", "cut_off"))


def written(name: str, value: float) -> str:
    """Format a value of a measure; shares are percentages."""
    if is_share(name):
        return f"{value:.1%}"
    if abs(value) >= LARGE:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) < WHOLE else f"{value:,.0f}"


def short(name: str) -> str:
    """The measure in a word or two, for lists of runs."""
    if name in (SAMPLED, ACCURACY):
        return "accuracy"
    endings = {"step/accuracy": "steps right", "accuracy": "pairs right", "nll": "NLL", "loss": "loss"}
    return next((word for ending, word in endings.items() if name.endswith(ending)), name)


def label(name: str) -> str:
    """The name of a measure in prose: "accuracy, sampled"; that of a term's metric is its own."""
    return _LABELS.get(name, name)
