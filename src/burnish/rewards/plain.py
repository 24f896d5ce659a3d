"""Plain shapes: clip, centre, normalise, correct for a grader's errors, follow a schedule, reward progress."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from burnish.core.method import Option, Step
from burnish.core.schedules import cosine, linear
from burnish.core.state import State
from burnish.credit.components import normalised
from burnish.rewards import Scorer, register_shape
from burnish.rewards.lengths import Coef
from burnish.rewards.shaped import Scored, component, mixed, of_batch, of_group
from burnish.score.maths.calibration import unbiased
from burnish.score.shape import Moments
from burnish.tasks.mixture import FROM
from burnish.tasks.source import Source

MOST_PROMPTS = 100_000  # prompts whose past is remembered; the oldest is forgotten first


@register_shape(
    summary="The reward clipped to [-limit, limit].",
    when="Single rewards are far out (a reward model on odd replies).",
    example="burnish train grpo --reward 'rm(runs/DIR/model)' --shape 'clip(5)'",
)
def clip(
    task: Source, limit: Annotated[float, Option("The largest size; inf: unchanged.", at_least=0, unlimited=True)] = 1.0
) -> Scorer:
    """max(-limit, min(limit, r))"""

    def change(scored: Scored, step: Step) -> list[float]:
        return [max(-limit, min(limit, r)) for r in scored.rewards]

    return of_group(f"clip({limit:g})", change, coef=0.0 if math.isinf(limit) else 1.0)


@register_shape(
    summary="The reward less the mean of the batch.",
    when="Rewards have an offset and the method has no baseline.",
    example="burnish train raft --shape centre",
)
def centre(task: Source, coef: Coef = 1.0) -> Scorer:
    """r - coef mean r, the mean over all replies of the step."""

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        rewards = [r for scored in batch for r in scored.rewards]
        mean = math.fsum(rewards) / max(1, len(rewards))
        return [[r - coef * mean for r in scored.rewards] for scored in batch]

    return of_batch("centre", change, coef=coef)


@register_shape(
    summary="The reward in standard deviations from the mean, by running moments.",
    when="The scale of a reward model is unknown or drifts.",
    example="burnish train ppo --reward 'rm(runs/DIR/model)' --shape 'normalise,clip(5)'",
)
def normalise(task: Source, coef: Coef = 1.0) -> Scorer:
    """(r - mean) / std with running moments of the run, this step included; r' = (1 - coef) r + coef of it.

    Reward normalisation as in "Secrets of RLHF" (arXiv 2307.04964, Eq. 18); `clip` after it is the paper's clipping.
    While all rewards were equal the deviation counts as 1.
    """
    moments = Moments("normalise_moments")

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        moments.see([r for scored in batch for r in scored.rewards])
        return [[mixed(r, (r - moments.mean) / moments.std, coef) for r in scored.rewards] for scored in batch]

    return of_batch("normalise", change, coef=coef, state=(moments,))


class TaskMoments:
    """Running moments for each dataset of a mixture."""

    def __init__(self) -> None:
        self.name = "per_task_moments"
        self.moments: dict[str, Moments] = {}

    def of(self, name: str) -> Moments:
        return self.moments.setdefault(name, Moments(name))

    def state_dict(self) -> State:
        return {name: moments.state_dict() for name, moments in self.moments.items()}

    def load_state_dict(self, state: State) -> None:
        self.moments = {name: Moments(name) for name in state}
        for name, one in state.items():
            self.moments[name].load_state_dict(one)


@register_shape(
    summary="Normalise the reward separately for each dataset of a mixture.",
    when="A mixture has rewards of different scales: one dataset would drown the others.",
    example="burnish train grpo --task 'a.jsonl*0.5,b.jsonl*0.5' --shape per_task",
)
def per_task(task: Source, coef: Coef = 1.0) -> Scorer:
    """(r - mean_d) / std_d, running moments of the dataset d that the row came from, this step included.

    Rows of a mixture carry their dataset; without a mixture there is one, and it is `normalise`.
    """
    memory = TaskMoments()

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        for scored in batch:
            memory.of(_dataset(scored)).see(scored.rewards)
        found = []
        for scored in batch:
            own = memory.of(_dataset(scored))
            found.append([mixed(r, (r - own.mean) / own.std, coef) for r in scored.rewards])
        return found

    return of_batch("per_task", change, coef=coef, state=(memory,))


def _dataset(scored: Scored) -> str:
    return str(scored.group.task.given.get(FROM, ""))


@register_shape(
    summary="(r - mean) / std over the replies to each prompt.",
    when="The method has no group baseline, or several shapes should see rewards of one scale.",
    example="burnish train raft --shape group_normalise",
)
def group_normalise(task: Source, coef: Coef = 1.0) -> Scorer:
    """(r - mean) / (std + 1e-4) over the group, the sample deviation; 0 in a group without differences."""

    def change(scored: Scored, step: Step) -> list[float]:
        normal = normalised(scored.rewards, 1e-4)
        return [mixed(r, x, coef) for r, x in zip(scored.rewards, normal, strict=True)]

    return of_group("group_normalise", change, coef=coef)


@register_shape(
    summary="The unbiased reward of a grader that errs at known rates.",
    when="You have measured how often the grader passes wrong replies and fails right ones.",
    example="burnish train reinforce --shape 'denoise(0.1, 0.2)'",
)
def denoise(
    task: Source,
    false_positive: Annotated[float, Option("P(grader says 1 | reply is wrong).", at_least=0, below=1)] = 0.0,
    false_negative: Annotated[float, Option("P(grader says 0 | reply is right).", at_least=0, below=1)] = 0.0,
) -> Scorer:
    """r' = (r - fp) / (1 - fp - fn), a plain correction: its mean is the reward of a grader without errors.

    The unbiased estimator of Natarajan et al., Learning with Noisy Labels (NeurIPS 2013). It is a shift and a scale:
    it changes nothing after a group baseline that divides by the deviation; it matters where rewards of several
    graders are added, where a threshold or a fixed baseline is used, and for what is reported.
    """
    if false_positive + false_negative >= 1:
        raise ValueError(
            f"denoise: error rates {false_positive:g} and {false_negative:g} add up to 1 or more, so the grader says "
            "nothing about the truth; give smaller rates"
        )

    def change(scored: Scored, step: Step) -> list[float]:
        return [unbiased(r, false_positive, false_negative) for r in scored.rewards]

    return of_group(f"denoise({false_positive:g}, {false_negative:g})", change, coef=false_positive + false_negative)


CURVES = {"linear": linear, "cosine": cosine}


@register_shape(
    summary="Add one of the rewards with a weight that follows a schedule.",
    when="A format reward should teach the format and then fade, or a length reward should come late.",
    example="burnish train grpo --reward 'math,my.py:format*0' --shape 'scheduled(format, 1, 0)'",
    trial={"reward": "correct"},
)
def scheduled(
    task: Source,
    reward: Annotated[str, Option("The name of a reward of --reward; give it the weight 0 there.")],
    start: Annotated[float, Option("Its weight at the first step.")] = 1.0,
    end: Annotated[float, Option("Its weight at the last step.")] = 0.0,
    over: Annotated[int | None, Option("Steps after which the end is reached; by default the run.", at_least=1)] = None,
    curve: Annotated[Literal["linear", "cosine"], Option("The way from start to end.")] = "linear",
) -> Scorer:
    """r + w(t) r_NAME, w from start to end along a line or half a cosine of the clock."""
    weight = CURVES[curve](start, end, over)

    def change(scored: Scored, step: Step) -> list[float]:
        now = weight(step.clock)
        if not now:
            return scored.rewards
        return [r + now * component(t, reward) for r, t in zip(scored.rewards, scored.traces, strict=True)]

    return of_group(f"scheduled({reward})", change, coef=float(bool(start or end)))


class PastRewards:
    """An exponential mean of the rewards of each prompt, the MOST_PROMPTS latest."""

    def __init__(self, decay: float) -> None:
        self.name, self.decay = "progress_past_rewards", decay
        self.means: dict[str, float] = {}

    def heard(self, key: str, mean: float) -> None:
        before = self.means.pop(key, None)
        self.means[key] = mean if before is None else self.decay * before + (1 - self.decay) * mean
        if len(self.means) > MOST_PROMPTS:
            del self.means[next(iter(self.means))]

    def state_dict(self) -> State:
        return {"keys": list(self.means), "values": list(self.means.values())}

    def load_state_dict(self, state: State) -> None:
        self.means = dict(zip(state["keys"], (float(x) for x in state["values"]), strict=True))


@register_shape(
    summary="A bonus for doing better on a prompt than before.",
    when="Rewards differ much between prompts, prompts come again, and improvement should count.",
    example="burnish train reinforce --shape 'progress(0.5)'",
)
def progress(
    task: Source,
    weight: Annotated[float, Option("The weight of the progress; 0: unchanged.", at_least=0)] = 1.0,
    decay: Annotated[float, Option("How much of the past a visit keeps.", at_least=0, below=1)] = 0.5,
) -> Scorer:
    """r + weight (r - m), m the exponential mean of the prompt's earlier mean rewards; a first visit has no progress.

    A plain shape without a paper. All replies to a prompt are shifted by the same amount, so after a group baseline it
    only scales by 1 + weight; it is for methods without one. The visit is remembered after it is scored.
    """
    memory = PastRewards(decay)

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        found = []
        for scored in batch:
            past = memory.means.get(scored.group.task.key)
            rewards = scored.rewards
            found.append(rewards if past is None else [r + weight * (r - past) for r in rewards])
        for scored in batch:
            memory.heard(scored.group.task.key, sum(scored.rewards) / len(scored.traces))
        return found

    return of_batch(f"progress({weight:g})", change, coef=weight, state=(memory,))
