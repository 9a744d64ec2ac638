"""Calls the second verifier on a plan. It gets the paths of shipped files, and nothing else of this package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.verification.independent.judge import SECONDS, Judgement, judge
from provision.verification.independent.reading import Shelf, instance_of, plan_of
from provision.verification.independent.reading import read_instance as read_by_itself


def shelf() -> Shelf:
    """The paths of shipped instances, performance data and list prices."""
    instances, performance, hardware = (
        Path(str(files(room))) for room in
        ("provision.instances", "provision.models.performance", "provision.models.hardware"))
    return Shelf(instances / "data", performance / "data", hardware / "prices.yaml")


def second_opinion(instance: Instance | str | Path, plan: Plan, seconds: float = SECONDS) -> Judgement:
    """The second verifier's judgement of a plan.

    Parameters
    ----------
    instance
        A file or the name of a shipped instance, which the second verifier reads itself; or an Instance, which it gets
        as the content of a file.
    plan
        The Plan.
    seconds
        The most seconds of CPU time for the replays of one workload. What they leave open is "not decided".

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    there = shelf()
    if isinstance(instance, str | Path):
        problem = read_by_itself(instance, there)
    else:
        content: dict[str, Any] = instance.model_dump(mode="json")
        problem = instance_of(content, there)
    return judge(problem, plan_of(plan.model_dump(mode="json"), problem), seconds=seconds)
