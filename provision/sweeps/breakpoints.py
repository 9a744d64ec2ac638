"""Breakpoints: where, along one parameter, the GPUs of the best plan change, by bisection on an exact method."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from provision.models.errors import InputError
from provision.solve import solve
from provision.sweeps.parameters import changed
from provision.sweeps.run import PLAIN

TOLERANCE = 1e-6
"""Relative width to which a breakpoint is found."""
INFEASIBLE = "infeasible"


class Breakpoint(NamedTuple):
    """Up to ``below`` the best plan has ``before``, from ``above`` on ``after``: GPUs by type, or infeasible.

    The change lies between the two values. They differ by TOLERANCE, or by more where nothing could be proven
    between them: next to a breakpoint a proof may be out of a solver's reach.
    """

    below: float
    above: float
    before: dict | str
    after: dict | str


def breakpoints(instance, name, values, settings, tell=lambda solved: None):
    """All changes of the best plan's GPUs between neighbouring values of one parameter.

    Between two neighbours of one answer no change is sought: for rates and SLOs there is none, since the number
    of GPUs only grows with the one and falls with the other; where the mix of types moves, give more values.

    Parameters
    ----------
    instance
        The Instance.
    name
        The parameter, as ``sweeps.parameters`` knows it.
    values
        Its values, at least two numbers.
    settings
        Keyword arguments of ``solve``; the method should be exact.
    tell
        Called with the number of points solved so far.

    Returns
    -------
    list of Breakpoint
        In ascending order.

    Raises
    ------
    InputError
        When there are fewer than two values or one of them was not proven within the time limit.
    """
    values = sorted(set(values))
    if len(values) < 2:
        raise InputError(f"breakpoints {name}: needs a range of it; add --vary {name}=FIRST:LAST:STEP")
    answer = _Answers(instance, name, settings, tell)
    for value in values:
        if answer(value) is None:
            raise InputError(
                f"breakpoints {name}: nothing proven at {value:g}; use an exact method or a longer --time-limit"
            )
    return [found for low, high in pairwise(values) for found in _between(answer, low, high)]


def _between(answer, low, high):
    """Breakpoints between two values, ascending."""
    before, after = answer(low), answer(high)
    if before == after:
        return []
    middle = (low + high) / 2
    if high - low <= TOLERANCE * max(abs(low), abs(high)) or answer(middle) is None:
        return [Breakpoint(low, high, before, after)]
    return _between(answer, low, middle) + _between(answer, middle, high)


class _Answers:
    """The GPUs of the best plan by the value of one parameter, None where not proven; each is solved once."""

    def __init__(self, instance, name, settings, tell):
        self.instance, self.name, self.settings, self.tell = instance, name, settings, tell
        self.known = {}

    def __call__(self, value):
        if value not in self.known:
            self.known[value] = self._solved(value)
            self.tell(len(self.known))
        return self.known[value]

    def _solved(self, value):
        varied = changed(self.instance, {self.name: value})
        result = solve(varied, **self.settings, **PLAIN.get(self.settings["method"], {}))
        if result.status == "infeasible":
            return INFEASIBLE
        if result.status != "optimal":
            return None
        return dict(sorted(Counter(gpu.gpu for gpu in result.plan.gpus).items()))
