"""Six ladders with one planted fault each, and one without: does the verdict name the fault first?

Byte-level transformers from 40K to 170K parameters on the standard library's sources; two seeds, four sizes.

    python benchmarks/planted_ladders.py /tmp/planted      # about half an hour on two cores; goes on where it stopped
"""

import sys
from pathlib import Path

from onecurve import Ladder, collapse, read
from onecurve.measure.verdict import verdict
from onecurve.plan.recipe import Recipe
from onecurve.store import dumps, write_atomic
from onecurve.train.ladder import train_ladder, with_data

WIDTHS = (32, 48, 64, 80)


def healthy() -> dict:
    return {
        "task": {"kind": "tokens"},
        "model": {"kind": "transformer", "ffn_multiple": 8.0, "head_size": 16},
        "ladder": {
            "sizes": [{"width": w, "layers": 1} for w in WIDTHS],
            "base_width": 32,
            "base_layers": 1,
            "parameterisations": ["completep"],
            "seeds": 2,
        },
        "optimiser": {"learning_rate": 0.012, "batch": 2048, "timescale": 0.2, "clip": 1.0},
        "schedule": {"warmup": 0.1},
        "horizon": {"tokens_per_param": 20.0},
        "evaluation": {"points": 32, "samples": 65_536},
    }


def no_mup(r: dict) -> None:
    r["ladder"]["parameterisations"] = ["standard"]


def drifting_timescale(r: dict) -> None:
    # The smallest size's decay everywhere: tau falls as 1 / D.
    del r["optimiser"]["timescale"]
    r["optimiser"]["weight_decay"] = 1 / (0.012 * 0.2 * 360)


def drifting_tokens(r: dict) -> None:
    r["horizon"]["tokens_per_param"] = [60.0, 30.0, 20.0, 8.0]


def warmup(r: dict) -> None:
    # Warmup over a fixed number of tokens: nearly all of the smallest run, a tenth of the largest.
    r["schedule"]["warmup"] = 0.0
    r["optimiser"]["warmup_tokens"] = 350_000


def horizon_exponent(r: dict) -> None:
    # D ~ N^0.2 in place of N.
    n = [20 * w * w + 512 * w for w in WIDTHS]
    r["horizon"]["tokens_per_param"] = [20.0 * (v / n[-1]) ** -0.8 for v in n]


def wrong_batch(r: dict) -> None:
    # One size at four times the batch, its decay left at what the others' batch asks for.
    size = r["ladder"]["sizes"][2]
    n = 20 * size["width"] ** 2 + 512 * size["width"]
    size["batch"] = 8192
    size["weight_decay"] = 1 / (0.012 * 0.2 * 20 * n / 2048)


PLANTED = {
    "healthy": (lambda r: None, ""),
    "no muP": (no_mup, "parameterisation"),
    "timescale drift": (drifting_timescale, "timescale"),
    "tokens-per-parameter drift": (drifting_tokens, "tokens per parameter"),
    "warmup share": (warmup, "warmup"),
    "wrong horizon exponent": (horizon_exponent, "tokens per parameter"),
    "one wrong batch": (wrong_batch, "batch"),
}


def main(out: Path) -> None:
    right = 0
    rows = []
    for name, (plant, cause) in PLANTED.items():
        content = healthy()
        plant(content)
        recipe = with_data(Recipe.model_validate(content), out)
        folder = out / name.replace(" ", "-")
        train_ladder(recipe, folder, lambda state: None)
        c = collapse(Ladder(read([folder / "runs"]).runs))
        v = verdict(c)
        first = v.checks[0] if v.checks else "nothing to check"
        named = first.partition(":")[0] if v.checks else ""
        if named not in {cause for _, cause in PLANTED.values()}:
            named = ""
        right += named == cause and name != "healthy"
        spread = [round(float(c.at(c.relative_spread, x)), 3) for x in (0.25, 0.5)]
        rows.append({"planted": name, "spread": spread, "noise": v.noise, "first": first, "right": named == cause})
        print(
            f"{name:28s} spread {spread}  {v.noise:22s} {'right' if named == cause else 'WRONG'}: {first}", flush=True
        )
    write_atomic(out / "planted.json", dumps(rows))
    print(f"{right} of {len(PLANTED) - 1} planted faults named first")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
