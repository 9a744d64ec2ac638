"""``provision help`` and ``completion``: tell about the command line itself."""

from __future__ import annotations

from typing import Literal

from provision.commands import VERBS
from provision.commands.verb import Verb
from provision.models.base.arguments import operand
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean


class Help(Verb):
    """``provision help``."""

    about: str | None = operand("VERB", "a verb (default: all of them)", None, nargs="?")

    def run(self) -> int:
        """Print the help of a verb, or the page of all verbs."""
        from provision.cli import parser

        if self.about is not None and self.about not in VERBS:
            meant = did_you_mean(self.about, VERBS)
            raise InputError(f"no verb {self.about!r}; `provision help` lists them{meant}")
        parser(self.about).parse_args(["--help"] if self.about is None else [self.about, "--help"])
        return 0


class Completion(Verb):
    """``provision completion``."""

    more_help = """. bash: provision completion bash > ~/.local/share/bash-completion/completions/provision; \
zsh: provision completion zsh > DIR/_provision, with DIR in $fpath"""
    shell: Literal["bash", "zsh", "tcsh"] = operand("SHELL", "bash, zsh or tcsh")

    def run(self) -> int:
        """Print the script that completes verbs and options."""
        import shtab

        from provision.cli import parser

        print(shtab.complete(parser(*VERBS), shell=self.shell))
        return 0
