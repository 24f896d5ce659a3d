"""The best assignment of rows to columns of a matrix of credits."""

from __future__ import annotations

import math
from collections.abc import Sequence


def best_assignment(credit: Sequence[Sequence[float]]) -> float:
    """The largest sum of credits when each row takes at most one column and each column belongs to at most one row.

    The Hungarian algorithm with potentials, O(n^3); rows and columns are filled up with zeros.
    """
    size = max(len(credit), *(len(row) for row in credit)) if credit else 0
    cost = [
        [-credit[i][j] if i < len(credit) and j < len(credit[i]) else 0.0 for j in range(size)] for i in range(size)
    ]
    of_row, of_column = [0.0] * (size + 1), [0.0] * (size + 1)
    owner = [0] * (size + 1)  # the row of each column, from 1; column 0 holds the row that is being placed
    for row in range(1, size + 1):
        owner[0], column = row, 0
        least, before, used = [math.inf] * (size + 1), [0] * (size + 1), [False] * (size + 1)
        while owner[column]:
            used[column] = True
            step, following = math.inf, 0
            for j in range(1, size + 1):
                if not used[j]:
                    reduced = cost[owner[column] - 1][j - 1] - of_row[owner[column]] - of_column[j]
                    if reduced < least[j]:
                        least[j], before[j] = reduced, column
                    if least[j] < step:
                        step, following = least[j], j
            for j in range(size + 1):
                if used[j]:
                    of_row[owner[j]] += step
                    of_column[j] -= step
                else:
                    least[j] -= step
            column = following
        while column:
            owner[column] = owner[before[column]]
            column = before[column]
    return -sum(cost[owner[j] - 1][j - 1] for j in range(1, size + 1))
