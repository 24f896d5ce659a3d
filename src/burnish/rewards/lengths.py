"""Shapes of the reward by the length of a reply."""

from __future__ import annotations

from typing import Annotated

from burnish import papers
from burnish.core.method import Option, Step, Trace
from burnish.core.state import State
from burnish.core.types import Group
from burnish.rewards import Scorer, register_shape
from burnish.rewards.shaped import Scored, mixed, of_batch, of_group
from burnish.score.judge import reply_text
from burnish.score.length import overlong_punishment
from burnish.score.maths.lengths import (
    adaptive_penalty,
    cosine_between,
    group_relative_lengths,
    quadratic_excess,
    shortest_first,
    within_budget,
)
from burnish.score.maths.repetition import repeated_share
from burnish.tasks.source import Source

Coef = Annotated[float, Option("0 leaves the reward unchanged, 1 is the whole shape.", at_least=0, at_most=1)]
Weight = Annotated[float, Option("The weight of what is added; 0 leaves the reward unchanged.", at_least=0)]
Longest = Annotated[int | None, Option("The length L in tokens; by default max_new_tokens.", at_least=1)]


@register_shape(
    summary="DAPO's soft punishment of replies that come near the longest length.",
    when="Replies are cut off at the limit.",
    example="burnish train grpo --shape 'overlong(0.2)'",
)
def overlong(
    task: Source,
    buffer: Annotated[
        float, Option("The last share of max_new_tokens, in which a reply loses up to 1.", above=0, at_most=1)
    ] = 0.2,
    weight: Weight = 1.0,
) -> Scorer:
    """r - weight min(1, max(0, |y| - (1 - buffer) L) / (buffer L)), L = max_new_tokens (arXiv 2503.14476, Eq. 13)."""

    def change(scored: Scored, step: Step) -> list[float]:
        longest = step.settings.max_new_tokens
        lost = [overlong_punishment(length, longest, buffer * longest) for length in scored.lengths]
        return [r + weight * x for r, x in zip(scored.rewards, lost, strict=True)]

    return of_group(f"overlong({buffer:g})", change, coef=weight)


@register_shape(
    papers.TULU3,
    summary="A fixed reward for every reply that was cut off.",
    when="Replies must end by themselves.",
    example="burnish train ppo --reward 'success*10' --shape 'unfinished(-10)'",
)
def unfinished(
    task: Source,
    value: Annotated[float, Option("The reward of a reply that was cut off.")] = -10.0,
    *,
    coef: Coef = 1.0,
) -> Scorer:
    """r' = value for a reply that was cut off at max_new_tokens, else r (Tulu 3, arXiv 2411.15124: -10)."""

    def change(scored: Scored, step: Step) -> list[float]:
        cut = [trace.note.get("stopped") == "length" for trace in scored.traces]
        return [mixed(r, value if lost else r, coef) for r, lost in zip(scored.rewards, cut, strict=True)]

    return of_group(f"unfinished({value:g})", change, coef=coef)


@register_shape(
    papers.COSINE_LENGTH,
    summary="Right replies earn more when short, wrong ones lose less when long, along half a cosine.",
    when="Chains of thought grow until they are cut off, or stay too short to solve the hard problems.",
    example="burnish train ppo --shape cosine_length",
)
def cosine_length(
    task: Source,
    *,
    right_short: Annotated[float, Option("Value of a right reply of length 0.")] = 2.0,
    right_long: Annotated[float, Option("Value of a right reply of length L.")] = 1.0,
    wrong_short: Annotated[float, Option("Value of a wrong reply of length 0.")] = -10.0,
    wrong_long: Annotated[float, Option("Value of a wrong reply of length L.")] = 0.0,
    exceed: Annotated[float, Option("Value of a reply of L tokens or more, which is cut off.")] = -10.0,
    longest: Longest = None,
    repetition: Annotated[float, Option("Lost by a wrong reply in which every n-gram repeats.", at_least=0)] = 0.0,
    ngram: Annotated[int, Option("Words of an n-gram.", at_least=1)] = 20,
    coef: Coef = 1.0,
) -> Scorer:
    """The cosine length reward, in place of the reward; r' = (1 - coef) r + coef v.

        v(len) = v_L + (v_0 - v_L) (1 + cos(pi len / L)) / 2,  v_0 and v_L by whether the reply is right
        v = exceed for len >= L;   a wrong reply also loses repetition (1 - distinct / all n-grams of its words)

    The values are the paper's. Wrong replies are paid for being long: that is meant (think more). The released code
    has other defaults (1 to 0, -1 to 0, exceed 0), calls len + 16 >= L an excess, and has the repetition penalty on
    wrong replies alone; the paper's own, -0.05 for each token of a repeated 40-gram, is the reward `repeated_tokens`.
    """

    def value(trace: Trace, length: int, right: bool, step: Step) -> float:
        limit = longest or step.settings.max_new_tokens
        if length >= limit:
            found = exceed
        elif right:
            return cosine_between(right_short, right_long, length, limit)
        else:
            found = cosine_between(wrong_short, wrong_long, length, limit)
        if repetition and not right:
            words = reply_text(trace, step.models["policy"].chat).split()
            found -= repetition * repeated_share(words, ngram)
        return found

    def change(scored: Scored, step: Step) -> list[float]:
        rows = zip(scored.traces, scored.rewards, scored.lengths, scored.right, strict=True)
        return [mixed(r, value(trace, length, right, step), coef) for trace, r, length, right in rows]

    return of_group("cosine_length", change, coef=coef)


