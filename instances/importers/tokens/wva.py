"""Reads the VariantAutoscaling, a resource of llm-d's Workload Variant Autoscaler, as performance data.

``spec.modelProfile.accelerators[]`` has ``acc``, ``accCount``, ``maxBatchSize`` and ``perfParms``. An iteration that
decodes takes alpha + beta * sequences, and one that computes a prompt takes gamma + delta * tokens; the coefficients
are in ms and written as texts.
"""

import math
from pathlib import Path
from typing import NamedTuple

from provision.instances.files.files import load, refused
from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.tokens.server import OfServer, written_by
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.performance.tokens.data import EngineLimits
from provision.models.performance.tokens.step import TokenCosts


class Variant(NamedTuple):
    """A model on an accelerator: the number of accelerators, the largest batch, and the coefficients."""

    model: str
    accelerator: str
    accelerators: int
    most_sequences: int
    costs: TokenCosts


def read_wva(path: str | Path) -> list[Variant]:
    """Read the variants of a resource. Raises InputError if the file cannot be read or is another kind of resource, or
    a field is missing or out of range.
    """
    resource = load(path)
    with written_by("the Workload Variant Autoscaler", f"{path}"):
        if resource["kind"] != "VariantAutoscaling":
            raise InputError(f"{path}: kind {resource['kind']!r}; give a VariantAutoscaling")
        spec = resource["spec"]
        if "modelProfile" not in spec:
            raise InputError(f"{path}: its spec has no modelProfile, which newer versions leave out; import a "
                             "benchmark of the server instead (provision import vllm)")
        found = []
        for one in spec["modelProfile"]["accelerators"]:
            decode, prefill = (one["perfParms"][name] for name in ("decodeParms", "prefillParms"))
            given = [float(decode["alpha"]), float(decode["beta"]), float(prefill["gamma"]), float(prefill["delta"])]
            if not all(0 <= value < math.inf for value in given) or int(one["maxBatchSize"]) < 1:
                raise InputError(f"{path}: {one['acc']}: alpha, beta, gamma and delta must not be negative and "
                                 "maxBatchSize at least 1; correct them")
            found.append(Variant(str(spec["modelID"]), str(one["acc"]), int(one["accCount"]), int(one["maxBatchSize"]),
                                 _costs(*given)))
        return found


def _costs(alpha: float, beta: float, gamma: float, delta: float) -> TokenCosts:
    """Coefficients for the linear times of a VariantAutoscaling: alpha and beta for iterations that decode, gamma and
    delta for iterations with prompts. Iterations take at least these times.
    """
    nothing = TokenCosts(*([0.0] * len(TokenCosts._fields)))
    return nothing._replace(step=alpha, token=delta, sequence=max(beta - delta, 0.0), prefill=max(gamma - alpha, 0.0))


class Wva(OfServer):
    """A VariantAutoscaling."""

    path: str = operand("YAML", "the file to read")
    accelerator: str | None = local(None, "NAME", "of its accelerators (default: the only one)")

    def read(self) -> Imported:
        """Read the coefficients of one accelerator."""
        from provision.instances.importers.tokens.performance import performance_of

        found = [one for one in read_wva(self.path) if self.accelerator in (None, one.accelerator)]
        if len(found) != 1:
            raise InputError(f"{self.path}: {len(found)} accelerators {self.accelerator or 'in there'}; name one "
                             "with --accelerator")
        [one], server = found, self.measured()
        with refused(f"{self.path}: maxBatchSize"):
            limits = EngineLimits(tokens_per_iteration=self.tokens_per_iteration, max_sequences=(one.most_sequences,))
        source = f"coefficients of {one.model} on {one.accelerators} x {one.accelerator}"
        return Imported(performance_of(one.costs, server._replace(limits=limits), source))


IMPORTER = Importer("a VariantAutoscaling with a modelProfile, as performance data", Wva)
