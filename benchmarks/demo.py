"""The demo as a new user runs it: wall time, how tightly each ladder collapses, and whether the rate is near its best.

python benchmarks/demo.py [folder]        # trains unless the folder holds a finished demo
"""

import subprocess
import sys
import time
from pathlib import Path

from demo_search import line, main, rms_ratio
from onecurve import collapse, families, read
from onecurve.plan.recipe import EXAMPLES, jobs, load_recipe


def demo(folder: Path) -> None:
    recipe = load_recipe(EXAMPLES / "demo.toml")
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "onecurve", "demo", "--out", str(folder)], check=True, stdout=subprocess.DEVNULL
    )
    print(f"wall time of the whole demo: {time.perf_counter() - began:.0f} s")
    sizes = [recipe.n_params(r.size) for r in jobs(recipe)]
    print(f"sizes {sizes}: N spans {sizes[-1] / sizes[0]:.2f} x; {recipe.evaluation.samples} shared held-out samples")
    results = [collapse(ladder) for ladder in families(read([folder / "runs"]).runs)]
    for c in results:
        print(line(c))
    mup, standard = (next(rms_ratio(c) for c in results if word in c.name) for word in ("mup", "standard"))
    print(f"rms of Delta / sigma on [.6, .95]: {mup:.2f} under muP, {standard:.2f} without: {standard / mup:.2f} x")
    rate = recipe.optimiser.learning_rate
    print(f"\nfinal loss at the base width around the demo's rate {rate}:")
    main(folder / "rates", ["--rates", *(f"{rate * f:.5f}" for f in (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83))])


if __name__ == "__main__":
    demo(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
