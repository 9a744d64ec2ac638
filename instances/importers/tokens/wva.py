"""VariantAutoscaling, the resource of llm-d's Workload Variant Autoscaler: what it says of a model on an accelerator.

``spec.modelProfile.accelerators[]`` has ``acc``, ``accCount``, ``maxBatchSize`` and ``perfParms``: a decode takes alpha
and beta more per sequence, a prefill gamma and delta more per token, in ms, as texts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from provision.instances.files.files import load
from provision.instances.importers.tokens.contents import written_by
from provision.models.base.errors import InputError
from provision.models.performance.tokens.step import TokenCosts


class Variant(NamedTuple):
    """A model on an accelerator: its coefficients, and the largest batch."""

    model: str
    accelerator: str
    accelerators: int
    most_sequences: int
    costs: TokenCosts


def read_wva(path: str | Path) -> list[Variant]:
    """The variants of a resource.

    Raises
    ------
    InputError
        When it cannot be read, is another kind of resource, or a field is missing or out of range.
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
    """An iteration of decodes takes alpha + beta * sequences, one of a prompt alone gamma + delta * tokens; no less."""
    nothing = TokenCosts(*([0.0] * len(TokenCosts._fields)))
    return nothing._replace(step=alpha, token=delta, sequence=max(beta - delta, 0.0), prefill=max(gamma - alpha, 0.0))
