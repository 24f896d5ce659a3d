"""Rewards from several reward models, or from one with several outputs."""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import papers
from burnish.core.method import frozen
from burnish.core.option import Option
from burnish.rewards import DENSE, MEASURED, Scorer, register_reward
from burnish.score import aggregate, data, heads, written
from burnish.score.debias import training_tasks
from burnish.score.heads import Aggregate
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source

Scaled = Annotated[
    int, Option("Replies by whose scores each member is normalised, then held; 0: not at all.", at_least=0)
]
Counted = Annotated[int, Option("Training rows that are read for it.", at_least=2)]
PER = ("batch", "reply")
Per = Annotated[str, Option("Whether the worst is one for the batch or one for each reply.", choices=PER)]
WORST: dict[str, Aggregate] = {"batch": aggregate.worst_group, "reply": aggregate.worst_case}


def _members(name: str, models: tuple[str, ...]) -> dict[str, str]:
    """Names of the run's models for directories: NAME, or NAME1, NAME2, ..."""
    if not models:
        raise ValueError(f"{name} needs the directory of a reward model: --reward '{name}(runs/DIR/model)'")
    return {name: models[0]} if len(models) == 1 else {f"{name}{i}": path for i, path in enumerate(models, 1)}


def _aggregated(name: str, models: tuple[str, ...], how: Aggregate, normalise: int) -> Scorer:
    members = _members(name, models)
    scale = heads.Scale(normalise, f"scale/{name}") if normalise else None
    part = heads.aggregated(tuple(members), how, scale=scale, name=MEASURED + name)
    return Scorer(part=part, models={member: frozen(path, outputs=1) for member, path in members.items()})


@register_reward(
    papers.REWARD_ENSEMBLES,
    summary="Several reward models, or one with several heads, as one reward: mean, worst or mean less variance.",
    when="The policy over-optimises a single reward model.",
    example="burnish train grpo --reward 'ensemble(runs/a/model, runs/b/model, how=worst)'",
    trial={"models": ("tiny",)},
)
def ensemble(
    task: Source,
    *models: str,
    how: Annotated[Literal["mean", "worst", "uncertainty"], Option("How members become one.")] = "mean",
    coef: Annotated[float, Option("Of the variance; 0.5 for best-of-n, 0.1 for PPO.", at_least=0)] = 0.1,
    normalise: Scaled = 256,
) -> Scorer:
    """mean_j r_j, min_j r_j (worst-case optimisation), or mean_j r_j - coef var_j r_j (uncertainty-weighted).

    Every member is normalised by the mean and deviation of its first scores: a minimum over members on different scales
    picks the one with the lowest offset. The variance is the population's.
    """
    rules: dict[str, Aggregate] = {
        "mean": aggregate.mean,
        "worst": aggregate.worst_case,
        "uncertainty": lambda scores: aggregate.uncertainty_weighted(scores, coef),
    }
    return _aggregated("ensemble", models, rules[how], normalise)


@register_reward(
    papers.DPA,
    summary="A weighted sum of several reward models or outputs.",
    when="Several attributes with fixed weights.",
    example="burnish train grpo --reward 'weighted(runs/DIR/model, weights=[1, -0.2])'",
    trial={"models": ("tiny",), "weights": (1.0,)},
)
def weighted(task: Source, *models: str, weights: tuple[float, ...], normalise: Scaled = 0) -> Scorer:
    """sum_j w_j r_j over all outputs of all models, in order. A direction (cos t, sin t) is DPA's v . r."""
    import torch

    numbers = torch.tensor([float(weight) for weight in weights], dtype=torch.float64)

    def how(scores: torch.Tensor) -> torch.Tensor:
        if scores.shape[1] != len(numbers):
            raise ValueError(f"weighted has {len(numbers)} weights, but its models give {scores.shape[1]} scores")
        return aggregate.weighted(scores, numbers)

    return _aggregated("weighted", models, how, normalise)


@register_reward(
    papers.BRME,
    summary="A robust reward: the surest head's mean, and the worst head's.",
    when="You have trained brme.",
    example="burnish train ppo --reward 'brme(runs/DIR/model, share=0.4)'",
    trial={"model": "tiny"},
)
def brme(
    task: Source,
    model: str,
    *,
    share: Annotated[float, Option("Of the nominal reward, not the worst.", at_least=0, at_most=1)] = 0.4,
    per: Per = "batch",
) -> Scorer:
    """share mu_j* + (1 - share) min_j mean(mu_j), j* the head with the least sigma of this reply (arXiv 2409.15360)."""
    return _aggregated("brme", (model,), heads.robust_of(share, WORST[per]), 0)


