"""``provision check-proof``: does a certificate prove its bound? Exit 0 if it does, 1 with the line that does not hold.

Everything is recomputed from the instance and the performance data; no solver and no search model is loaded.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from provision.commands.common import print_json, telling
from provision.commands.reading import read_instance
from provision.commands.verb import Answering
from provision.draw.words import plural
from provision.instances.files.files import reason
from provision.models.base.arguments import operand
from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.problem.objective import objective_of
from provision.proofs.check import check
from provision.proofs.lines import RefusedError

BEGINNING = '{"certificate":'
"""What the first line of a certificate begins with."""


class CheckProof(Answering):
    """``provision check-proof``."""

    instance: str = operand("INSTANCE", "a shipped instance or a file")
    certificate: str = operand("FILE", "a certificate of `provision solve --certificate`")

    def run(self) -> int:
        """Check the certificate, and tell."""
        instance, watch = read_instance(self.instance), Stopwatch()
        try:
            texts = Path(self.certificate).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise InputError(f"{self.certificate}: cannot be read: {reason(error)}; name a certificate") from None
        except UnicodeDecodeError:
            texts = []
        if not texts or not texts[0].startswith(BEGINNING):
            raise InputError(f"{self.certificate}: is no certificate; give a file of `provision solve --certificate`")
        why = ""
        found: Fraction | None = None
        with telling(f"checking {plural(len(texts), 'line')}"):
            try:
                found = check(instance, texts)
            except RefusedError as error:
                why = str(error)
        if self.as_json:
            bound = None if found is None else float(found)
            print_json({"instance": instance.name, "proven": found is not None, "bound": bound, "why": why})
        elif found is None:
            print(f"refused: {self.certificate}, {why}")
        else:
            unit = objective_of(instance).unit.replace("price", "$")
            print(f"proven: no plan of {instance.name} has less than {float(found):.12g} {unit}; "
                  f"{plural(len(texts), 'line')} checked in {watch.elapsed_s:.1f} s")
        return 1 if found is None else 0
