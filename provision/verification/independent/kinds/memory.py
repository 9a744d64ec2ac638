"""The memory of a process from the points in a file: linear between points, and proportional to the batch size beyond.
"""

from ..records import Tree

MIB_PER_GIB = 1024


def stated_gib(model: Tree, batch: int) -> float | None:
    """The GiB of a process with batches of this size; None if the file states none."""
    points = model.get("memory_mib") or []
    if not points:
        return None
    below = [point for point in points if point[0] <= batch]
    above = [point for point in points if point[0] >= batch]
    if not below:
        mib = float(points[0][1])
    elif not above:
        mib = float(below[-1][1]) * batch / below[-1][0]
    else:
        (small, less), (large, more) = below[-1], above[0]
        mib = float(less) if large == small else less + (more - less) * (batch - small) / (large - small)
    return mib / MIB_PER_GIB
