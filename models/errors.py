"""What can go wrong with the user's input, each as one line that says what to do."""


class InputError(ValueError):
    """Input that cannot be used: one line naming the place, the problem and the remedy.

    The command line prints it and exits with code 2.
    """


class UnsupportedError(InputError):
    """A method was asked for something that it declares it cannot do."""
