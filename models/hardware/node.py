"""Nodes: machines with several GPUs of one type, where one replica may run on a group of GPUs (tensor parallelism).

A node of N GPUs is modelled as a GPU type named ``NxTYPE``, such as ``8xh100-80gb``. It is partitioned in the way in
which MIG partitions a GPU: its slices are groups of 1, 2, 4 or 8 neighbouring GPUs (``1gpu``, ``2gpu``, ...), and a
group starts at a multiple of its size. Performance data for groups names the node as its GPU type.
"""

from collections.abc import Iterable

from provision.models.hardware.gpu import UNIT, WHOLE, split


def group_of(profile: str) -> int | None:
    """The number of whole GPUs in a slice of this profile; None for a MIG instance."""
    if profile == WHOLE:
        return 1
    size = profile.removesuffix(UNIT)
    return int(size) if profile.endswith(UNIT) and size.isdecimal() else None


def gpus_in(names: Iterable[str]) -> int:
    """The number of GPUs in a list of type names; a node counts as all of its GPUs."""
    return sum(split(name)[0] for name in names)
