"""Chi-squared penalties on whole replies."""

from __future__ import annotations

from torch import Tensor

TANGENT = 10.0  # beyond this, e^x goes on as its tangent: a clip would lose the gradient where it matters


def bounded_exp(x: Tensor) -> Tensor:
    """e^x up to 10, then its tangent e^10 (1 + x - 10)."""
    inside = x.clamp(max=TANGENT)
    return inside.exp() * (1 + (x - inside))


def symmetric_chi2(log_ratio: Tensor) -> Tensor:
    """(e^L - 1) + (e^-L - 1), L = log pi(y|x) - log ref(y|x) of a whole reply (Laidlaw et al., arXiv 2403.03185).

    Shape [R]. Under samples of pi the first bracket estimates chi2(pi || ref); the second is a control variate, which
    makes it 0 and flat at pi = ref. Its gradient is (e^L - e^-L) grad L, as in the authors' code.
    """
    return bounded_exp(log_ratio) + bounded_exp(-log_ratio) - 2
