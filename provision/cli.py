"""The command line: one verb, one module; results on stdout, the rest on stderr, the exit code is the verdict."""

import argparse
import sys
from importlib import import_module

import provision
from provision.commands import INTERRUPTED, VERBS
from provision.models.errors import InputError, MethodError

DONE, UNUSABLE = 0, 2


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message):
        self.exit(UNUSABLE, f"error: {InputError(message)} (see {self.prog} --help)\n")


def parser(given=None):
    """The parser of all verbs; arguments are declared for the one that is given, whose module alone is imported."""
    top = _Parser(prog="provision", description=provision.__doc__)
    top.add_argument("--version", action="version", version=f"provision {provision.__version__}")
    verbs = top.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for verb, (module, text) in VERBS.items():
        one = verbs.add_parser(verb, help=text, description=text)
        if verb == given:
            getattr(import_module(f"provision.commands.{module}"), f"add_{verb.replace('-', '_')}")(one)
    return top


def main(arguments=None):
    """Run one command; returns 0 for yes, 1 for no, 2 for input that cannot be used."""
    arguments = sys.argv[1:] if arguments is None else arguments
    given = next((word for word in arguments if word in VERBS), None)
    try:
        options = parser(given).parse_args(arguments)
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
