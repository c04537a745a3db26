"""Predict the largest run of a ladder from the smaller ones, with a band, and hold it against what it did."""

from pathlib import Path

import numpy as np

from onecurve import read
from onecurve.ladder import select
from onecurve.laws.final import FinalLoss
from onecurve.laws.score import calibrated

here = Path(__file__).parent
runs = select(read([here / "demo" / "curves.parquet"], here / "demo" / "runs.csv").runs, "parameterisation=mup")
largest = max(run.config.n_params for run in runs)
small = [run for run in runs if run.config.n_params < largest]

law, notes = calibrated(FinalLoss.fit(small), small)
print(law)
for note in notes:
    print(f"note: {note}")

run = next(run for run in runs if run.config.n_params == largest)
curve = run.curve()
x = np.array([0.1, 0.25, 0.5, 0.75, 1.0]) * run.end
low, high = law.interval(run, x)
print(f"\n{run.config.name}, not seen by the fit:\n     x  predicted            band    loss")
for at, value, a, b, loss in zip(x, law.predict(run, x), low, high, np.interp(x, curve.x, curve.loss), strict=True):
    print(f"{at / run.end:6.2f}  {value:9.4f}  {a:.4f} to {b:.4f}  {loss:.4f}")
