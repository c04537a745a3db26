"""Try settings for the demo's ladder: train a candidate, print how tightly its ladders collapse.

Each candidate is the demo's recipe with a few values replaced; results are kept in the output folder, so a search
can be stopped and goes on. The settings that were tried, and what came out, are in docs/notebook.md.

    python benchmarks/demo_search.py search task.dimension=4 model.inputs=4 optimiser.learning_rate=0.003
    python benchmarks/demo_search.py search --rates 0.001 0.002 0.004 0.008    # the base width alone
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from onecurve import collapse, families, read
from onecurve.measure.result import within_window
from onecurve.measure.uncertainty import window_ratio
from onecurve.plan.recipe import EXAMPLES, Recipe, load_recipe
from onecurve.store import dumps, write_atomic
from onecurve.train.ladder import train_ladder

JUDGED = (0.6, 0.95)


def rms_ratio(c) -> float:
    """Root mean square of Delta over that of sigma (ddof 1) on [.6, .95]."""
    inside = within_window(c.fraction, *JUDGED)
    return float(window_ratio(c.corrected_deviation, c.corrected_noise_floor, inside))


def line(c) -> str:
    """What matters of one ladder, in one line."""
    crossing = c.crossings[0].corrected
    return (
        f"{c.name:26s} rms ratio {rms_ratio(c):5.2f}  crossing {'none' if crossing is None else f'{crossing:.2f}'}  "
        f"spread .25 .5 .75: {' '.join(f'{c.at(c.relative_spread, x):6.1%}' for x in (0.25, 0.5, 0.75))}  "
        f"noise .5 .75: {' '.join(f'{c.at(c.corrected_noise_floor, x):5.1%}' for x in (0.5, 0.75))}  "
        f"final {' '.join(f'{v:.4f}' for v in c.end_loss)}"
    )


def edited(recipe: Recipe, changes: list[str]) -> Recipe:
    """The recipe with ``section.field=value`` replaced; values are JSON."""
    content = recipe.model_dump(mode="json", exclude_none=True)
    for change in changes:
        path, _, value = change.partition("=")
        section, field = path.split(".")
        content[section][field] = json.loads(value)
        if path == "horizon.tokens_per_param":
            content[section] = {field: json.loads(value)}
    return Recipe.model_validate_json(json.dumps(content))


def train(recipe: Recipe, out: Path) -> Path:
    """Train a candidate into a folder that is named by its content."""
    folder = out / hashlib.sha256(recipe.model_dump_json().encode()).hexdigest()[:10]
    write_atomic(folder / "recipe.json", recipe.model_dump_json(indent=1))
    train_ladder(recipe, folder, lambda state: None)
    return folder


def main(out: Path, arguments: list[str]) -> None:
    recipe = load_recipe(EXAMPLES / "demo.toml")
    if "--rates" in arguments:
        at = arguments.index("--rates")
        recipe = edited(recipe, arguments[:at])
        base = recipe.ladder.base_width
        for rate in arguments[at + 1 :]:
            one = [f"optimiser.learning_rate={rate}", f"ladder.widths=[{base}]", 'ladder.parameterisations=["mup"]']
            folder = train(edited(recipe, [*one, "ladder.shared_data_widths=[]"]), out)
            ends = [run.curves["test_loss"].loss[-1] for run in read([folder / "runs"]).runs]
            error = np.std(ends, ddof=1) / np.sqrt(len(ends))
            print(f"base width {base}, rate {rate}: final loss {np.mean(ends):.5f} +- {error:.5f}", flush=True)
        return
    folder = train(edited(recipe, arguments), out)
    results = [collapse(ladder) for ladder in families(read([folder / "runs"]).runs)]
    print(" ".join(arguments) or "the demo's own recipe", f"-> {folder}")
    for c in results:
        print("  " + line(c))
    with (out / "results.jsonl").open("a") as file:
        file.write(dumps({"changes": arguments, "rms_ratio": {c.name: rms_ratio(c) for c in results}}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
