"""Coverage of the fitted timescale law: its exponent, and tau at 80 tokens per parameter, on synthetic sweeps.

Truth: tau = 1.084 TPP^-.527. Each draw has sweeps at 20, 40, 80, 160 and 320 tokens per parameter of eight decays, a
factor 2 apart, on a grid whose place is random; a log loss that rises by 1 % at a factor 4 from the best timescale,
more below it than above where it is skewed; noise of .1 % a run, as seeds of language models have it, and as much again
that the runs of a seed share.

    python benchmarks/timescale_coverage.py [draws]
"""

import sys

import numpy as np

from onecurve.errors import OnecurveError
from onecurve.laws.optimum import Sweep, power_law

SCALE, EXPONENT = 1.084, -0.527
LEVELS = (20.0, 40.0, 80.0, 160.0, 320.0)
DEPTH = 0.01 / np.log(4.0) ** 2


def sweeps(rng: np.random.Generator, seeds: int, noise: float, skew: float) -> list[Sweep]:
    """One draw; ``skew`` bends the parabola by a cubic part, relative to the square one at a factor 4."""
    out = []
    for tpp in LEVELS:
        best = np.log(SCALE) + EXPONENT * np.log(tpp)
        grid = best + np.log(2.0) * (np.arange(8) - 3.5 + rng.uniform(-1.0, 1.0))
        u = np.tile(grid, seeds)
        away = u - best
        label = np.repeat(np.arange(seeds), 8)
        luck = noise * rng.standard_normal(seeds)
        log = DEPTH * away**2 * (1.0 - skew * away / np.log(4.0)) + luck[label] + noise * rng.standard_normal(u.size)
        out.append(Sweep(tpp, f"{tpp:g}", np.exp(u), 2.5 * np.exp(log), tuple(map(str, label))))
    return out


def coverage(draws: int, seeds: int, noise: float, skew: float = 0.0) -> tuple[int, int, int, float]:
    """How many intervals hold the exponent, and tau at 80; how many draws were refused; the median half-width."""
    rng = np.random.default_rng(0)
    exponent = at_80 = refused = 0
    widths = []
    for _ in range(draws):
        try:
            law = power_law(sweeps(rng, seeds, noise, skew), "timescale", "tokens per parameter")
        except OnecurveError:
            refused += 1
            continue
        low, high = law.exponent_interval
        below, above = law.interval(80.0)
        exponent += low <= EXPONENT <= high
        at_80 += below <= SCALE * 80.0**EXPONENT <= above
        widths.append((high - low) / 2)
    return exponent, at_80, refused, float(np.median(widths))


def main(draws: int) -> None:
    print(f"{draws} draws, nominal 90 %\n\nseeds  noise   skew |  exponent  tau at 80  refused  half-width")
    cases = ((1, 0.0005, 0.0), (1, 0.001, 0.0), (1, 0.002, 0.0), (2, 0.001, 0.0), (1, 0.001, 0.2), (1, 0.001, 0.4))
    for seeds, noise, skew in cases:
        exponent, at_80, refused, width = coverage(draws, seeds, noise, skew)
        print(f"{seeds:5}  {noise:.2%}  {skew:5.1f} |  {exponent:8}  {at_80:9}  {refused:7}  {width:10.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
