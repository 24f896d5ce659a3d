"""What a checkpoint holds of a part. A module of its own: workers that score replies import it, and not torch."""

from __future__ import annotations

from typing import Any

State = dict[str, Any]  # JSON-able values and tensors
