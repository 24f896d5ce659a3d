"""A curriculum of failed tasks, of which a critic expects neither success nor failure (WebRL, arXiv 2411.02337)."""

from __future__ import annotations

PLACE = "place"  # in Task.given: the index of the task in its source
