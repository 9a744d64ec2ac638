"""``provision instances``, ``methods``, ``gpus`` and ``schema``: list what is available; ``help`` and ``completion``.
"""

import sys
from collections.abc import Sequence
from typing import Any, Literal

import yaml

from provision.answers.lists import gpu_rows, instance_row, method_rows
from provision.commands import VERBS
from provision.commands.common import print_json, print_table
from provision.commands.verb import Answering, Verb, Writing
from provision.instances.files.instance_file import read_gpu_type, shipped, shipped_instances
from provision.instances.read import write
from provision.instances.schemas.write import KINDS, schema
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean
from provision.models.hardware.gpu import gpu_type, own_folder
from provision.sweeps.table import TableRow


class Instances(Answering):
    """``provision instances``."""

    def run(self) -> int:
        """List the instances."""
        return _print(self, [instance_row(shipped(name)) for name in shipped_instances()])


class Methods(Answering):
    """``provision methods``."""

    def run(self) -> int:
        """List the methods."""
        return _print(self, method_rows(), ("name", "exact", "summary", "features"))


class Gpus(Writing):
    """``provision gpus``."""

    print_type: str | None = local(None, "TYPE", "print the file of a type, to begin one of your own with", "--print")
    add: str | None = local(None, "FILE", "add the type in a file of yours, for all verbs from then on")

    def run(self) -> int:
        """List the GPU types, print one or add one."""
        if self.print_type and self.add:
            raise InputError("--print and --add: use one of them")
        if self.print_type:
            content = gpu_type(self.print_type).model_dump(mode="json", exclude_defaults=True)
            if self.as_json:
                print_json(content)
            else:
                yaml.dump(content, sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False)
            return 0
        if self.add:
            kind = read_gpu_type(self.add)
            path = own_folder() / f"{kind.name}.yaml"
            write(kind, path, self.force)
            if self.as_json:
                print_json({"gpu": kind.name, "file": str(path)})
            else:
                print(f"{kind.name} written to {path}")
            return 0
        return _print(self, gpu_rows())


class Schema(Verb):
    """``provision schema``."""

    kind: str = operand("KIND", f"one of {', '.join(KINDS)}", choices=tuple(KINDS))

    def run(self) -> int:
        """Print the JSON Schema."""
        print_json(schema(self.kind))
        return 0


def _print(options: Answering, rows: Sequence[TableRow], columns: Sequence[str] | None = None) -> int:
    """Print rows, either as JSON with all columns or as a table with the given columns."""
    if options.as_json:
        print_json(rows)
    else:
        columns = columns or list(rows[0])
        print_table(columns, [[_cell(row[column]) for column in columns] for row in rows], folded=True)
    return 0


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


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
