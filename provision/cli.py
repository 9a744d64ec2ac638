"""The command line: one verb, one module; results on stdout, the rest on stderr, the exit code is the verdict."""

import argparse
import sys

import provision
from provision.commands import (
    apply,
    bench,
    compare,
    export,
    fit,
    imports,
    lists,
    profile,
    replan,
    show,
    simulate,
    solve,
    status,
    train,
    veltair,
    verify,
    what_if,
)
from provision.models.errors import InputError
from provision.solve import MethodError

VERBS = (
    lists, solve, verify, simulate, compare, show, imports, bench, export, what_if, fit, profile, status, apply, replan,
    veltair, train,
)
DONE, UNUSABLE, INTERRUPTED = 0, 2, 130


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message):
        self.exit(UNUSABLE, f"error: {InputError(message)} (see {self.prog} --help)\n")


def parser():
    """The parser of all verbs."""
    top = _Parser(prog="provision", description=provision.__doc__)
    top.add_argument("--version", action="version", version=f"provision {provision.__version__}")
    verbs = top.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for module in VERBS:
        module.add_parsers(verbs)
    return top


def main(arguments=None):
    """Run one command; returns 0 for yes, 1 for no, 2 for input that cannot be used."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
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
        sys.stderr.close()
        return DONE
