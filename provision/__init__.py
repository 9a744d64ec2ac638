"""How few GPUs, partitioned how, for DNN inference under SLOs: plans with proofs for MIG and MPS."""

from importlib.metadata import version

from provision.export import export
from provision.instances.read import read, read_plan, write
from provision.instances.shipped import shipped_instances
from provision.methods import methods
from provision.models.errors import InputError, UnsupportedError
from provision.models.gpu import gpu_type, gpu_types
from provision.models.instance import Instance
from provision.models.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.report import Report, Violation
from provision.models.result import Result
from provision.models.simulation_report import SimulationReport
from provision.models.workload import FleetEntry, Policy, Workload
from provision.simulate import simulate
from provision.solve import MethodError, solve
from provision.verify import verify

__version__ = version("provision")

__all__ = [
    "FleetEntry",
    "InputError",
    "Instance",
    "MethodError",
    "Plan",
    "PlannedGpu",
    "Policy",
    "Replica",
    "Report",
    "Result",
    "SimulationReport",
    "Slice",
    "UnsupportedError",
    "Violation",
    "Workload",
    "export",
    "gpu_type",
    "gpu_types",
    "methods",
    "read",
    "read_plan",
    "shipped_instances",
    "simulate",
    "solve",
    "verify",
    "write",
]