@register_reward(
    papers.MAXMIN_RLHF,
    summary="The reward of the group of users that fares worst.",
    when="You have trained maxmin_rm, or one reward model for each group.",
    example="burnish train ppo --reward 'maxmin(runs/DIR/model)'",
    trial={"models": ("tiny",)},
)
def maxmin(
    task: Source,
    *models: str,
    per: Per = "batch",
    eta: Annotated[float, Option("Step of weights that follow the worst group; 0: it alone.", at_least=0)] = 0.0,
    normalise: Scaled = 256,
) -> Scorer:
    """r_u*, u* = argmin_u of the batch's mean of r_u; per=reply: the minimum for each reply.

    eta > 0: sum_u w_u r_u with w_u <- w_u exp(-eta mean r_u), which follows the worst group step by step.
    """
    how = heads.GroupWeights(eta, "group_weights/maxmin") if eta else WORST[per]
    return _aggregated("maxmin", models, how, normalise)


@register_reward(
    papers.ARMORM,
    summary="Attributes weighted by a gate that reads the prompt.",
    when="You have trained armorm.",
    example="burnish train grpo --reward 'armorm(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def armorm(
    task: Source,
    model: str,
    *,
    temperature: Annotated[float, Option("Of the gate's softmax, as in training.", above=0)] = 10.0,
) -> Scorer:
    """sum_i softmax(g(x) / temperature)_i r_i(x, y): g after the prompt, r after the reply."""
    part = heads.gated("armorm", temperature=temperature, name=f"{MEASURED}armorm")
    return Scorer(part=part, models={"armorm": frozen(model, outputs=1)})


@register_reward(
    papers.CGPO,
    summary="The chance that a reply is preferred to a baseline reply of the data.",
    when="Scores of different prompts must be comparable, and each has a reference answer.",
    example="burnish train grpo --reward 'better_than(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def better_than(
    task: Source, model: str, *, column: Annotated[str, Option("The column of the baseline reply.")] = "demo"
) -> Scorer:
    """sigmoid(r(x, y) - r(x, y0)): 1/2 where the reply is as good as the baseline."""
    part = heads.preferred_to_baseline("better_than", column=column, name=f"{MEASURED}better_than")
    return Scorer(part=part, models={"better_than": frozen(model, outputs=1)})


@register_reward(
    papers.SIMPLEDC_RLHF_SIMPLIFICATION,
    summary="The chance, by a classifier, that a reply is of the wanted kind.",
    when="You have trained discriminator.",
    example="burnish train ppo --reward 'discriminated(runs/DIR/model, shortest=0.2)'",
    trial={"model": "tiny"},
)
def discriminated(
    task: Source,
    model: str,
    *,
    shortest: Annotated[float, Option("Replies shorter than this share of the prompt score 0.", at_least=0)] = 0.0,
) -> Scorer:
    """sigmoid(r(x, y)), and 0 for a reply that is too short: a classifier takes an empty text for a simple one."""
    part = heads.discriminated("discriminated", shortest=shortest, name=f"{MEASURED}discriminated")
    return Scorer(part=part, models={"discriminated": frozen(model, outputs=1)})


@register_reward(
    papers.PESSIMISTIC_MLE_RLHF,
    summary="A reward model's score less a bound on its error, by the covariance of the data's features.",
    when="The policy leaves the data that the reward model was trained on.",
    example="burnish train grpo --task pairs.jsonl --reward 'pessimistic(runs/DIR/model, coef=0.1)'",
    trial={"model": "tiny"},
)
def pessimistic(
    task: Source,
    model: str,
    *,
    coef: Annotated[float, Option("Size of the bound; 0 is the reward model's score.", at_least=0)] = 0.1,
    ridge: Annotated[float, Option("Lambda of Sigma + lambda I.", above=0)] = 0.1,
    per: Annotated[str, Option("Bound of the batch's mean feature, or of each.", choices=PER)] = "batch",
    data_file: Annotated[str | None, Option("The pairs of the reward model; by default those of the task.")] = None,
    rows: Counted = 256,
) -> Scorer:
    """(phi - nu) . theta - coef |phi - nu| in the norm of (Sigma + ridge I)^-1, phi the last hidden state (arXiv
    2301.11270).

    per=batch takes the norm of the batch's mean feature, as the paper does; per=reply is the more pessimistic bound.
    """
    source = task if data_file is None else resolve_task(data_file)
    bound = {"batch": aggregate.pessimistic, "reply": aggregate.pessimistic_each}[per]
    coverage = data.Coverage(source, rows, ridge)
    part = data.pessimistic(coverage, coef, bound, model="pessimistic", name=f"{MEASURED}pessimistic")
    return Scorer(part=part, models={"pessimistic": frozen(model, outputs=1)})


