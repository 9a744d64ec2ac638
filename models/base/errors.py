"""The errors of the package: input that cannot be used, with a remedy in one line, and defects of methods."""

MOST_CHARACTERS = 1000


class InputError(ValueError):
    """Input that cannot be used: one line naming the place, the problem and the remedy.

    The command line prints it and exits with code 2. Whatever the message quotes from the input, it is one
    line of bounded length without control characters.
    """

    def __init__(self, message: object) -> None:
        super().__init__(_line(message))


class UnsupportedError(InputError):
    """A method was asked for something that it declares it cannot do."""


class MethodError(RuntimeError):
    """A method returned a plan that the verifier rejects: a defect of the method."""


def _line(text: object) -> str:
    line = " ".join(str(text).split())
    if len(line) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        line = f"{line[:half]} ... {line[-half:]}"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
