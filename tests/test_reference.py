"""The published logs of arXiv 2507.02119, against values that were computed independently of this code."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from onecurve.cli import main
from onecurve.frame import Columns
from onecurve.ladder import Ladder, families
from onecurve.laws.horizon import fit_horizon
from onecurve.logs import read
from onecurve.measure.collapse import collapse
from onecurve.measure.floor import fit_floor, point_fit
from onecurve.measure.result import Collapse
from onecurve.measure.verdict import verdict

COLUMNS = Columns(
    x="compute_pf",
    size="num_params",
    horizon="horizon_compute_pf",
    compute="horizon_compute_pf",
    held_out=True,
)
AT = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
GRID = np.array([*np.arange(0.05, 1, 0.001), 1.0])
BASE = {
    "c5m": {
        "deviation": (16.27244, 7.29135, 3.22242, 2.35584, 1.13824, 0.58326, 0.21265),
        "noise_floor": (12.32847, 9.14750, 9.20842, 9.65688, 9.40272, 9.34703, 9.54899),
        "noise_floor_normalized": (10.11614, 6.51688, 3.08648, 1.85713, 0.78814, 0.35997, 0.14663),
        "between_sizes": (12.71284, 3.25816, 0.92116, 1.44741, 0.82142, 0.45891, 0.15401),
        "ratio": (1319.91, 797.09, 349.94, 243.95, 121.05, 62.40, 22.27),
    },
    "mlp": {
        "deviation": (12.97939, 5.05969, 3.94222, 2.75246, 1.68044, 0.75476, 0.29403),
        "noise_floor": (4.33103, 2.92451, 2.60373, 2.83070, 3.08626, 2.78496, 2.78869),
        "noise_floor_normalized": (3.06995, 2.71683, 1.98609, 1.11969, 0.90696, 0.43751, 0.22296),
        "between_sizes": (12.60643, 4.27036, 3.40597, 2.51431, 1.41447, 0.61504, 0.19168),
        "ratio": (2996.84, 1730.10, 1514.07, 972.36, 544.49, 271.01, 105.44),
    },
}
# Delta and sigma with sample variances at .25, .5, .9.
SAMPLE = {
    "c5m": ((7.3842, 3.2635, 1.1527), (10.2272, 10.2953, 10.5126)),
    "mlp": ((5.1241, 3.9924, 1.7019), (3.2697, 2.9111, 3.4505)),
}
# Share of the grid below 1 and last crossing; the same below 1 / 2.5; median; RMS(Delta) / RMS(sigma) by window.
STRETCHES = {
    "c5m": (0.9232, 0.197, 0.5126, 0.599, 0.3876, (0.6817, 0.2845, 0.0880)),
    "mlp": (0.3284, 0.759, 0.1000, 0.925, 1.3586, (1.8845, 1.0275, 0.3252)),
}
BY_SIZE = {
    "c5m": {
        0.5: (14.128, 6.789, 7.738, 7.259, 7.101, 10.574, 7.820, 9.835),
        0.9: (14.819, 8.040, 8.126, 6.929, 7.017, 12.184, 8.184, 6.660),
    },
    "mlp": {
        0.5: (3.516, 4.326, 3.157, 1.507, 2.991, 0.929, 0.496, 0.928),
        0.9: (3.877, 4.021, 2.699, 2.194, 3.197, 2.960, 2.204, 3.010),
    },
}
DROPPED = {
    "c5m": {"rows that repeat the x of the row before": 8193},
    "mlp": {"copies of a run": 16},
}
# The global optimum of the floor fit: floor, its tolerance, amplitude, exponent, objective.
OPTIMUM = {
    "c5m": (3.1334329, 2e-4, 0.15643838, 0.19687894, 1.6814417e-9),
    "mlp": (0.001201242, 1e-5, 0.04278173, 0.15937521, 2.2926735e-6),
}


@dataclass
class Published:
    """One published ladder, read as a user would, and its collapse at the published floor."""

    name: str
    ladder: Ladder
    collapse: Collapse


@pytest.fixture(scope="module", params=["c5m", "mlp"])
def published(request, reference_data) -> Published:
    folder = reference_data / "qiu2025"
    table = read([folder / f"curves_{request.param}.parquet"], folder / "runs.csv", COLUMNS)
    (ladder,) = families(table.runs)
    floor = table.runs[0].config.settings["published_irreducible_loss"]
    ladder = ladder.noting(table.dropped, table.warnings)
    return Published(request.param, ladder, collapse(ladder, floor=floor, grid=GRID))


@pytest.mark.parametrize("quantity", list(BASE["c5m"]))
def test_spreads_equal_the_published_ones(published, quantity):
    c = published.collapse
    got = [1e3 * c.at(getattr(c, quantity), x) for x in AT]
    assert got == pytest.approx(BASE[published.name][quantity], rel=1e-4)


def test_sample_variances_equal_the_published_ones(published):
    c = published.collapse
    got = [[1e3 * c.at(v, x) for x in (0.25, 0.5, 0.9)] for v in (c.corrected_deviation, c.corrected_noise_floor)]
    assert got == [pytest.approx(row, rel=1e-4) for row in SAMPLE[published.name]]


def test_shares_and_crossings_equal_the_published_ones(published):
    c = published.collapse
    share, last, share_25, last_25, median, _ = STRETCHES[published.name]
    judged = c.ratio[:-1]
    assert np.mean(judged < 1) == pytest.approx(share, abs=5e-5)
    assert np.mean(judged < 1 / 2.5) == pytest.approx(share_25, abs=5e-5)
    assert np.median(judged) == pytest.approx(median, abs=5e-5)
    # The published value is the last point of the grid above; the crossing lies between it and the next.
    for crossing, published_last in zip(c.crossings, (last, last_25), strict=True):
        assert published_last <= crossing.fraction <= published_last + 0.001


def test_windows_equal_the_published_ones(published):
    c = published.collapse
    assert [(w.low, w.high) for w in c.windows] == [(0.1, 0.5), (0.5, 0.9), (0.9, 0.98)]
    assert [w.ratio for w in c.windows] == pytest.approx(STRETCHES[published.name][-1], abs=5.1e-5)


def test_noise_of_each_size_equals_the_published_one(published):
    c = published.collapse
    for x, values in BY_SIZE[published.name].items():
        got = [1e3 * c.at(row, x) for row in c.noise_floor_by_size]
        assert got == pytest.approx(values, abs=5.1e-4)


def test_copies_and_repeated_rows_are_counted(published):
    assert published.collapse.dropped == DROPPED[published.name]
    assert published.collapse.counts.tolist() == [5] * 8


def test_repeated_rows_are_those_that_the_data_set_calls_stale_and_more(reference_data):
    stale = pl.read_parquet(reference_data / "qiu2025" / "curves_c5m.parquet")["stale"].sum()
    assert 0 < stale <= DROPPED["c5m"]["rows that repeat the x of the row before"]


def test_floor_fit_reaches_the_global_optimum(published):
    floor, tolerance, amplitude, exponent, objective = OPTIMUM[published.name]
    fit = collapse(published.ladder, floor="fit").floor.fit
    assert fit is not None
    assert fit.objective <= objective * (1 + 1e-6)
    assert fit.floor == pytest.approx(floor, abs=tolerance)
    assert fit.amplitude == pytest.approx(amplitude, rel=1e-3)
    assert fit.exponent == pytest.approx(exponent, rel=1e-3)
    assert fit.interval[0] < fit.floor < fit.interval[1]
    assert fit.pinned
    assert point_fit(fit.compute, fit.loss)[0] == pytest.approx(fit.floor, rel=1e-9)


def test_floor_of_constant_rate_runs_is_held_at_zero(reference_data):
    runs = pl.read_csv(reference_data / "qiu2025" / "runs.csv").filter(pl.col("log") == "mlp_const").sort("num_params")
    fit = fit_floor(runs["horizon_compute_pf"].to_numpy(), runs["horizon_loss"].to_numpy())
    assert fit.at_zero
    assert fit.floor == 0.0
    assert fit.amplitude == pytest.approx(0.05008824, rel=1e-5)
    assert fit.exponent == pytest.approx(0.15271440, rel=1e-5)
    assert fit.objective <= 7.5656751e-7 * (1 + 1e-6)


def test_horizon_law_equals_the_published_one(reference_data):
    folder = reference_data / "qiu2025"
    law = fit_horizon(read([folder / "curves_mlp_const.parquet"], folder / "runs.csv", COLUMNS).runs, start=0.1)
    assert law.scale == pytest.approx(1346251.6, rel=1e-5)
    assert law.exponent == pytest.approx(2.040882, rel=1e-5)
    assert law.r_squared == pytest.approx(0.96593, abs=5e-6)
    assert law.exponent_interval[0] < law.exponent < law.exponent_interval[1]
    assert law.sizes.size == 6


@pytest.mark.parametrize(("points", "scale", "exponent"), [(200, 1.39922e6, 2.08270), (5000, 1.34704e6, 2.04400)])
def test_horizon_law_depends_on_the_number_of_computes_as_published(reference_data, points, scale, exponent):
    folder = reference_data / "qiu2025"
    runs = read([folder / "curves_mlp_const.parquet"], folder / "runs.csv", COLUMNS).runs
    law = fit_horizon(runs, points=points, start=0.1)
    assert law.scale == pytest.approx(scale, rel=1e-5)
    assert law.exponent == pytest.approx(exponent, rel=5e-6)


def test_verdict_at_the_default_floor(published):
    c = collapse(published.ladder)
    v = verdict(c)
    assert v.practical
    assert v.noise == "sizes differ"
    assert c.floor.how == "fit"
    assert str(c) == str(collapse(published.ladder))
    crossing = {"c5m": 0.11, "mlp": 0.73}[published.name]
    assert c.crossings[0].corrected == pytest.approx(crossing, abs=0.02)


def test_a_floor_of_zero_is_said_to_change_the_answer_on_c5m(published):
    said = any("with floor 0 the sizes do not agree" in s for s in verdict(collapse(published.ladder)).sentences)
    assert said == (published.name == "c5m")


def test_command_line_reads_the_published_files(published, reference_data, tmp_path, monkeypatch, capsys):
    folder, out = reference_data / "qiu2025", tmp_path / "out.json"
    floor = repr(published.collapse.floor.value)
    options = ["--x", "compute_pf", "--size", "num_params", "--horizon", "horizon_compute_pf", "--held-out"]
    files = [str(folder / f"curves_{published.name}.parquet"), "--runs", str(folder / "runs.csv")]
    monkeypatch.setattr(sys, "argv", ["onecurve", "collapse", *files, *options, "--floor", floor, "--json", str(out)])
    main_code = 0
    try:
        main()
    except SystemExit as end:
        main_code = int(end.code or 0)
    assert main_code == 0
    assert "8 sizes" in capsys.readouterr().out
    got = json.loads(out.read_text())
    assert got["dropped"] == DROPPED[published.name]
    assert len(got["runs"]) == 40
    expected = collapse(published.ladder, floor=published.collapse.floor.value)
    assert np.array_equal(got["deviation"], expected.deviation)
    assert [row["n_params"] for row in got["sizes"]] == expected.sizes.tolist()
