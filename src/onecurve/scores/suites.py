"""Lists of downstream tasks by name, and what kind of number a score is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onecurve.errors import OnecurveError, did_you_mean

BITS_PER_BYTE = "bits_per_byte"
PROSE = "stdlib_prose"
"""The multiple-choice task that is made here (`onecurve.data.prose`), for models too small for any other."""
ACCURACY = "accuracy"
"""The mean over the tasks of `CELERITY7`."""

CELERITY7: Mapping[str, int] = MappingProxyType(
    {
        "arc_challenge": 25,
        "arc_easy": 0,
        "boolq": 0,
        "hellaswag": 10,
        "piqa": 0,
        "social_iqa": 0,
        "winogrande": 5,
    }
)
"""Tasks of the evaluation harness and their shots, as in arXiv 2509.25087, section 4 and table 10."""

SUITES: Mapping[str, Mapping[str, int]] = MappingProxyType({"celerity7": CELERITY7})

_FALLING = ("bits_per_byte", "bpb", "loss", "perplexity")


def falls(score: str) -> bool:
    """Whether lower is better, told by the score's name: bits per byte, losses and perplexities.

    Examples:
        >>> falls("bits_per_byte"), falls("val_loss"), falls("arc_easy")
        (True, True, False)
    """
    return any(word in score.lower() for word in _FALLING)


def tasks_of(names: str) -> dict[str, int | None]:
    """Tasks and their shots of a comma-separated list of suites and tasks; None where the task's own default holds.

    ``task:5`` gives the shots. Raises OnecurveError for an empty list, a task named twice, or shots that are no number.

    Examples:
        >>> tasks_of("piqa,lambada_openai,hellaswag:3")
        {'piqa': None, 'lambada_openai': None, 'hellaswag': 3}
        >>> tasks_of("celerity7")["arc_challenge"]
        25
    """
    out: dict[str, int | None] = {}
    for part in (p.strip() for p in names.split(",")):
        if not part:
            raise OnecurveError(f"--tasks is {names!r}; name suites ({', '.join(SUITES)}) or tasks, parted by commas")
        task, colon, shots = part.partition(":")
        if colon and not shots.isdigit():
            raise OnecurveError(f"--tasks: {part!r} has {shots!r} for shots; give a whole number, as in {task}:5")
        told = dict(SUITES[part]) if part in SUITES else {task: int(shots) if colon else None}
        twice = next((name for name in told if name in out), None)
        if twice is not None:
            raise OnecurveError(f"--tasks names {twice!r} twice; name every task once")
        out |= told
    return out


def no_score(score: str, where: str, there: list[str]) -> OnecurveError:
    """The error for a score that is not there."""
    return OnecurveError(
        f"{where}: no score {score!r}{did_you_mean(score, there)}; it has {', '.join(there) or 'none'}; "
        "choose with --score"
    )
