"""The noisy-quadratic model of learning-rate schedules: a decayed run from constant-rate runs of its size.

At equal gradient-flow time tau (the rate summed over training) a run whose rate is s of its peak has less gradient
noise in its loss than a constant-rate run has. Qiu et al. (arXiv 2507.02119, eqs. 15-16)::

    L(tau) = L_ref(tau) + c (s - 1) g,    g the trace of the preconditioned gradient covariance, c = 1/4 in theory

with g measured on the decayed run itself: `OwnNoise`. To predict, g must come from the reference: `NoisyQuadratic`. A
run that reached the same tau with smaller steps has *more* noise than the reference, by a power of the mean of s along
its path, and the loss follows the rate with a lag::

    L(tau) = L_ref(tau) + c [(1 - a)(s - 1) + a (s_lag - 1)] g_ref(tau) S^-b

with S the mean of s over tau with weight tau^4 and s_lag the mean with weight tau^100 (s about 1 % of tau ago). This
form is our own; what it gains is in docs/laws.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from onecurve.errors import OnecurveError
from onecurve.fit import FloatArray
from onecurve.ladder import by_size
from onecurve.laws.estimate import Points, solve, usable
from onecurve.laws.law import Array, Intervals, Law, Report, Scope, bootstrap_only, equally_long
from onecurve.laws.path import DECAYED, Path, constant_rate, path_of
from onecurve.run import Run, human

CONSTANTS = (0.25, 0.2, 0.23)
"""c, a and b from the published transformer runs; used where no decayed run is given to fit them to."""
MEAN, LAG = 4.0, 100.0
"""Weights of the two means of s along the path, chosen on the transformers and held for the MLPs."""
WIDTH = 0.04
"""Width in log tau over which the reference losses are smoothed."""


@dataclass(frozen=True)
class Reference:
    """Loss and gradient noise of the constant-rate runs of one size, against log gradient-flow time."""

    n_params: float
    log_tau: Array
    loss: Array
    log_noise: Array
    """Log of the trace at each log tau: a polynomial of degree 5 through what was logged."""

    def __post_init__(self) -> None:
        equally_long(log_tau=self.log_tau, loss=self.loss, log_noise=self.log_noise)

    def at(self, tau: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss and noise; nan beyond the longest reference run."""
        u = np.log(np.maximum(tau, np.exp(self.log_tau[0])))
        beyond = u > self.log_tau[-1] + 1e-3
        loss = np.where(beyond, np.nan, np.interp(u, self.log_tau, self.loss))
        return loss, np.exp(np.interp(u, self.log_tau, self.log_noise))


