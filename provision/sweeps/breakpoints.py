"""Finds breakpoints, the values of a parameter at which the GPUs of the best plan change, by bisection with an exact
method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

from provision.models.base.errors import InputError, MethodError
from provision.models.base.objects import known
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.sweeps.parameters import changed, find
from provision.sweeps.run import PLAIN, Settings, solved

TOLERANCE = 1e-6
"""The accuracy of a breakpoint, as a fraction of the largest value of the parameter."""
MOST_CHANGES = 200
"""The most changes that are reported. There may be very many, since plans of equal cost may alternate at every step."""
INFEASIBLE = "infeasible"

Answer = dict[str, int] | str
"""The number of GPUs by type, or ``infeasible``."""


class Breakpoint(NamedTuple):
    """A change of the best plan's GPUs along a parameter.

    Up to the value ``below`` the best plan has the GPUs ``before``; from the value ``above`` on it has the GPUs
    ``after`` (by type, or ``infeasible``). ``objective`` is the objective of the best plan at ``above``; None if there
    is no plan. The change lies between ``below`` and ``above``. These differ by TOLERANCE, or by more if nothing could
    be proven between them, since close to a breakpoint a proof may be too hard for a solver.
    """

    below: float
    above: float
    before: Answer
    after: Answer
    objective: float | None = None


def breakpoints(instance: Instance, name: str, values: Sequence[float], settings: Settings,
                tell: Callable[[int], None] = lambda solved: None,
                note: Callable[[str], None] = lambda line: None) -> list[Breakpoint]:
    """All changes of the best plan's GPUs between neighbouring values of one parameter.

    No change is sought between two neighbouring values with the same answer. Along rates and SLOs the number of GPUs
    has no change there, since it only grows with rates and only falls with SLOs; to find changes in the mix of GPU
    types, give more values.

    Parameters
    ----------
    instance
        The instance to vary.
    name
        The parameter, as ``sweeps.parameters`` knows it.
    values
        The values of the parameter, at least two numbers.
    settings
        Keyword arguments of ``solve``; the method should be exact.
    tell
        A function that is called with the number of points solved so far.
    note
        A function that is called with a line for every value at which nothing was proven. Changes between this value
        and its neighbours are not sought.

    Returns
    -------
    list of Breakpoint
        The breakpoints in ascending order.

    Raises
    ------
    InputError
        If there are fewer than two values, no two neighbours among them were proven within the time limit, or there
        are more than MOST_CHANGES changes.
    """
    check_range(name, values)
    values = sorted(set(values))
    answer = _Answers(instance, name, settings, tell)
    for value in values:
        answer(value)
    pairs = [pair for pair in pairwise(values) if None not in map(answer, pair)]
    lines = [f"breakpoints {name}: {why}" for why in answer.unproven(values)]
    if not pairs:
        raise InputError(lines[0])
    for line in lines:
        note(line)
    whole = find(name, instance)[0].whole
    width = 1 if whole else TOLERANCE * max(map(abs, values))
    found: list[Breakpoint] = []
    for low, high in pairs:
        for one in _between(answer, low, high, width, whole):
            if len(found) == MOST_CHANGES:
                raise InputError(
                    f"breakpoints {name}: more than {MOST_CHANGES} changes up to {one.above:g}: plans of equal cost "
                    "take turns; give GPU types prices that differ, or a shorter range"
                )
            found.append(one)
    return found


def check_range(name: str, values: Sequence[float | str]) -> None:
    """Refuse values between which there can be no breakpoints. Raises InputError if there are fewer than two values, or
    they are not numbers.
    """
    if any(isinstance(value, str) for value in values):
        raise InputError(f"breakpoints {name}: its values are no numbers; there is nothing between them")
    if len(set(values)) < 2:
        raise InputError(f"breakpoints {name}: needs a range of it; add --vary {name}=FIRST:LAST:STEP")


def _between(answer: _Answers, low: float, high: float, width: float, whole: bool) -> Iterator[Breakpoint]:
    """Yield the breakpoints between two values in ascending order, as soon as each is found."""
    before, after = cast(Answer, answer(low)), cast(Answer, answer(high))
    if before == after:
        return
    middle = (low + high) // 2 if whole else (low + high) / 2
    if high - low <= width or answer(middle) is None:
        yield Breakpoint(low, high, before, after, answer.objective[high])
        return
    yield from _between(answer, low, middle, width, whole)
    yield from _between(answer, middle, high, width, whole)


class _Answers:
    """A function from the value of one parameter to the GPUs of the best plan, None if nothing is proven; every value
    is solved once.
    """

    def __init__(self, instance: Instance, name: str, settings: Settings, tell: Callable[[int], None]) -> None:
        self.instance, self.name, self.settings, self.tell = instance, name, settings, tell
        self.known: dict[float, Answer | None] = {}
        self.failed: dict[float, str] = {}
        self.objective: dict[float, float | None] = {}
        self.last: Plan | None = None

    def __call__(self, value: float) -> Answer | None:
        if value not in self.known:
            self.known[value] = self._solved(value)
            self.tell(len(self.known))
        return self.known[value]

    def unproven(self, values: Sequence[float]) -> list[str]:
        """A line for each of some values at which nothing was proven."""
        return [f"nothing proven at {value:g}" + (
                f": {self.failed[value]}" if value in self.failed else "; use an exact method or a longer --time-limit")
                for value in values if self.known[value] is None]

    def _solved(self, value: float) -> Answer | None:
        varied = changed(self.instance, {self.name: value})
        try:
            result = solved(varied, self.settings, start=self.last, **PLAIN.get(self.settings["method"], {}))
        except MethodError as error:
            self.failed[value], self.last = str(error), None
            return None
        self.last = result.plan or self.last
        self.objective[value] = result.objective
        if result.status == "infeasible":
            return INFEASIBLE
        if result.status != "optimal":
            return None
        return dict(sorted(Counter(gpu.gpu for gpu in known(result.plan).gpus).items()))
