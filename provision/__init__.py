"""How few GPUs, partitioned how, for DNN inference under SLOs: plans with proofs for MIG and MPS."""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

__version__ = version("provision")

# Where each name comes from; it is imported when first used, so that reading a plan waits for no solver.
_HOMES = {
    "FleetEntry": "models.workload",
    "InputError": "models.errors",
    "Instance": "models.instance",
    "MethodError": "models.errors",
    "Plan": "models.plan",
    "PlannedGpu": "models.plan",
    "Policy": "models.workload",
    "Replica": "models.plan",
    "Report": "models.report",
    "Result": "models.result",
    "SimulationReport": "models.simulation_report",
    "Slice": "models.plan",
    "UnsupportedError": "models.errors",
    "Violation": "models.report",
    "Workload": "models.workload",
    "export": "export",
    "gpu_type": "models.gpu",
    "gpu_types": "models.gpu",
    "methods": "methods",
    "read": "instances.read",
    "read_plan": "instances.read",
    "shipped_instances": "instances.shipped",
    "simulate": "simulate",
    "solve": "solve",
    "verify": "verify",
    "write": "instances.read",
}
__all__ = list(_HOMES)


def __getattr__(name):
    """A name of ``__all__``, on its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return globals()[name]


def __dir__():
    return [*globals(), *_HOMES]


class _Face(ModuleType):
    """This package: ``provision.solve`` stays the function when the module of that name is imported."""

    def __setattr__(self, name, value):
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
