"""How few GPUs, partitioned how, for DNN inference under SLOs: plans with proofs for MIG and MPS."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision import draw as draw
    from provision.answers.review import review as review
    from provision.applier.execute import Permissions as Permissions
    from provision.applier.outcome import RunOutcome as RunOutcome
    from provision.applier.verified import apply as apply
    from provision.buying.buy import buy as buy
    from provision.cluster.layout import layout as layout
    from provision.cluster.recommend import recommend as recommend
    from provision.cluster.state import read_state as read_state
    from provision.comparing.compare import compare as compare
    from provision.exporters.common import export as export
    from provision.instances.read import read as read
    from provision.instances.read import read_plan as read_plan
    from provision.instances.read import shipped_instances as shipped_instances
    from provision.instances.read import write as write
    from provision.models.base.errors import InputError as InputError
    from provision.models.base.errors import MethodError as MethodError
    from provision.models.base.errors import UnsupportedError as UnsupportedError
    from provision.models.hardware.gpu import gpu_type as gpu_type
    from provision.models.hardware.gpu import gpu_types as gpu_types
    from provision.models.plans.plan import Plan as Plan
    from provision.models.plans.plan import PlannedGpu as PlannedGpu
    from provision.models.plans.plan import Replica as Replica
    from provision.models.plans.plan import Slice as Slice
    from provision.models.plans.report import Report as Report
    from provision.models.plans.report import Violation as Violation
    from provision.models.plans.result import Result as Result
    from provision.models.plans.simulation_report import SimulationReport as SimulationReport
    from provision.models.problem.executor import executor_of as executor_of
    from provision.models.problem.instance import Instance as Instance
    from provision.models.problem.policy import Policy as Policy
    from provision.models.problem.search import Outcome as Outcome
    from provision.models.problem.search import Search as Search
    from provision.models.problem.workload import FleetEntry as FleetEntry
    from provision.models.problem.workload import Workload as Workload
    from provision.rationing.ration import ration as ration
    from provision.replanning.replan import replan as replan
    from provision.simulation.simulate import simulate as simulate
    from provision.solving.methods import methods as methods
    from provision.solving.planner import Planner as Planner
    from provision.solving.solve import solve as solve
    from provision.sweeps.run import what_if as what_if
    from provision.verification.verify import verify as verify

__version__ = "0.3.0.dev0"

# The module of each public name. Names are imported on first use, so that reading a plan does not wait for solvers.
_HOMES = {
    "FleetEntry": "models.problem.workload",
    "InputError": "models.base.errors",
    "Instance": "models.problem.instance",
    "MethodError": "models.base.errors",
    "Outcome": "models.problem.search",
    "Plan": "models.plans.plan",
    "Planner": "solving.planner",
    "PlannedGpu": "models.plans.plan",
    "Permissions": "applier.execute",
    "Policy": "models.problem.policy",
    "Replica": "models.plans.plan",
    "Report": "models.plans.report",
    "Result": "models.plans.result",
    "Search": "models.problem.search",
    "SimulationReport": "models.plans.simulation_report",
    "RunOutcome": "applier.outcome",
    "Slice": "models.plans.plan",
    "UnsupportedError": "models.base.errors",
    "Violation": "models.plans.report",
    "Workload": "models.problem.workload",
    "apply": "applier.verified",
    "buy": "buying.buy",
    "compare": "comparing.compare",
    "executor_of": "models.problem.executor",
    "export": "exporters.common",
    "gpu_type": "models.hardware.gpu",
    "gpu_types": "models.hardware.gpu",
    "layout": "cluster.layout",
    "methods": "solving.methods",
    "ration": "rationing.ration",
    "read": "instances.read",
    "read_plan": "instances.read",
    "read_state": "cluster.state",
    "recommend": "cluster.recommend",
    "replan": "replanning.replan",
    "review": "answers.review",
    "shipped_instances": "instances.read",
    "simulate": "simulation.simulate",
    "solve": "solving.solve",
    "verify": "verification.verify",
    "what_if": "sweeps.run",
    "write": "instances.read",
}
_PACKAGES = ("draw",)
__all__ = list(_HOMES)

if not TYPE_CHECKING:  # a type checker takes a module with ``__getattr__`` to have every name

    def __getattr__(name: str) -> object:
        """The object of a name in ``__all__``, or a package, imported on its first use."""
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return globals()[name]


def __dir__() -> list[str]:
    return [*globals(), *_HOMES, *_PACKAGES]
