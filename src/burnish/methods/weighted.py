"""Several models with weights, as options write them: a*0.7,b*0.3."""

from __future__ import annotations


def weighted_models(text: str, role: str) -> dict[str, tuple[str, float]]:
    """Models and their weights by the names of their roles, from `a*0.7,b*0.3`; a model alone has weight 1."""
    weighted: dict[str, tuple[str, float]] = {}
    for i, part in enumerate(text.split(",")):
        model, _, share = part.strip().partition("*")
        try:
            weight = float(share) if share else 1.0
        except ValueError:
            raise ValueError(f"the weight of {model!r} is {share!r}, not a number; write {model}*0.5") from None
        if not model or not 0 <= weight < float("inf"):
            raise ValueError(
                f"{part.strip()!r} in {text!r} is not a model with a weight of at least 0; write, say, a*0.7,b*0.3"
            )
        weighted[role if i == 0 else f"{role}{i + 1}"] = model, weight
    return weighted