@register_shape(
    papers.ALP,
    summary="A length penalty that grows with the solve rate of the prompt: easy prompts get short replies.",
    when="Replies to easy prompts are as long as those to hard ones.",
    example="burnish train grpo --shape 'alp(beta=1e-3)'",
)
def alp(
    task: Source,
    beta: Annotated[float, Option("Lost per token by replies to a prompt that is always solved.", at_least=0)] = 1e-7,
) -> Scorer:
    """r - beta |y| max(p, 1/K), p the share of right replies among the K of the prompt.

    Wrong replies are penalised too. beta is the paper's, for replies of up to 16,384 tokens; beta max_new_tokens is
    the most that a reply can lose. Where a method divides by the group's deviation, beta cancels in groups whose
    replies are all right: only the order by length remains. Use dr_grpo, or another method without the division,
    where beta is to matter.
    """

    def change(scored: Scored, step: Step) -> list[float]:
        solved, replies = sum(scored.right), len(scored.traces)
        rows = zip(scored.rewards, scored.lengths, strict=True)
        return [r - adaptive_penalty(length, solved, replies, beta) for r, length in rows]

    return of_group(f"alp({beta:g})", change, coef=beta)


@register_shape(
    summary="Right replies are compared with the shortest and the longest reply to their prompt.",
    when="Replies should become shorter, and you do not know how long they need to be.",
    example="burnish train grpo --shape 'group_length(0.2)'",
)
def group_length(task: Source, weight: Weight = 1.0) -> Scorer:
    """r + weight l, the length reward of Kimi k1.5 (arXiv 2501.12599, section 2.3.3).

        lambda = 0.5 - (len - min len) / (max len - min len) over the replies to the prompt
        l = lambda for a right reply, min(0, lambda) for a wrong one;   0 where all lengths are equal

    The paper adds it late in training, with a weight that it does not print.
    """

    def change(scored: Scored, step: Step) -> list[float]:
        gained = group_relative_lengths(scored.lengths, scored.right)
        return [r + weight * x for r, x in zip(scored.rewards, gained, strict=True)]

    return of_group(f"group_length({weight:g})", change, coef=weight)


@register_shape(
    summary="A reply loses in proportion to its distance from a target length.",
    when="Replies should have a length that you, or a column of the data, prescribe.",
    example="burnish train grpo --shape 'target_length(40)'",
)
def target_length(
    task: Source,
    target: Annotated[int | None, Option("Tokens; by default the column `column` of a row.", at_least=0)] = None,
    alpha: Annotated[float, Option("Lost per token of distance.", at_least=0)] = 3e-4,
    column: Annotated[str, Option("The column with the target of a row.")] = "target_length",
) -> Scorer:
    """r - alpha | n_target - |y| |: LCPO-Exact of L1 (arXiv 2503.04697, Eq. 1), alpha as there.

    The paper states the target in the prompt ("Think for n tokens."); the prompts here are those of your data.
    """

    def change(scored: Scored, step: Step) -> list[float]:
        wanted = target if target is not None else _of_row(scored.group, column)
        return [r - alpha * abs(wanted - length) for r, length in zip(scored.rewards, scored.lengths, strict=True)]

    return of_group("target_length", change, coef=alpha)


