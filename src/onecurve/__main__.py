"""``python -m onecurve``: the command line."""

from onecurve.cli import main

main()
