"""A small real training, for the two examples beside it: a two-layer network learns a random one, under AdamW."""

import math

import torch

from onecurve import Run, Schedule
from onecurve.run import Curve, RunConfig

SAMPLES_PER_PARAM, BATCH, RATE, BASE_WIDTH, INPUTS = 60, 64, 0.02, 16, 8
SCHEDULE = Schedule(shape="linear", warmup=0.05)
TIMESCALES = [0.08 * 2**k for k in range(8)]


def settings(width: int, timescale: float) -> dict:
    """What a run of this width trains with; its decay follows from the timescale."""
    n_params = width * (INPUTS + 1) + width * (width + 1) + width + 1
    steps = n_params * SAMPLES_PER_PARAM // BATCH
    rate = RATE * BASE_WIDTH / width  # muP: the hidden matrices' rate falls as 1 / width
    return {
        "n_params": float(n_params),
        "horizon": float(steps * BATCH),
        "batch_tokens": float(BATCH),
        "learning_rate": rate,
        "base_learning_rate": RATE,
        "weight_decay": 1.0 / (rate * timescale * steps),
        "schedule": SCHEDULE,
    }


def train(width: int, timescale: float, seed: int = 0, average=None, rank: int = 0):
    """Yields (samples seen, held-out loss) forty times, the last one at the horizon.

    With several processes ``average`` sums a tensor over them, and each takes its share of the batch.
    """
    torch.manual_seed(seed)
    ranks = torch.ones(())
    if average:
        average(ranks)
    share = BATCH // int(ranks)
    torch.set_num_threads(1)
    of = settings(width, timescale)
    steps = int(of["horizon"] / BATCH)
    teacher = torch.Generator().manual_seed(7)
    frequencies = torch.randn(INPUTS, 64, generator=teacher)
    amplitudes = torch.randn(64, 1, generator=teacher) / 8.0

    def target(x):
        return torch.sin(x @ frequencies) @ amplitudes

    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
        torch.nn.Linear(width, 1),
    )  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=of["learning_rate"], weight_decay=of["weight_decay"])
    held_out = torch.randn(2048, INPUTS, generator=teacher) / 2
    marks = {math.ceil(steps * k / 40) for k in range(1, 41)}
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = of["learning_rate"] * float(SCHEDULE(step / steps))
        x = (torch.randn(BATCH, INPUTS) / 2)[rank * share : (rank + 1) * share]
        loss = (model(x) - target(x)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        for parameter in model.parameters() if average else ():
            average(parameter.grad)
            parameter.grad /= ranks
        optimiser.step()
        if step in marks:
            with torch.no_grad():
                yield step * BATCH, float((model(held_out) - target(held_out)).square().mean())


def small_runs(width: int = 32, timescales=TIMESCALES) -> list[Run]:
    """The reference: the same sweep at a small width, to the end."""
    runs = []
    for timescale in timescales:
        x, loss = zip(*train(width, timescale), strict=True)
        config = RunConfig(name=f"small-{timescale:g}", **settings(width, timescale))
        runs.append(Run(config, {"loss": Curve(x, loss, "held-out")}, "samples"))
    return runs
