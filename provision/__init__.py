"""How few GPUs, partitioned how, for DNN inference under SLOs: plans with proofs for MIG and MPS."""

from importlib import import_module
from importlib.metadata import version

__version__ = version("provision")

# Where each name comes from; it is imported when first used, so that reading a plan waits for no solver.
_HOMES = {
    "FleetEntry": "models.problem.workload",
    "InputError": "models.base.errors",
    "Instance": "models.problem.instance",
    "MethodError": "models.base.errors",
    "Plan": "models.plans.plan",
    "PlannedGpu": "models.plans.plan",
    "Policy": "models.problem.workload",
    "Replica": "models.plans.plan",
    "Report": "models.plans.report",
    "Result": "models.plans.result",
    "SimulationReport": "models.plans.simulation_report",
    "Slice": "models.plans.plan",
    "UnsupportedError": "models.base.errors",
    "Violation": "models.plans.report",
    "Workload": "models.problem.workload",
    "export": "exporters.export",
    "gpu_type": "models.hardware.gpu",
    "gpu_types": "models.hardware.gpu",
    "methods": "solving.methods",
    "read": "instances.read",
    "read_plan": "instances.read",
    "shipped_instances": "instances.files.shipped",
    "simulate": "simulation.simulate",
    "solve": "solving.solve",
    "verify": "verification.verify",
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