@register_shape(
    summary="The reward shrinks smoothly to 0 as a reply runs over its budget of tokens.",
    when="Replies may be as short as they like but must stay within a budget.",
    example="burnish train grpo --shape 'budget_length(40, alpha=0.05)'",
)
def budget_length(
    task: Source,
    budget: Annotated[int | None, Option("Tokens; by default the column `column` of a row.", at_least=0)] = None,
    alpha: Annotated[float, Option("How steeply the factor falls, per token.", above=0)] = 3e-4,
    delta: Annotated[float, Option("The factor at exactly the budget.", at_least=0, at_most=1)] = 0.5,
    column: Annotated[str, Option("The column with the budget of a row.")] = "budget",
    coef: Coef = 1.0,
) -> Scorer:
    """r clip(alpha (n_budget - |y|) + delta, 0, 1): LCPO-Max of L1 (arXiv 2503.04697, Eq. 2), constants as there."""

    def change(scored: Scored, step: Step) -> list[float]:
        allowed = budget if budget is not None else _of_row(scored.group, column)
        rows = zip(scored.rewards, scored.lengths, strict=True)
        return [mixed(r, r * within_budget(length, allowed, alpha, delta), coef) for r, length in rows]

    return of_group("budget_length", change, coef=coef)


@register_shape(
    summary="Of the right replies to a prompt the shortest keeps its reward, each longer one a smaller share.",
    when="Right replies go on long after the answer is known.",
    example="burnish train grpo --shape 'early_exit(0.5)'",
)
def early_exit(
    task: Source,
    decay: Annotated[float, Option("The factor from one length to the next; 1: unchanged.", above=0, at_most=1)] = 0.5,
) -> Scorer:
    """r decay^k for the right replies of a group, k = 0 for the shortest; equal lengths share k; wrong ones keep r.

    The decaying reward of S-GRPO (arXiv 2505.07686), whose decay is 0.5. Departure: there a group are exits of one
    thought at several places (the method `s_grpo`); here they are independent replies in the order of their lengths.
    """

    def change(scored: Scored, step: Step) -> list[float]:
        places = shortest_first(scored.lengths, scored.right)
        return [r * decay**k for r, k in zip(scored.rewards, places, strict=True)]

    return of_group(f"early_exit({decay:g})", change, coef=1 - decay)


class OriginalLength:
    """The mean length of the replies in the first step of the run."""

    def __init__(self) -> None:
        self.name, self.value = "hawkeye_original_length", 0.0

    def state_dict(self) -> State:
        return {"value": self.value}

    def load_state_dict(self, state: State) -> None:
        self.value = float(state["value"])


@register_shape(
    papers.HAWKEYE,
    summary="A quadratic penalty for what a reply has beyond a share of the original length.",
    when="A trained reasoner should keep its answers and drop most of its thought.",
    example="burnish train grpo --shape 'hawkeye(1, share=0.3)'",
)
def hawkeye(
    task: Source,
    coef: Annotated[float, Option("lambda len_orig^2; 0 leaves the reward unchanged.", at_least=0)] = 1.0,
    share: Annotated[float, Option("The share of the original length that is free.", at_least=0, at_most=1)] = 0.3,
    original: Annotated[
        float | None, Option("len_orig in tokens; by default the mean length in the first step.", above=0)
    ] = None,
) -> Scorer:
    """R = r - lambda max(0, len - share len_orig)^2,  lambda = coef / len_orig^2.

    The paper's reward is exact match, its share 0.3; lambda is not printed, so it is relative to len_orig here: coef =
    1 takes up to (1 - share)^2 = 0.49 from a reply of the original length. The penalty applies to wrong replies too.
    In the paper a small model answers after the chain of the large one: --reward "answered_by(JUDGE)"; without it the
    answer is the policy's own. Departure: the original length is one number, not that of each chain.
    """
    memory = OriginalLength()

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        if original is None and not memory.value:
            lengths = [length for scored in batch for length in scored.lengths]
            memory.value = max(1.0, sum(lengths) / max(1, len(lengths)))
        whole = original or memory.value
        return [
            [r - coef * quadratic_excess(n, whole, share) for r, n in zip(scored.rewards, scored.lengths, strict=True)]
            for scored in batch
        ]

    return of_batch(f"hawkeye({coef:g})", change, coef=coef, state=(memory,))


def _of_row(group: Group, column: str) -> float:
    """A number from the row of a group's task."""
    found = group.task.given.get(column)
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ValueError(
            f"task {group.task.key[:60]!r} has no number in column {column!r}; add it, or give the shape a number"
        )
    return float(found)
