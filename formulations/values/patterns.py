"""The patterns found so far on whole GPUs that replicas share under interference, as arrays over all GPU types."""

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import PlaceValues, choices_of
from provision.formulations.pricing.mps.pricing import best_patterns
from provision.formulations.pricing.mps.rate_points import rate_points, together_rps
from provision.formulations.pricing.schedule import Effort
from provision.formulations.search.problem import Problem
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Ints
from provision.models.hardware.gpu import WHOLE

UNITS = 10**6
"""The price of the dearest GPU in the whole-number units in which patterns are priced."""


class Patterns:
    """The patterns.

    Parameters
    ----------
    problem
        A Problem with a group for every class.
    part
        The fraction of a replica's requests/s that counts.

    Attributes
    ----------
    slice_types, points, choices
        For each performance file of whole GPUs (a GPU type may have several): the slice type, the operating points, and
        their options.
    file
        (patterns,) the index of the performance file.
    members, of_class, rps
        (patterns, places) the operating point of each replica, its class, and the requests/s that it can carry; NONE,
        NONE and 0 at empty places.
    """

    def __init__(self, problem: Problem, part: float = 1.0) -> None:
        self.problem, types = problem, problem.segments.slice_types
        pairs = [(one.slice_type, rate_points(problem.instance, one.data, problem.groups))
                 for one in problem.shareable if types[one.slice_type].profile == WHOLE]
        pairs = [(slice_type, points) for slice_type, points in pairs if len(points.at)]
        self.slice_types = np.array([slice_type for slice_type, _ in pairs], int)
        self.points, self.part = [points for _, points in pairs], part
        kinds = {one.models: number for number, one in enumerate(problem.groups)}
        self.choices = [choices_of(one, np.array([kinds[group.models] for group in problem.groups]))
                        for one in self.points]
        self.known, self.file = set[tuple[int, bytes]](), np.zeros(0, int)
        self.members = self.of_class = np.zeros((0, SCHEDULE.together), int)
        self.rps = np.zeros((0, SCHEDULE.together))

    def __len__(self) -> int:
        return len(self.file)

    @property
    def alone(self) -> Ints:
        """The indices of the patterns of one replica."""
        return np.flatnonzero((self.members != NONE).sum(axis=1) == 1)

    def add(self, file: int, members: Ints) -> None:
        """Add patterns of a performance file, given as operating points (patterns, places). Known ones are left out,
        and those of more than SCHEDULE.together replicas.
        """
        width, points = SCHEDULE.together, self.points[file]
        members = np.unique(members[(members[:, width:] == NONE).all(axis=1), :width], axis=0)
        members = np.pad(members, ((0, 0), (0, width - members.shape[1])), constant_values=NONE)
        keys = [(file, one.tobytes()) for one in members]
        members = members[[key not in self.known for key in keys]]
        self.known.update(keys)
        self.file = np.append(self.file, np.full(len(members), file))
        self.members = np.concatenate([self.members, members])
        self.of_class = np.concatenate([self.of_class, np.where(members != NONE, points.at.group[members], NONE)])
        self.rps = np.concatenate([self.rps, together_rps(points, members) * self.part])

    def price(self, file: int, values: PlaceValues, price: float, effort: Effort, best: int,
              most: int = SCHEDULE.together) -> float:
        """Add up to ``best`` patterns of a performance file that are worth more than the ``price`` of their slice.
        Return an upper bound on the values of all patterns with at most ``most`` replicas; it may be about the price.
        """
        points = self.points[file]
        members, worth, bound = best_patterns(
            points._replace(most=min(most, points.most)), self.choices[file],
            values._replace(value=values.value * UNITS, beside=values.beside * UNITS), int(price * UNITS), effort)
        self.add(file, members[np.argsort(-worth, kind="stable")[:best]])
        return bound / UNITS
