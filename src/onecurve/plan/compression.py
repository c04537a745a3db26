"""Fewer parameters for more tokens at equal loss (arXiv 2509.25087, appendix C.1).

With ``L = E + A N^-a + B D^-a``, a model of ``k_N`` times the compute-optimal parameters reaches the same loss with
``k_D = (2 - k_N^-a)^(-1/a)`` times its tokens, so with ``k_N k_D`` times its compute. Below ``k_N = 2^(-1/a)`` no
number of tokens is enough.
"""

from __future__ import annotations

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.measure.verdict import Rows
from onecurve.run import FloatArray

EXPONENT = 0.35
OPTIMAL = 20.0
"""Tokens per parameter of the compute-optimal model."""
SHARES = (1.0, 0.8, 0.6, 0.5, 0.45, 0.4, 0.38, 0.35, 0.3, 0.25)


def tokens_factor(share: FloatArray | float, exponent: float = EXPONENT) -> FloatArray:
    """k_D of a share k_N of the compute-optimal parameters; inf where no number of tokens reaches the loss.

    Examples:
        >>> k = 0.38
        >>> print(f"{k * tokens_factor(k):.2f} times the compute, {20 * tokens_factor(k) / k:.0f} tokens a parameter")
        1.66 times the compute, 230 tokens a parameter
    """
    if not exponent > 0:
        raise OnecurveError(f"exponent is {exponent:g}; accepted is the exponent of the loss in N and D, above 0")
    left = 2.0 - np.asarray(share, dtype=np.float64) ** -exponent
    return np.where(left > 0, np.where(left > 0, left, 1.0) ** (-1.0 / exponent), np.inf)


def share_at(tokens_per_param: float, optimal: float = OPTIMAL, exponent: float = EXPONENT) -> float:
    """The share k_N whose tokens per parameter, ``optimal k_D / k_N``, are these. Raises OnecurveError below optimal.

    Examples:
        >>> round(share_at(20.0), 6), round(share_at(234.0), 2)
        (1.0, 0.38)
    """
    if tokens_per_param < optimal * (1.0 - 1e-9):
        raise OnecurveError(
            f"{tokens_per_param:g} tokens per parameter are fewer than the compute-optimal {optimal:g}; a smaller one "
            "at equal loss has more"
        )
    low, high = 2.0 ** (-1.0 / exponent), 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (
            (middle, high)
            if optimal * float(tokens_factor(middle, exponent)) / middle > tokens_per_param
            else (low, middle)
        )
    return high


def trade_off(bands: list[float]) -> Rows:
    """The table: shares of the compute-optimal parameters, and those of a plan's tokens per parameter, marked."""
    own = {share_at(band): band for band in bands if band >= OPTIMAL}
    rows: list[tuple[str, ...]] = []
    for share in sorted({*SHARES, *own}, reverse=True):
        if any(share != s and abs(share / s - 1.0) < 0.01 for s in own):
            continue  # the plan's own band stands for its neighbour
        k = float(tokens_factor(share))
        mark = "" if share not in own else f"this plan's {own[share]:g}"
        rows.append((f"{share:.2f}", f"{k:.2f}", f"{share * k:.2f}", f"{OPTIMAL * k / share:.0f}", mark))
    return Rows("Fewer parameters for more tokens, at equal loss", ("N ×", "D ×", "compute ×", "D/N", ""), tuple(rows))
