"""Chi-squared penalties on whole replies."""

from __future__ import annotations

from burnish.learn.maths.shapes import AnyShape

TANGENT = 10.0  # beyond this, e^x goes on as its tangent: a clip would lose the gradient where it matters


def bounded_exp(x: AnyShape) -> AnyShape:
    """e^x up to 10, then its tangent e^10 (1 + x - 10)."""
    inside = x.clamp(max=TANGENT)
    return inside.exp() * (1 + (x - inside))
