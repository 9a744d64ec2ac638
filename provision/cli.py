"""The command line: one verb, one module; results on stdout, the rest on stderr, the exit code is the verdict."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import provision
from provision.commands import INTERRUPTED, VERBS
from provision.models.base.errors import InputError, MethodError

if TYPE_CHECKING:
    pass

DONE, UNUSABLE = 0, 2


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"error: {InputError(message)} (see {self.prog} --help)\n")


def parser(given: str | None = None) -> argparse.ArgumentParser:
    """The parser of all verbs; arguments are declared for the one that is given, whose module alone is imported."""
    top = _Parser(prog="provision", description=provision.__doc__)
    top.add_argument("--version", action="version", version=f"provision {provision.__version__}")
    verbs = top.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for verb, (module, text) in VERBS.items():
        one = verbs.add_parser(verb, help=text, description=text)
        if verb == given:
            getattr(import_module(f"provision.commands.{module}"), f"add_{verb.replace('-', '_')}")(one)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 for yes, 1 for no, 2 for input that cannot be used."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open to the end
    try:
        verdict = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return verdict
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE
    except MethodError as error:
        print(f"error: {InputError(error)}; try another --method and report this", file=sys.stderr)
        return UNUSABLE
    except MemoryError:
        print("error: not enough memory for this; make the instance smaller", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("stopped before there was anything to return", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return DONE
    except OSError as error:
        print(f"error: the system refuses: {InputError(error)}", file=sys.stderr)
        _drop_output()
        return UNUSABLE


def _run(arguments: Sequence[str]) -> int:
    """The verdict of a verb on its arguments."""
    if "" in arguments:
        before = " ".join(arguments[: arguments.index("")])
        raise InputError(f"an argument is empty, after {before!r}; fill it in (a shell variable may not be set)")
    options = parser(next((word for word in arguments if word in VERBS), None)).parse_args(arguments)
    return options.run(options)


def _drop_output() -> None:
    """Lead stdout nowhere: what it holds back Python would write, and complain about, at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
