"""The second verifier's opinion of a plan. It is told where shipped files lie, and nothing else."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.verification.independent.judge import Judgement, judge
from provision.verification.independent.reading import Shelf, instance_of, plan_of
from provision.verification.independent.reading import read_instance as read_by_itself

if TYPE_CHECKING:
    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance


def shelf() -> Shelf:
    """Where instances, performance data and list prices that ship lie."""
    instances, performance, hardware = (
        Path(str(files(room))) for room in
        ("provision.instances", "provision.models.performance", "provision.models.hardware"))
    return Shelf(instances / "data", performance / "data", hardware / "prices.yaml")


def second_opinion(instance: Instance | str | Path, plan: Plan) -> Judgement:
    """What the independent verifier says of a plan.

    Parameters
    ----------
    instance
        A file or a shipped name, which it reads by itself, or an instance, which it gets as the file that it would be.
    plan
        The plan.

    Raises
    ------
    InputError
        A file cannot be read.
    """
    there = shelf()
    if isinstance(instance, str | Path):
        problem = read_by_itself(instance, there)
    else:
        content: dict[str, Any] = instance.model_dump(mode="json")
        problem = instance_of(content, there)
    return judge(problem, plan_of(plan.model_dump(mode="json"), problem))
