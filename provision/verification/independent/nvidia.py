"""GPU types and MIG profiles from NVIDIA's MIG user guide, listings of nvidia-smi and data sheets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """A MIG profile: its compute and memory slices, where it may start, how many may stand on a GPU, and its memory in
    GiB.
    """

    compute: int
    memory: int
    starts: tuple[int, ...]
    most: int
    gib: float


@dataclass(frozen=True)
class GpuType:
    """A GPU type: its SMs, its memory in GiB, and its MIG profiles by name (none if it has no MIG)."""

    sms: int
    gib: float
    profiles: dict[str, Profile]


def _eighths(names: tuple[str, ...], gib: tuple[float, float, float, float]) -> dict[str, Profile]:
    """The profiles of GPUs with seven compute and eight memory slices. ``gib`` is the memory of 1, 2, 4 and 8 memory
    slices.
    """
    one, double, two, three, four, seven = names
    singles = tuple(range(7))
    return {
        one: Profile(1, 1, singles, 7, gib[0]), f"{one}+me": Profile(1, 1, singles, 1, gib[0]),
        double: Profile(1, 2, (0, 2, 4, 6), 4, gib[1]), two: Profile(2, 2, (0, 2, 4), 3, gib[1]),
        three: Profile(3, 4, (0, 4), 2, gib[2]), four: Profile(4, 4, (0,), 1, gib[2]),
        seven: Profile(7, 8, (0,), 1, gib[3]),
    }


_HOPPER = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
GPU_TYPES = {
    "a100-40gb": GpuType(108, 39.25, _eighths(
        ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), (4.75, 9.62, 19.5, 39.25))),
    "a100-80gb": GpuType(108, 79.0, _eighths(_HOPPER, (9.5, 19.5, 39.25, 79.0))),
    "h100-80gb": GpuType(132, 79.25, _eighths(_HOPPER, (9.75, 19.62, 39.5, 79.25))),
    "h200-141gb": GpuType(132, 139.75, _eighths(
        ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"), (16.0, 32.25, 69.5, 139.75))),
    "a30": GpuType(56, 23.44, {
        "1g.6gb": Profile(1, 1, (0, 1, 2, 3), 4, 5.81), "1g.6gb+me": Profile(1, 1, (0, 1, 2, 3), 1, 5.81),
        "2g.12gb": Profile(2, 2, (0, 2), 2, 11.69), "2g.12gb+me": Profile(2, 2, (0, 2), 1, 11.69),
        "4g.24gb": Profile(4, 4, (0,), 1, 23.44)}),
    "v100": GpuType(80, 16.0, {}), "t4": GpuType(40, 15.0, {}), "a10": GpuType(72, 22.49, {}),
    "l4": GpuType(58, 22.49, {}), "l40s": GpuType(142, 44.99, {}), "rtx2060": GpuType(30, 6.0, {}),
    "rtx2060-super": GpuType(34, 8.0, {}), "rtx2080ti": GpuType(68, 11.0, {}),
}
CAPS_W = {"a10": 150, "a100-40gb": 400, "a100-80gb": 400, "a10g": 300, "a30": 165, "h100-80gb": 700, "h200-141gb": 700,
          "l4": 72, "l40s": 350, "rtx2060": 160, "rtx2060-super": 175, "rtx2080ti": 250, "t4": 70, "v100": 300}
"""The most watts of a GPU, by the data sheets."""
IDLE_W = {"v100": 53.5, "t4": 12.5}
"""The watts of idle GPUs on which iGniter's profiles state them; of others IDLE_PART of the most watts is assumed."""
IDLE_PART = 0.18
WHOLE = "whole"
MOST_MPS_CLIENTS = 48
"""The most client processes of one MPS server (Volta and later)."""


HOPPER_SMS = {(1, 1): 16, (1, 2): 26, (2, 2): 32, (3, 4): 60, (4, 4): 64, (7, 8): 132}
"""The SMs of a MIG instance of an H100 or H200, by compute and memory slices."""
AMPERE_SMS = 14
"""The SMs of a compute slice of an A100 or A30."""


def part_of_sms(gpu: str, profile: str) -> float:
    """The part of a GPU's SMs that a slice has."""
    kind = GPU_TYPES.get(gpu)
    if kind is None or profile not in kind.profiles:
        return 1.0
    one = kind.profiles[profile]
    sms = HOPPER_SMS[one.compute, one.memory] if gpu.startswith("h") else AMPERE_SMS * one.compute
    return sms / kind.sms


def node_of(gpu: str) -> tuple[int, str]:
    """The number and type of the GPUs in a machine such as ``8xh100-80gb``; a name without a number is one GPU of that
    type.
    """
    many, cross, single = gpu.partition("x")
    return (int(many), single) if cross and many.isdigit() else (1, gpu)


def gpu_type(gpu: str) -> GpuType | None:
    """The GPU type of this name; None if this verifier does not know it."""
    return GPU_TYPES.get(node_of(gpu)[1])


def has_mig(gpu: str) -> bool:
    """Whether GPUs of this type can be partitioned. Nodes of several GPUs cannot."""
    many, single = node_of(gpu)
    known = GPU_TYPES.get(single)
    return many == 1 and known is not None and bool(known.profiles)


def compute_slices(gpu: str, profile: str) -> int:
    """The compute slices of a MIG profile; a whole GPU has those of its largest profile."""
    profiles = GPU_TYPES[gpu].profiles
    return profiles[profile].compute if profile in profiles else max(one.compute for one in profiles.values())


def slice_gib(gpu: str, profile: str) -> float | None:
    """The memory of a slice in GiB; None if it is unknown."""
    known = gpu_type(gpu)
    if known is None:
        return None
    if profile in known.profiles:
        return known.profiles[profile].gib
    grouped = profile.removesuffix("gpu")
    return known.gib * (int(grouped) if grouped.isdigit() else 1)
