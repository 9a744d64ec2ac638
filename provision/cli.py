"""The command line. Every verb has a module; results go to stdout, everything else to stderr; the exit code is the
verdict.
"""

import argparse
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from typing import Any, NoReturn

import provision
from provision.commands import COMPUTING, GROUPS, NOTHING, SIGNALLED, STOPPABLE, VERBS, drop_output, interrupted
from provision.models.base.clock import end_if_asked, process_started_s, started_s
from provision.models.base.errors import InputError, MethodError, optional
from provision.models.base.register import did_you_mean, one_of
from provision.models.problem.search import SIGNALS, stoppable

DONE, UNUSABLE = 0, 2

NUMBERS: dict[object, str] = {float: "a number", int: "a whole number"}


class _Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter that wraps descriptions but keeps lists of verbs as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if isinstance(action.metavar, str) and " " in action.metavar:
            return action.metavar  # the metavar itself shows how many arguments there are
        return super()._format_args(action, default_metavar)


class _Verbs(_Help):
    """The help formatter for the page of all verbs. The epilog of the page lists the verbs; arguments are left out."""

    def add_argument(self, action: argparse.Action) -> None:
        """Leave out an argument."""


class _Parser(argparse.ArgumentParser):
    """A parser with error messages of one line, which suggest what a misspelt verb, choice or option may mean."""

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if (wanted := NUMBERS.get(action.type)) is None:
                raise
            raise argparse.ArgumentError(action, f"should be {wanted} (got {text!r})") from None

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = one_of(value, map(str, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {known}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The parsed options; unknown options are refused."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [option for parser in self._all() for option in parser._option_string_actions]
            meant = "".join(did_you_mean(word.partition("=")[0], known) for word in unknown if word.startswith("--"))
            verb = f" {options.verb}" if getattr(options, "verb", None) else ""
            if misplaced := [word for word in unknown if word in known]:
                raise InputError(f"{misplaced[0]} stands before the verb; options come after it, as in "
                                 f"{self.prog}{verb} {misplaced[0]}")
            if getattr(options, "methods", None) and not meant:
                meant = f"; methods have commas between them: --methods {','.join([*options.methods, *unknown])}"
            raise InputError(f"unrecognized arguments: {' '.join(unknown)}{meant} (see {self.prog}{verb} --help)")
        return options

    def _all(self) -> Iterator[argparse.ArgumentParser]:
        """Yield this parser and the parsers of its verbs and formats."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._all()


def parser(*given: str | None) -> argparse.ArgumentParser:
    """The parser of all verbs; only the modules of the ``given`` verbs are imported, and their arguments declared."""
    top = _Parser(prog="provision", description=provision.__doc__, epilog=_verbs(), formatter_class=_Verbs,
                  usage="provision VERB ...")
    top.add_argument("--version", action="version", version=f"provision {provision.__version__}")
    verbs = top.add_subparsers(prog="provision", dest="verb", metavar="VERB", required=True)
    for verb, (_, text) in VERBS.items():
        one = verbs.add_parser(verb, help=text, description=f"{text[0].upper()}{text[1:]}.", formatter_class=_Help)
        if verb in given:
            from provision.commands.verb import verb_class

            kind = verb_class(verb)
            one.description = f"{text[0].upper()}{text[1:]}{kind.more_help or '.'}"
            kind.declare(one)
    return top


def _verbs() -> str:
    """A text that tells what every verb does, by group."""
    width = max(map(len, VERBS))
    groups = [
        "\n".join([f"{group}:", *(f"  {verb:{width}}  {text}" for verb, (_, text) in verbs.items())])
        for group, verbs in GROUPS.items()
    ]
    return "\n\n".join([*groups, "`provision VERB --help` tells what a verb takes; most take --json. A first plan:\n"
                         "  provision solve parvagpu-s1"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 for yes, 1 for no, 2 for input that cannot be used, 3 for no answer in
    time.
    """
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open to the end
    given = sys.argv[1:] if arguments is None else arguments
    verb = next((word for word in given if word in VERBS), None)
    whole = arguments is None and verb in COMPUTING  # the process is this command
    if whole and verb not in STOPPABLE and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    with stoppable(*SIGNALS) if verb in STOPPABLE else contextlib.nullcontext():
        code = _exit_code(given, verb, "--json" in given, process_started_s() if whole else started_s())
        if whole:  # at once: no signal changes the code any more, and no thread that a solver has left aborts
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os._exit(code)
        return code


def _end(number: int, frame: object) -> NoReturn:
    """Handle a signal: end the process at once, with a line on stderr; a terminal shows its cursor again."""
    with contextlib.suppress(OSError):
        os.write(2, b"\x1b[?25h\n" * os.isatty(2) + f"{NOTHING}\n".encode())
    os._exit(SIGNALLED + number)


class _UntilAsked(MetaPathFinder):
    """Finds no module, and ends imports when a signal has asked for the end."""

    def find_spec(self, *named: Any) -> None:
        end_if_asked()


def _exit_code(arguments: Sequence[str], verb: str | None, as_json: bool, started: float) -> int:
    """Run a verb with its arguments; returns the exit code, also after an error, which is printed. Time limits count
    from ``started``, a moment of ``perf_counter``.
    """
    try:
        verdict = _run(arguments, verb, started)
        sys.stdout.flush()
        return verdict
    except InputError as error:
        return _refused("input", error, as_json)
    except MethodError as error:
        return _refused("method", InputError(f"{error}; try another --method and report this"), as_json)
    except MemoryError:
        return _refused("memory", InputError("not enough memory for this; make the instance smaller"), as_json)
    except KeyboardInterrupt:
        print(NOTHING, file=sys.stderr)
        return interrupted()
    except BrokenPipeError:
        drop_output()
        return DONE
    except OSError as error:
        with contextlib.suppress(OSError):  # stdout itself may be broken
            _refused("system", InputError(f"the system refuses: {InputError(error)}"), as_json)
            sys.stdout.flush()
        drop_output()
        return UNUSABLE


def _refused(kind: str, error: InputError, as_json: bool) -> int:
    """Print an error: its lines on stderr; with ``--json`` also an object ``error`` on stdout. Returns the exit code.
    """
    for line in error.lines:
        print(f"error: {line}", file=sys.stderr)
    if as_json:
        content = {"kind": kind, "message": error.lines[0], "problems": list(error.lines)}
        print(json.dumps({"error": content}, indent=1))
    return UNUSABLE


def _run(arguments: Sequence[str], verb: str | None, started: float) -> int:
    """Run a verb with its arguments; returns the exit code."""
    if "" in arguments:
        before = " ".join(arguments[: arguments.index("")])
        raise InputError(f"an argument is empty, after {before!r}; fill it in (a shell variable may not be set)")
    if not arguments:
        parser().print_help()
        return DONE
    sys.meta_path.insert(0, finder := _UntilAsked())
    gc.disable()  # what modules make is there to stay: looking through it again and again takes a tenth of a second
    with optional("kubernetes" if {"kubernetes", "--via=kubernetes"} & {*arguments} else None):
        try:
            options = parser(verb).parse_args(arguments, argparse.Namespace(started=started))
        finally:
            sys.meta_path.remove(finder)
            gc.freeze()
            gc.enable()
        end_if_asked()
        from provision.commands.verb import requested

        return requested(options.verb, options).run()