@dataclass(frozen=True)
class NoisyQuadratic(Law):
    """A decayed run from constant-rate runs of its size; the target's own noise is not looked at."""

    c: float
    lag_share: float
    """a: the share of the response that follows the rate with a lag."""
    path_power: float
    """b: how the noise grows where the path was walked with smaller steps."""
    references: tuple[Reference, ...]

    name: ClassVar[str] = "noisy-quadratic"
    about: ClassVar[str] = "any schedule, from constant-rate runs of the same size and their gradient noise"
    needs: ClassVar[str] = (
        "constant-rate runs that log gradient_noise, at each size to be predicted; decayed runs to fit the constants"
    )
    reach: ClassVar[str] = "other schedules and horizons, up to the references' summed rate; not other sizes"
    over: ClassVar[str] = "schedule"

    @classmethod
    def fit(cls, runs: Sequence[Run], loss: str | None = None, *, intervals: Intervals = "bootstrap") -> Self:
        """Tables from the constant-rate runs, constants from the decayed ones (published ones where there are none).

        Raises OnecurveError where no run has a constant rate, one logs no gradient noise, or all rates are constant
        at sizes that also have decayed runs to predict but lack a reference.
        """
        scope = Scope.of(runs, cls.name)
        constant, decayed = split(runs)
        references = tuple(reference(group, loss) for group in peers(constant).values())
        tables = {r.n_params: r for r in references}
        for run in decayed:
            table_for(run, tables)
        if not decayed:
            c, a, b = CONSTANTS
            note = (
                "no decayed run among the data: c, lag_share and path_power are those of the published transformer "
                "runs, not fitted here"
            )
            points = sum(len(run.curve(loss)) for run in constant)
            report = Report(runs=len(constant), points=points, warnings=(note,))
            return cls(report, c, a, b, references, scope=scope)
        points, columns = _decayed_points(decayed, loss, tables)
        base, drop, lagging, noise, log_mean = columns

        def model(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            c, a, b = p[:, :1], p[:, 1:2], p[:, 2:]
            response = (1 - a) * drop + a * lagging
            scale = noise * np.exp(-b * log_mean)
            slope = [response * scale, c * (lagging - drop) * scale, -c * response * scale * log_mean]
            return base + c * response * scale, np.stack(slope, axis=-1)

        starts = np.array([[c, a, b] for c in (0.15, 0.3) for a in (0.1, 0.4) for b in (0.0, 0.5)])
        names = ("c", "lag_share", "path_power")
        got = solve(
            names, model, points, starts, [0.0, 0.0, 0.0], [5.0, 1.0, 5.0], weights=points.by_stretch(),
            allowed_at=("lag_share", "path_power"), intervals=intervals,
        )  # fmt: skip
        c, a, b = map(float, got.values)
        return cls(got.report, c, a, b, references, scope=scope)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x; nan where the run's summed rate goes beyond its references.

        Raises OnecurveError for a size without a reference.
        """
        table = table_for(run, {r.n_params: r for r in self.references})
        base, drop, lagging, noise, log_mean = features(path_of(run), x, table)
        response = (1 - self.lag_share) * drop + self.lag_share * lagging
        return base + self.c * response * noise * np.exp(-self.path_power * log_mean)


@dataclass(frozen=True)
class OwnNoise(Law):
    """The published form: the decayed run's own gradient noise is looked at, so it explains but does not predict."""

    c: float
    references: tuple[Reference, ...]

    name: ClassVar[str] = "noisy-quadratic-own"
    about: ClassVar[str] = "the published schedule law, given the gradient noise of the run itself"
    needs: ClassVar[str] = "constant-rate runs of each size; gradient_noise logged on the decayed runs"
    reach: ClassVar[str] = "explains finished runs; predicts none, because it needs their own gradient noise"
    over: ClassVar[str] = "schedule"

    @classmethod
    def fit(
        cls,
        runs: Sequence[Run],
        loss: str | None = None,
        *,
        c: float | None = None,
        intervals: Intervals = "bootstrap",
    ) -> Self:
        """Tables from the longest constant-rate run of each size, linear between its points as published; c by least
        squares over the points at which the rate has decayed, unless it is given.
        """
        bootstrap_only(cls.name, intervals)
        scope = Scope.of(runs, cls.name)
        constant, decayed = split(runs)
        references = tuple(
            _longest(max(group, key=lambda r: r.curve(loss).x[-1]), loss) for group in peers(constant).values()
        )
        law = cls(Report(), 0.0 if c is None else c, references)
        top = bottom = 0.0
        points = 0
        for run in decayed:
            curve = run.curve(loss).finite()
            curve_x, values = curve.x[decayed_at(run, curve.x)], curve.loss[decayed_at(run, curve.x)]
            base, slope = law.parts(run, curve_x)
            ok = np.isfinite(base)
            top += float((slope * (values - base))[ok].sum())
            bottom += float((slope * slope)[ok].sum())
            points += int(ok.sum())
        if c is None:
            if not bottom > 0:
                raise OnecurveError(
                    "c cannot be fitted: no point of any run has a rate below its peak after the warmup; add decayed "
                    "runs, or give c (1/4 in theory)"
                )
            c = top / bottom
        return cls(Report(runs=len(runs), points=points), float(c), references, scope=scope)

    def parts(self, run: Run, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Reference loss, and what c multiplies: ``(s - 1) g``."""
        table = table_for(run, {r.n_params: r for r in self.references})
        if "gradient_noise" not in run.signals:
            raise OnecurveError(
                f"{run.where}: does not log its gradient_noise, which this law reads off the run itself; "
                "noisy-quadratic does without it"
            )
        noise = run.signals["gradient_noise"]
        base = np.interp(flow_time(run, x), np.exp(table.log_tau), table.loss, right=np.nan)
        return base, (rate(run, x) - 1.0) * np.interp(x, noise.x, noise.value)

    def values(self, run: Run, x: FloatArray) -> FloatArray:
        """Loss at each x from the run's own gradient noise."""
        base, slope = self.parts(run, x)
        return base + self.c * slope


def transferred(reference: ArrayLike, ratio: ArrayLike, drop: ArrayLike, c: float = 0.25) -> FloatArray:
    """Reducible loss of a decayed run whose noise is a known share of its loss (arXiv 2507.02119, eq. 18).

    ``R / (1 - c h (s - 1))`` with R the reducible loss of the constant-rate run at the same tau, ``ratio`` h the
    gradient noise over the reducible loss, which a schedule has in common for all sizes (eq. 17), and ``drop`` s - 1.
    """
    r, h, d = (np.asarray(v, dtype=np.float64) for v in (reference, ratio, drop))
    return r / (1.0 - c * h * d)


def transferred_curve(curve: ArrayLike, ratio: ArrayLike, drop: ArrayLike, c: float = 0.25) -> FloatArray:
    """Normalised curve under a schedule from the normalised constant-rate curve at the same tau (eq. 21).

    ``l (1 - c h(1) d(1)) / (1 - c h d)``; the last entries are those at the end of training.
    """
    out = transferred(curve, ratio, drop, c)
    return out / out[..., -1:]


def split(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Constant-rate runs and decayed ones."""
    constant, decayed = [], []
    for run in runs:
        path_of(run)  # raises where its rate is not known
        (constant if constant_rate(run) else decayed).append(run)
    if not constant:
        raise OnecurveError(
            f"none of the {len(runs)} runs has a constant rate; a schedule is predicted from constant-rate runs of "
            "the same size: add one that is as long as the largest summed rate"
        )
    return constant, decayed


def peers(runs: Sequence[Run]) -> dict[float, list[Run]]:
    """The runs of each size, which must share their peak learning rate."""
    groups = by_size(runs)
    for n, group in groups.items():
        rates = {run.config.learning_rate for run in group}
        if len(rates) > 1:
            raise OnecurveError(
                f"size {human(n)}: its constant-rate runs have different peak learning rates "
                f"({', '.join(map(str, sorted(map(str, rates))))}); a reference shares the peak of what it predicts: "
                "fit one peak at a time"
            )
    return groups


def table_for(run: Run, tables: dict[float, Reference]) -> Reference:
    """The reference of a run's size."""
    n = run.config.n_params
    if n not in tables:
        raise OnecurveError(
            f"{run.where}: no constant-rate run of its size ({human(n)}) among the references; there are "
            f"{', '.join(human(v) for v in sorted(tables)) or 'none'}: this law does not carry over sizes"
        )
    return tables[n]


def reference(runs: Sequence[Run], loss: str | None) -> Reference:
    """Loss and noise of all constant-rate runs of one size together, smoothed in log gradient-flow time."""
    taus, losses, noise_tau, noises = [], [], [], []
    for run in runs:
        if "gradient_noise" not in run.signals:
            raise OnecurveError(
                f"{run.where}: does not log gradient_noise (the trace of the preconditioned gradient covariance), "
                "from which this law takes the effect of a schedule; log it, or use decayed-power, which needs none"
            )
        path, curve, noise = path_of(run), run.curve(loss).finite(), run.signals["gradient_noise"]
        for x, values, xs, ys in ((curve.x, curve.loss, taus, losses), (noise.x, noise.value, noise_tau, noises)):
            tau = path.at(x, path.tau)
            good = (tau > 0) & (values > 0)
            xs.append(np.log(tau[good]))
            ys.append(values[good])
    u, y = np.concatenate(taus), np.concatenate(losses)
    v, z = np.concatenate(noise_tau), np.log(np.concatenate(noises))
    if u.size < 8 or v.size < 8:
        raise OnecurveError(
            f"size {human(runs[0].config.n_params)}: {u.size} losses and {v.size} gradient noises at a constant rate "
            "are too few for a reference (8 each)"
        )
    at = np.linspace(u.min(), u.max(), 1 + int(np.ceil((u.max() - u.min()) / (WIDTH / 4))))
    return Reference(runs[0].config.n_params, at, smooth(u, y, at, WIDTH), trend(v, z, at))


def smooth(u: FloatArray, y: FloatArray, at: FloatArray, width: float) -> FloatArray:
    """Local quadratic with a Gaussian window; the line through the nearest points where the window holds too few."""
    order = np.argsort(u, kind="stable")
    u, y = u[order], y[order]
    out = np.empty(at.size)
    starts, ends = np.searchsorted(u, at - 3 * width), np.searchsorted(u, at + 3 * width)
    for k, (centre, i, j) in enumerate(zip(at, starts, ends, strict=True)):
        if j - i < 6:
            out[k] = np.interp(centre, u, y)
            continue
        d = u[i:j] - centre
        w = np.exp(-0.5 * (d / width) ** 2)
        m = np.array([np.sum(w * d**p) for p in range(5)])
        normal = m[np.add.outer(np.arange(3), np.arange(3))] * np.outer(*[width ** -np.arange(3.0)] * 2)
        right = np.array([np.sum(w * y[i:j] * d**p) for p in range(3)]) * width ** -np.arange(3.0)
        out[k] = np.linalg.solve(normal + 1e-9 * m[0] * np.eye(3), right)[0]
    return out


def trend(u: FloatArray, z: FloatArray, at: FloatArray) -> FloatArray:
    """A polynomial of degree 5 through z against u, all but the first twentieth of the points, held flat before."""
    order = np.argsort(u, kind="stable")
    u, z = u[order][u.size // 20 :], z[order][u.size // 20 :]
    fit = np.polynomial.Polynomial.fit(u, z, min(5, u.size // 3))
    return fit(np.clip(at, u[0], u[-1]))


def features(
    path: Path, x: FloatArray, table: Reference
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """At each x: reference loss, s - 1 and its lagging mean, reference noise, and log of the mean of s."""
    loss, noise = table.at(path.at(x, path.tau))
    mean = np.maximum(path.at(x, path.mean(MEAN)), 1e-6)
    return loss, path.at(x, path.after_warmup) - 1.0, path.at(x, path.mean(LAG)) - 1.0, noise, np.log(mean)


def decayed_at(run: Run, x: FloatArray) -> np.ndarray:
    """Points after the warmup from the first one on at which the rate has decayed."""
    s = rate(run, x)
    warm = np.maximum.accumulate(s >= 0.999)
    return np.maximum.accumulate(warm & (s - 1.0 < DECAYED - 1.0))


def rate(run: Run, x: FloatArray) -> FloatArray:
    """The rate over its peak, as logged where it was, else from the path."""
    if "learning_rate" not in run.signals:
        path = path_of(run)
        return path.at(x, path.s)
    logged = run.signals["learning_rate"]
    peak = float(logged.value.max())
    # The first logged rate may already be a little below the peak.
    told = run.config.learning_rate or peak
    return np.interp(x, logged.x, logged.value) / (told if abs(told / peak - 1.0) < 0.01 else peak)


def flow_time(run: Run, x: FloatArray) -> FloatArray:
    """Gradient-flow time in its own unit: as logged where it was, else from the path."""
    if "gradient_flow_time" in run.signals:
        logged = run.signals["gradient_flow_time"]
        return np.maximum(np.interp(x, logged.x, logged.value), 1e-300)
    path = path_of(run)
    return np.maximum(path.at(x, path.tau), 1e-300)


def _longest(run: Run, loss: str | None) -> Reference:
    curve = run.curve(loss).finite()
    if len(curve) < 2:
        raise OnecurveError(f"{run.where}: {len(curve)} finite losses are too few for a reference; leave the run out")
    tau = flow_time(run, curve.x)
    rises = np.concatenate([[True], np.diff(tau) > 0])
    log_tau = np.log(tau[rises])
    return Reference(run.config.n_params, log_tau, curve.loss[rises], np.zeros_like(log_tau))


def _decayed_points(
    runs: Sequence[Run], loss: str | None, tables: dict[float, Reference]
) -> tuple[Points, tuple[FloatArray, ...]]:
    every = usable(runs, loss)
    parts = [
        features(path_of(run), every.x[every.run == k], tables[run.config.n_params]) for k, run in enumerate(every.runs)
    ]
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    keep = np.isfinite(columns[0]) & (columns[1] < DECAYED - 1.0)
    for k, run in enumerate(every.runs):
        if not np.any(keep & (every.run == k)):
            raise OnecurveError(
                f"{run.where}: its rate is below its peak nowhere within the references' summed rate; add a longer "
                "constant-rate run, or leave it out"
            )
    dropped = every.dropped | {"points before the decay, or beyond the references": int(np.sum(~keep))}
    points = Points(every.runs, every.x[keep], every.loss[keep], every.run[keep], dropped)
    return points, tuple(c[keep] for c in columns)
