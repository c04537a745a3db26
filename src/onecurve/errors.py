"""The one kind of error that a user can mend."""


class OnecurveError(ValueError):
    """Names the file or field, the value received, what is accepted and what to do next.

    The command line prints its text alone and exits with code 2; anything else is a fault of the program.
    """
