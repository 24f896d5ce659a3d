"""From the answers of judges to numbers: pure functions, without models and without text."""

from __future__ import annotations

import math
from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the answers that could be read; None where none could. A failure is never a value of its own."""
    read = [value for value in values if value is not None]
    return sum(read) / len(read) if read else None


def voted(samples: Sequence[Sequence[float] | None]) -> list[float] | None:
    """S_i = sum over samples of the score of reply i; samples that could not be read do not vote (SPCT).

    (4, 6) and (8, 5) give (12, 11): a loud sample outweighs a quiet one.
    """
    read = [sample for sample in samples if sample is not None]
    return [sum(column) for column in zip(*read, strict=True)] if read else None


def unshuffled(values: Sequence[float], order: Sequence[int]) -> list[float]:
    """Values in the order of the replies: values[k] belongs to reply order[k]."""
    ordered = [0.0] * len(values)
    for place, reply in enumerate(order):
        ordered[reply] = values[place]
    return ordered


def both_orders(first: float | None, second: float | None) -> float | None:
    """P(y better than z) = (p(y | y first) + 1 - p(z | z first)) / 2, with p the probability of the reply shown first.

    (0.8, 0.4) gives 0.7; equal texts give the same question twice, so exactly 1/2. None where an order has no answer.
    """
    if first is None or second is None:
        return None
    return 0.5 * (first + (1.0 - second))


def weighted_checklist(scores: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """sum w_i s_i / sum w_i / 100 over the items with a score (0 to 100), clipped to [0, 1] (RLCF).

    (80, weight 100) and (50, weight 50) give 0.70. None where no item has a score, or all of those weigh nothing.
    """
    pairs = [(s, w) for s, w in zip(scores, weights, strict=True) if s is not None]
    total = sum(w for _, w in pairs)
    if total <= 0:
        return None
    return min(1.0, max(0.0, sum(s * w for s, w in pairs) / total / 100))


def with_program(judged: float | None, passed: bool) -> float:
    """(judge + 100 [program passes]) / 2; the program alone where the judge gave nothing (RLCF)."""
    return 100.0 * passed if judged is None else (judged + 100.0 * passed) / 2


def kendall(given: Sequence[float], truth: Sequence[float]) -> float:
    """tau-a = (concordant - discordant) / (N (N - 1) / 2) over the pairs; a tie in `given` counts 0 (URPO).

    A tie in `truth` has no right order and is left out of the sum and of the number of pairs. One inverted pair of
    three: 1/3. Fewer than two replies, or no pair with an order: 0.
    """
    total = pairs = 0
    for i in range(len(given)):
        for j in range(i + 1, len(given)):
            right = _sign(truth[i] - truth[j])
            pairs += right != 0
            total += right * _sign(given[i] - given[j])
    return total / pairs if pairs else 0.0


def best_is_strictly_first(given: Sequence[float], best: int) -> bool:
    """Whether the truly best reply has a strictly higher score than all others (SPCT's rule): a tie is wrong."""
    return all(given[best] > score for i, score in enumerate(given) if i != best)


def graded_agreement(verdict: int, label: int) -> float:
    """1 where the verdict in -3 ... 3 is the label, 1/2 where only its sign is, else 0 (Think-RM)."""
    if verdict == label:
        return 1.0
    return 0.5 if verdict * label > 0 else 0.0


def pair_strengths(differences: Matrix) -> list[float]:
    """s_i = (1/G) sum over j of d_ij: the mean lead of reply i over the group (d_ii = 0, d_ji = -d_ij)."""
    return [sum(row) / len(row) for row in differences]


def pair_advantages(differences: Matrix, eps: float = 1e-6) -> list[float]:
    """A_i = s_i / sqrt( sum over ordered pairs of d^2 / (2 G (G - 1)) + eps ) (Think-RM).

    If d_ij = r_i - r_j, the divisor is the unbiased standard deviation of r: GRPO's advantage. G = 2 and d_12 = 3:
    1.5 / 2.1213 = 0.7071. Without any difference, or for one reply, all are 0.
    """
    size = len(differences)
    if size < 2:
        return [0.0] * size
    squares = sum(d * d for row in differences for d in row)
    divisor = math.sqrt(squares / (2 * size * (size - 1)) + eps)
    return [strength / divisor for strength in pair_strengths(differences)]


def principle_score(first: float | None, second: float | None) -> float | None:
    """The mean of the two orders' logit differences, in favour of reply 1, if their signs agree; None: it abstains.

    SALMON; (2, 1) gives 1.5, (1, -0.5) abstains.
    """
    if first is None or second is None or first * second <= 0:
        return None
    return (first + second) / 2


def decisive(scores: Sequence[float | None]) -> int | None:
    """The place of the score with the largest absolute value, the first of equals; None where all abstain (SALMON)."""
    scored = [(abs(score), -i) for i, score in enumerate(scores) if score is not None]
    return -max(scored)[1] if scored else None


def margin(better: float, worse: float, largest: float) -> float:
    """|difference| / largest, in (0, 1]: the margin of a pair (UltraFeedback; RECONSTRUCTED normalisation).

    Mean ratings of 4.5 and 3.5 on a scale of 1 to 5 give 0.25.
    """
    return min(1.0, abs(better - worse) / largest)


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)
