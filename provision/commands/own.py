"""``provision help`` and ``completion``: tell about the command line itself."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from provision.commands import VERBS
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean


def add_help(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("about", nargs="?", metavar="VERB", help="a verb (default: all of them)")
    parser.set_defaults(run=_help)


def add_completion(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    parser.epilog = (
        "bash: provision completion bash > ~/.local/share/bash-completion/completions/provision; "
        "zsh: provision completion zsh > DIR/_provision, with DIR in $fpath"
    )
    parser.set_defaults(run=_completion)


def _help(options: Namespace) -> int:
    from provision.cli import parser

    if options.about is not None and options.about not in VERBS:
        meant = did_you_mean(options.about, VERBS)
        raise InputError(f"no verb {options.about!r}; `provision help` lists them{meant}")
    parser(options.about).parse_args(["--help"] if options.about is None else [options.about, "--help"])
    return 0


def _completion(options: Namespace) -> int:
    import shtab

    from provision.cli import parser

    print(shtab.complete(parser(*VERBS), shell=options.shell))
    return 0
