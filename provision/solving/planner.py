"""``provision.Planner``: a session that plans the same fleet again and again while its demand moves.

Between solves it keeps the last plan. After a small change the next solve begins with it: most of its GPUs stay as they
are, and greedy plans the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from provision.instances.files.demand import at_rates
from provision.instances.files.files import FilePath, validate
from provision.instances.read import read
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.models.problem.search import Incumbent
from provision.models.problem.workload import Workload
from provision.solving.solve import solve


class Planner:
    """Plans an instance that changes.

    Answers are those of ``provision.solve``: every plan is verified, and every bound is proven anew.

    Parameters
    ----------
    instance
        An Instance, its shipped name or its path.
    method
        The method of all solves; those that begin with a plan begin with the last one.
    seed
        The seed of all solves.
    parameters
        Parameters of the method.

    Attributes
    ----------
    instance
        The Instance as it is now. It may be replaced by any other one.
    plan
        The plan of the last solve that had one; None before the first.
    """

    def __init__(self, instance: Instance | FilePath, method: str = "auto", seed: int = 0, **parameters: Any) -> None:
        self.instance = read(instance)
        self.method, self.seed, self.parameters = method, seed, parameters
        self.plan: Plan | None = None

    def update(self, rates: Mapping[str, float] | None = None, add: Iterable[Workload | Mapping[str, Any]] = (),
               remove: Sequence[str] = ()) -> Instance:
        """Change the demand; nothing is solved yet.

        Parameters
        ----------
        rates
            New rates in requests/s by workload.
        add
            Further workloads.
        remove
            Names of workloads that leave.

        Returns
        -------
        Instance
            The instance with these changes.

        Raises
        ------
        InputError
            For a workload that does not exist, or one that would stand twice, or a bad value; nothing is changed then.
        """
        for what, names in (("rates", rates or ()), ("remove", remove)):
            if unknown := [name for name in names if name not in self.instance.workload]:
                raise InputError(f"{what}: the instance has no workload {unknown[0]!r}")
        if bad := [name for name, rate_rps in (rates or {}).items() if not 0 <= rate_rps < math.inf]:
            raise InputError(f"rates: {bad[0]}: {known(rates)[bad[0]]!r} should be a number of requests/s, 0 or more")
        changed = at_rates(self.instance, rates) if rates else self.instance
        added = [one if isinstance(one, Workload) else validate(Workload, one, "add") for one in add]
        if added or remove:
            stay = [one for one in changed.workloads if one.name not in set(remove)]
            content = changed.model_copy(update={"workloads": (*stay, *added)}).model_dump(exclude_none=True)
            changed = validate(Instance, content, "update")
        self.instance = changed
        return changed

    def solve(self, time_limit_s: float = 60.0, gap: float = 0.0,
              report: Callable[[Incumbent], None] | None = None, replay: bool | None = None) -> Result:
        """Plan the instance as it is now.

        Parameters
        ----------
        time_limit_s, report, replay
            As for ``provision.solve``.
        gap
            The search may end at this relative gap.

        Returns
        -------
        Result

        Raises
        ------
        InputError, UnsupportedError, MethodError
            As for ``provision.solve``.
        """
        result = solve(self.instance, self.method, time_limit_s, self.seed, report, self.plan, replay, gap=gap,
                       **self.parameters)
        self.plan = result.plan or self.plan
        return result
