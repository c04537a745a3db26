"""The scored families of examples/scores: train and score them, record the table, and say what the frontier is.

python benchmarks/scored_family.py train /tmp/family     # an hour on one core; goes on where it stopped
python benchmarks/scored_family.py record /tmp/family    # the scores, into examples/scores/scores.csv
python benchmarks/scored_family.py report                # from the recorded table
"""

import sys
from pathlib import Path

import polars as pl

from onecurve.plan.recipe import load_recipe
from onecurve.scores.frontier import frontier
from onecurve.scores.suites import BITS_PER_BYTE, PROSE
from onecurve.scores.table import read_result, read_scores
from onecurve.scores.words import summary

HERE = Path(__file__).parent.parent / "examples" / "scores"
TASKS = (BITS_PER_BYTE, PROSE)


def train(out: Path) -> None:
    from onecurve.train.evaluate import evaluate
    from onecurve.train.ladder import train_ladder

    train_ladder(load_recipe(HERE / "family.toml"), out, lambda state: None)
    evaluate([out / "runs"], dict.fromkeys(TASKS), lambda *words: print(*words, flush=True))


def record(out: Path) -> None:
    rows = []
    for run in (out / "runs").iterdir():
        results = {task: read_result(run / "scores" / f"{task}.json") for task in TASKS}
        model = results[BITS_PER_BYTE]["model"]
        row = {key: model[key] for key in ("name", "family", "n_params", "tokens", "flops")}
        for task, result in results.items():
            row |= {task: result["value"], f"{task}_stderr": result["stderr"]}
        rows.append(row)
    pl.DataFrame(rows).sort("family", "n_params").write_csv(HERE / "scores.csv")


def report() -> None:
    for task in TASKS:
        print("\n".join(summary(frontier(read_scores([HERE / "scores.csv"], task, published=False)))))


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    {"train": train, "record": record, "report": report}[command](*map(Path, rest))