@register_reward(
    papers.CONTRAST_INSTRUCTIONS,
    summary="A reward model's score averaged with those of similar replies of the data.",
    when="Small changes of the wording change the score.",
    example="burnish train grpo --task pairs.jsonl --reward 'fused(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def fused(
    task: Source,
    model: str,
    *,
    least: Annotated[float, Option("Replies with a smaller cosine do not count.", at_least=-1, at_most=1)] = 0.9,
    most: Annotated[int, Option("Similar replies that count at most.", at_least=0)] = 5,
    rows: Counted = 256,
) -> Scorer:
    """RewardFusion: (r + sum_i cos_i r_i) / (1 + sum_i cos_i) over the nearest replies, by last hidden states.

    Departure: the paper embeds texts with SimCSE, here the reward model's own states are compared.
    """
    part = data.fused(data.Neighbours(task, rows), least, most, model="fused", name=f"{MEASURED}fused")
    return Scorer(part=part, models={"fused": frozen(model, outputs=1)})


@register_reward(
    papers.VPL,
    summary="The reward of one user, inferred from comparisons of that user.",
    when="You have trained vpl, and have a few comparisons of the user.",
    example="burnish train grpo --reward 'vpl(runs/DIR/model, context=user.jsonl)'",
    trial={"model": "tiny"},
)
def vpl(
    task: Source,
    model: str,
    *,
    context: Annotated[str | None, Option("A file with the user's pairs; by default the first of the task.")] = None,
    pairs: Annotated[int, Option("Pairs of it that are read.", at_least=1)] = 8,
    rivals: Annotated[bool, Option("Compare with the prompt's other replies; in (0, 1).")] = False,
) -> Scorer:
    """r(x, y, z), z the mean of the posterior given the user's pairs (arXiv 2408.10075)."""
    source = task if context is None else resolve_task(context)
    known = training_tasks(source, pairs)
    part = data.personal(known, model="vpl", name=f"{MEASURED}vpl", rivals=rivals)
    return Scorer(part=part, models={"vpl": frozen(model, outputs=1)})


@register_reward(
    papers.POLAR,
    summary="How much a reply is like the reference answer, by a policy discriminator.",
    when="You have trained polar, and the prompts have reference answers.",
    example="burnish train grpo --reward 'polar(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def polar(
    task: Source, model: str, *, column: Annotated[str, Option("The column of the reference.")] = "demo"
) -> Scorer:
    """r(x, reference, y) (arXiv 2507.05197)."""
    part = data.like_reference(column, model="polar", name=f"{MEASURED}polar")
    return Scorer(part=part, models={"polar": frozen(model, outputs=1)})


@register_reward(
    papers.SEQ2SEQ_RM,
    summary="Token rewards by a model that corrects replies: what it would keep, and what it would change.",
    when="You have trained seq2seq_rm, and want a reward for each token.",
    example="burnish train ppo --reward 'corrector(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def corrector(task: Source, model: str) -> Scorer:
    """1 for tokens up to the first that it would change, then -1 for those it would change, 0 for others; divided by
    the reply's tokens (arXiv 2409.00162, reconstructed).
    """
    part = written.corrected_tokens(f"{DENSE}corrector", model="corrector")
    return Scorer(part=part, models={"corrector": frozen(model)}, dense=True)


@register_reward(
    papers.THEMIS,
    summary="The score of a model that reads what a calculator says of the reply.",
    when="You have trained themis.",
    example="burnish train grpo --task add --reward 'themis(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def themis(task: Source, model: str) -> Scorer:
    """The logit of the end token after the reply and its tool trace (arXiv 2310.01045)."""
    part = written.after_tools("themis", name=f"{MEASURED}themis")
    return Scorer(part=part, models={"themis": frozen(model)})


@register_reward(
    papers.GOAL_CONDITIONED_CONTRASTIVE_RM,
    summary="How near a reply's states stay to those at the end of good replies.",
    when="You have trained goal_conditioned_rm, and want to see where a reply leaves the path.",
    example="burnish train grpo --reward 'goal(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def goal(
    task: Source,
    model: str,
    *,
    rows: Counted = 64,
    skip: Annotated[int, Option("First tokens of a reply that do not count.", at_least=0)] = 4,
) -> Scorer:
    """The lowest cosine of the reply's states to the mean last state of good replies (arXiv 2407.13887)."""
    part = written.toward_goal(task, rows, skip, model="goal", name=f"{MEASURED}goal")
    return Scorer(part=part, models={"goal": frozen(model, outputs=1)})
