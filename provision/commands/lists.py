"""The verbs that list what is available, and ``help``, ``completion`` and ``warm-up``."""

import os
from collections.abc import Sequence
from typing import Any, Literal

import yaml

from provision import InputError, write
from provision.answers.lists import gpu_rows, instance_row, method_rows
from provision.commands import VERBS
from provision.commands.verb import Answering, Verb, Writing, print_json
from provision.draw.output import rows_of
from provision.instances.read import read_gpu_type, shipped, shipped_instances
from provision.instances.schemas.write import KINDS, schema
from provision.models.base.arguments import local, operand
from provision.models.base.clock import Stopwatch
from provision.models.base.fields import Flag
from provision.models.base.register import did_you_mean
from provision.models.hardware.gpu import gpu_type, own_folder
from provision.sweeps.table import TableRow


class Instances(Answering):
    def run(self) -> int:
        return _listed(self, [instance_row(shipped(name)) for name in shipped_instances()])


class Methods(Answering):
    def run(self) -> int:
        rows = method_rows()
        more = "`provision methods --json` adds features (what instances may have), parameters and sources."
        return self.answer(rows, [rows_of(rows, ("name", "exact", "summary"), _cell), more])


class Gpus(Writing):
    print_type: str | None = local(None, "TYPE", "print the file of a type, to begin one of your own with", "--print")
    add: str | None = local(None, "FILE", "add the type in a file of yours, for all verbs from then on")

    def run(self) -> int:
        if self.print_type and self.add:
            raise InputError("--print and --add: use one of them")
        if self.print_type:
            content = gpu_type(self.print_type).model_dump(mode="json", exclude_defaults=True)
            return self.answer(content, yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False).rstrip("\n"))
        if self.add:
            kind = read_gpu_type(self.add)
            path = own_folder() / f"{kind.name}.yaml"
            write(kind, path, self.force)
            return self.answer({"gpu": kind.name, "file": str(path)}, f"{kind.name} written to {path}")
        return _listed(self, gpu_rows())


class Schema(Verb):
    kind: str = operand("KIND", f"one of {', '.join(KINDS)}", choices=tuple(KINDS))

    def run(self) -> int:
        print_json(schema(self.kind))
        return 0


def _listed(options: Answering, rows: Sequence[TableRow]) -> int:
    """Print rows, either as JSON or as a table."""
    return options.answer(rows, [rows_of(rows, None, _cell, folded=True)])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


class Help(Verb):
    about: str | None = operand("VERB", "a verb (default: all of them)", None, nargs="?")

    def run(self) -> int:
        from provision.cli import parser

        if self.about is not None and self.about not in VERBS:
            meant = did_you_mean(self.about, VERBS)
            raise InputError(f"no verb {self.about!r}; `provision help` lists them{meant}")
        parser(self.about).parse_args(["--help"] if self.about is None else [self.about, "--help"])
        return 0


class Completion(Verb):
    more_help = """. bash: provision completion bash > ~/.local/share/bash-completion/completions/provision; \
zsh: provision completion zsh > DIR/_provision, with DIR in $fpath"""
    shell: Literal["bash", "zsh", "tcsh"] = operand("SHELL", "bash, zsh or tcsh")

    def run(self) -> int:
        import shtab

        from provision.cli import parser

        print(shtab.complete(parser(*VERBS), shell=self.shell))
        return 0


class WarmUp(Answering):
    portable: Flag = local(False, None, "for every x86-64 processor with AVX2, as a wheel needs (`make wheel`)")

    def run(self) -> int:
        from provision.starting.warm_up import warm_up  # it imports the solvers, which lists do without

        if self.portable:  # processes that are started from now on compile for the least processor of wheels
            from provision.models.base.kernel_cache import PORTABLE, runs_portable

            if not runs_portable():
                raise InputError("--portable: this is no x86-64 processor with AVX2; build there, or leave it out")
            os.environ |= PORTABLE
        watch = Stopwatch()
        kernels = warm_up()
        found: dict[str, Any] = {"kernels_compiled": kernels, "seconds": round(watch.elapsed_s, 3)}
        return self.answer(
            found, f"{kernels} kernels compiled in {found['seconds']:.1f} s; they are kept for later starts")
