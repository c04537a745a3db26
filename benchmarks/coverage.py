"""Coverage of the intervals for sigma, Delta and Delta / sigma at two, three and five seeds a size.

Families are simulated with known truth: sizes whose normalised curves differ by a set amount, seeds with noise that
partly lasts to the end of the run (and so divides out) and partly does not, as in the published logs. Prints the
share of nominal 90 % intervals that hold the truth, pointwise at x = .5 and for the root mean square over [.5, .9].

    python benchmarks/coverage.py [families]
"""

import sys

import numpy as np

from onecurve.measure.moments import centre, deviation, moments, noise_floor
from onecurve.measure.uncertainty import experiments, noise_interval, window_ratio

GRID = np.linspace(0.02, 1.0, 50)
SIZES = 6


def family(rng: np.random.Generator, seeds: int, between: float) -> np.ndarray:
    """(SIZES * seeds, G) reducible losses; ``between`` scales the size effects, relative to a noise of 1 %."""
    end = 0.008 * rng.standard_normal((SIZES * seeds, 1))  # lasts to the end: in sigma, not in Delta
    walk = np.cumsum(rng.standard_normal((SIZES * seeds, GRID.size)), axis=1)
    walk = 0.006 * (walk - walk[:, -1:]) / np.sqrt(GRID.size)
    effect = np.linspace(-1, 1, SIZES)[:, None] * np.sin(np.pi * GRID) * 0.01 * between
    height = np.log(GRID**-0.3)
    return np.exp(np.repeat(height + effect, seeds, axis=0) + end + walk)


def estimates(reducible: np.ndarray, seeds: int):
    counts = np.full(SIZES, seeds)
    ell = reducible / reducible[:, -1:]
    return ell, counts, moments(ell, counts), moments(reducible, counts)


def main(families: int) -> None:
    middle = int(np.argmin(abs(GRID - 0.5)))
    window = (GRID >= 0.5) & (GRID < 0.9)
    print(f"{families} families of {SIZES} sizes, nominal 90 %\n")
    print("seeds  between/noise |  sigma(.5)  Delta(.5)  ratio(.5)  rms ratio [.5, .9]")
    for between in (0.0, 0.5, 2.0):
        _, _, ell, raw = estimates(family(np.random.default_rng(1), 20_000, between), 20_000)
        true_delta, true_sigma = deviation(ell), noise_floor(raw)
        true = [
            true_sigma[middle],
            true_delta[middle],
            (true_delta / true_sigma)[middle],
            window_ratio(true_delta, true_sigma, window),
        ]
        for seeds in (2, 3, 5):
            hits = np.zeros(4)
            rng = np.random.default_rng([seeds, int(10 * between)])
            for i in range(families):
                reducible = family(rng, seeds, between)
                normalised, _, ell, raw = estimates(reducible, seeds)
                exp = experiments(normalised, reducible, ell, raw, seed=i, draws=400)
                assert exp is not None
                delta, sigma = deviation(ell, 1), noise_floor(raw, 1)
                ratios = exp.deviation / exp.noise_floor
                windows = exp.window_ratios(delta, sigma, window)
                intervals = [
                    noise_interval(raw)[:, middle],
                    exp.interval(delta, exp.deviation)[:, middle],
                    exp.interval(delta / sigma, ratios)[:, middle],
                    exp.interval(window_ratio(delta, sigma, window), windows),
                ]
                hits += [low <= t <= high for (low, high), t in zip(intervals, true, strict=True)]
            row = "  ".join(f"{h / families:9.1%}" for h in hits)
            print(f"{seeds:5d}  {between:13.1f} | {row}")
    print(
        f"\nbinomial standard error at 90 %: {np.sqrt(0.09 / families):.1%}; centre of the curve at .5: "
        f"{centre(ell)[middle]:.2f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
