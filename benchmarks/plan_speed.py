"""How long a plan of many rungs takes: shapes by parameter count, every rung resolved, tables made.

python benchmarks/plan_speed.py [rungs]
"""

import sys
import time

from onecurve.plan.recipe import Recipe
from onecurve.plan.rungs import rungs
from onecurve.plan.words import remarks, tables


def content(count: int) -> dict:
    """Twenty bands of a twentieth as many sizes each, from 100M to 1T parameters."""
    return {
        "task": {"kind": "tokens"},
        "model": {"kind": "transformer", "vocabulary": 32768, "context": 4096, "head_size": 64},
        "ladder": {
            "params": {"smallest": 1e8, "largest": 1e12, "count": count // 20},
            "aspect": 100.0,
            "base_width": 64,
            "base_layers": 1,
            "parameterisations": ["completep"],
        },
        "optimiser": {
            "learning_rate": 0.01,
            "timescale": "power-lines",
            "batch": {"batch": 2**18, "tokens": 2e9, "exponent": 0.383},
        },
        "schedule": {"shape": "linear", "warmup": 0.1},
        "horizon": {"bands": [20.0 * 1.15**k for k in range(20)]},
    }


def main(count: int) -> None:
    text = content(count)
    best = {}
    for _ in range(5):
        marks = [time.perf_counter()]
        recipe = Recipe.model_validate(text)
        marks.append(time.perf_counter())
        planned = rungs(recipe)
        marks.append(time.perf_counter())
        tables(planned, 989e12, 0.4)
        remarks(recipe, planned, 989e12, 0.4)
        marks.append(time.perf_counter())
        for name, a, b in zip(("recipe", "rungs", "tables"), marks, marks[1:], strict=False):
            best[name] = min(best.get(name, 9e9), b - a)
    parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in best.items())
    print(f"{len(planned)} rungs in {sum(best.values()):.3f} s ({parts}; best of five)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
