"""The command line: one module a verb, each thin: parse, call, print."""

from __future__ import annotations

import sys

import typer

from onecurve.cli import check, collapse, data, demo, evaluate, export, frontier, laws, plan, read, train, tune, watch
from onecurve.errors import OnecurveError

app = typer.Typer(
    name="onecurve",
    help="Do the loss curves of all sizes fall onto one curve? Measure it, and train a ladder on which to see it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Try it:  onecurve demo     then:  onecurve collapse demo/runs",
)
app.command("collapse", no_args_is_help=True)(collapse.command)
app.command("demo")(demo.command)
app.command("plan", no_args_is_help=True)(plan.command)
app.command("train", no_args_is_help=True)(train.command)
app.add_typer(check.app, name="check")
app.add_typer(data.app, name="data")
app.command("read", no_args_is_help=True)(read.command)
app.command("fit", no_args_is_help=True)(laws.fit)
app.command("predict", no_args_is_help=True)(laws.predict)
app.command("score", no_args_is_help=True)(laws.score)
app.command("laws")(laws.laws)
app.command("tune", no_args_is_help=True)(tune.command)
app.command("watch", no_args_is_help=True)(watch.command)
app.command("export", no_args_is_help=True)(export.command)
app.command("evaluate", no_args_is_help=True)(evaluate.command)
app.command("frontier")(frontier.command)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from onecurve import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: a user's mistake is one message on stderr and exit code 2."""
    try:
        app()
    except OnecurveError as error:
        print(f"onecurve: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("onecurve: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        raise SystemExit(141) from None
