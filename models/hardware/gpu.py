"""GPU types, and nodes of them: hardware facts and MIG profiles, in one data file per type. Types ship with the
package, and users can add their own.

A node is a machine with several GPUs of one type, where one replica may run on a group of GPUs (tensor parallelism). A
node of N GPUs is modelled as a GPU type named ``NxTYPE``, such as ``8xh100-80gb``. It is partitioned in the way in
which MIG partitions a GPU: its slices are groups of 1, 2, 4 or 8 neighbouring GPUs (``1gpu``, ``2gpu``, ...), and a
group starts at a multiple of its size. Performance data for groups names the node as its GPU type.

The type of a product is found by the name that its driver gives it (``type_of``).
"""

import os
import re
from collections.abc import Iterable
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import ValidationError, model_validator

from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Name, Positive, PositiveCount, Record, Text
from provision.models.base.register import one_of


def group_of(profile: str) -> int | None:
    """The number of whole GPUs in a slice of this profile; None for a MIG instance."""
    if profile == WHOLE:
        return 1
    size = profile.removesuffix(UNIT)
    return int(size) if profile.endswith(UNIT) and size.isdecimal() else None


def gpus_in(names: Iterable[str]) -> int:
    """The number of GPUs in a list of type names; a node counts as all of its GPUs."""
    return sum(split(name)[0] for name in names)


WHOLE = "whole"
"""The profile name of the slice that is a whole GPU with MIG off."""
SIZES = (2, 4, 8)
"""The numbers of GPUs that a node may have."""
UNIT = "gpu"
"""The suffix of the profile name of a group of GPUs in a node, such as ``2gpu``."""


class MigProfile(Record):
    """A MIG GPU-instance profile, with the positions at which it may be placed.

    ``compute`` and ``memory`` are numbers of compute and memory slices, ``max`` is the most instances on one GPU,
    ``starts`` the memory slices at which an instance may begin. ``profile_id`` is the number that nvidia-smi prints,
    ``nvml_profile`` the NVML enumerator. Source: NVIDIA MIG user guide.
    """

    name: Name
    compute: PositiveCount
    memory: PositiveCount
    sms: PositiveCount
    memory_gib: Positive
    max: PositiveCount
    starts: tuple[Count, ...]
    profile_id: Count
    nvml_profile: Count
    variant: Literal["plain", "double-memory", "media"] = "plain"


class Mig(Record):
    """MIG on a GPU type: its numbers of compute and memory slices, and its profiles."""

    compute_slices: PositiveCount
    memory_slices: PositiveCount
    min_driver: Text
    profiles: tuple[MigProfile, ...]


class GpuType(Record):
    """The hardware of a GPU type; ``mig`` is None for a GPU that cannot be partitioned. A node of several GPUs is
    described as a GPU type too (see `node`): ``gpus`` is the number of its GPUs, and ``mig`` tells how the node is
    divided into groups of GPUs. ``mps_clients`` is the most processes that MPS serves at a time.
    """

    version: Literal[1]
    name: Name
    product: Text
    architecture: Text
    sms: PositiveCount
    memory_gib: Positive
    l2_mib: Positive
    memory_bandwidth_gb_s: Positive
    power_cap_w: Positive
    max_clock_mhz: Positive
    mps_clients: PositiveCount
    mig: Mig | None = None
    gpus: PositiveCount = 1

    @model_validator(mode="after")
    def _profiles_fit(self) -> Self:
        slots = self.mig.memory_slices if self.mig else 0
        for profile in self.profiles.values():
            if any(start + profile.memory > slots for start in profile.starts):
                raise ValueError(f"profile {profile.name} reaches past the last memory slice")
        return self

    @cached_property
    def profiles(self) -> dict[str, MigProfile]:
        """The MIG profiles by name; empty if the type has no MIG."""
        return {profile.name: profile for profile in self.mig.profiles} if self.mig else {}

    @property
    def compute_slices(self) -> int:
        """The number of GPCs that MIG can assign to slices; 0 if the type has no MIG."""
        return self.mig.compute_slices if self.mig else 0

    def with_media(self, names: Iterable[str]) -> list[str]:
        """The given names of profiles that use media engines. A GPU has one set of media engines, which only one slice
        can use.
        """
        return [name for name in names if self.profiles[name].variant == "media"]

    def slice_compute(self, profile: str) -> int:
        """The number of compute slices (GPCs) of a slice of this profile; a whole GPU has all of them."""
        return self.compute_slices if profile == WHOLE else self.profiles[profile].compute

    def slice_sms(self, profile: str) -> int:
        """The number of streaming multiprocessors of a slice of this profile."""
        return self.sms if profile == WHOLE else self.profiles[profile].sms

    def slice_memory_gib(self, profile: str) -> float:
        """The memory of a slice of this profile, in GiB."""
        return self.memory_gib if profile == WHOLE else self.profiles[profile].memory_gib

    def slice_mps_clients(self, profile: str) -> int:
        """The most processes that may share a slice under MPS.

        On a MIG instance the limit shrinks in proportion to its compute slices. NVIDIA does not publish how this number
        is rounded; this function rounds down.
        """
        if profile == WHOLE:
            return self.mps_clients
        return self.mps_clients * self.profiles[profile].compute // self.compute_slices


@cache
def shipped_types() -> dict[str, GpuType]:
    """The GPU types that ship with this package, by name."""
    folder = files("provision.models.hardware") / "data"
    found = (GpuType.model_validate(yaml.safe_load(path.read_text())) for path in folder.iterdir())
    return {gpu.name: gpu for gpu in sorted(found, key=lambda gpu: gpu.name)}


def own_folder() -> Path:
    """The folder of the user's GPU types: ``$PROVISION_GPUS``, by default ``provision/gpus`` in
    ``$XDG_CONFIG_HOME``."""
    if given := os.environ.get("PROVISION_GPUS"):
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "provision" / "gpus"


@cache
def gpu_types() -> dict[str, GpuType]:
    """All GPU types by name: the shipped types, then the types in the files of the user's folder.

    Raises
    ------
    InputError
        If a file in the user's folder does not describe a GPU type, or has the name of a shipped type.
    """
    folder = own_folder()
    own = [_own(path) for path in sorted(folder.glob("*.yaml"))] if folder.is_dir() else []
    return shipped_types() | {gpu.name: gpu for gpu in own}


def _own(path: Path) -> GpuType:
    """The GPU type that a file of the user describes."""
    try:
        gpu = GpuType.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as a GPU type: {error}; correct it or remove it") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: is no GPU type: {where}: {first['msg']}; correct it or remove it") from None
    if gpu.name in shipped_types():
        raise InputError(f"{path}: name: {gpu.name} is a GPU type that ships; give yours another name")
    return gpu


def split(name: str) -> tuple[int, str]:
    """The pair (number of GPUs, name of their GPU type) of a type's name: ``8xh100-80gb`` gives (8, h100-80gb)."""
    many, times, kind = name.partition("x")
    node = times and many in map(str, SIZES) and kind in gpu_types()
    return (int(many), kind) if node else (1, name)


def node_type(name: str) -> GpuType | None:
    """The GPU type that describes a node with this name, such as ``8xh100-80gb``; None if it is not the name of a node.
    """
    many, kind = split(name)
    return _node(name, many, gpu_types()[kind]) if many > 1 else None


def _node(name: str, many: int, gpu: GpuType) -> GpuType:
    groups = tuple(_group(size, many, gpu) for size in (1, *SIZES) if size <= many)
    mig = Mig(compute_slices=many * _compute(gpu), memory_slices=many, min_driver="", profiles=groups)
    return GpuType(
        version=1, name=name, product=f"{many} x {gpu.product}", architecture=gpu.architecture, gpus=many,
        sms=many * gpu.sms, memory_gib=many * gpu.memory_gib, l2_mib=many * gpu.l2_mib,
        memory_bandwidth_gb_s=many * gpu.memory_bandwidth_gb_s, power_cap_w=many * gpu.power_cap_w,
        max_clock_mhz=gpu.max_clock_mhz, mps_clients=many * gpu.mps_clients, mig=mig,
    )  # fmt: skip


def _group(size: int, many: int, gpu: GpuType) -> MigProfile:
    """The profile of groups of ``size`` GPUs in a node of ``many`` GPUs."""
    return MigProfile(
        name=f"{size}{UNIT}", compute=size * _compute(gpu), memory=size, sms=size * gpu.sms,
        memory_gib=size * gpu.memory_gib, max=many // size, starts=tuple(range(0, many, size)), profile_id=0,
        nvml_profile=0,
    )  # fmt: skip


def _compute(gpu: GpuType) -> int:
    """The number of compute slices of one GPU; 1 if the type has no MIG."""
    return gpu.compute_slices or 1


def known_type(name: str) -> GpuType | None:
    """The GPU type of this name, or the node type (see `node`); None if there is neither."""
    return shipped_types().get(name) or gpu_types().get(name) or node_type(name)


@cache
def gpu_type(name: str) -> GpuType:
    """The GPU type or node type of this name.

    Raises
    ------
    InputError
        If there is none; the message lists the known types.
    """
    found = known_type(name)
    if found is None:
        raise InputError(f"unknown GPU type {name!r}; {one_of(name, gpu_types())}; a node of 8 is 8xTYPE, and "
                         "provision gpus --add FILE adds a type of yours")
    return found


def no_profile(gpu: str, profile: str) -> str:
    """The error message for a profile that a GPU type lacks; it lists the profiles of the type."""
    known = [WHOLE, *gpu_type(gpu).profiles]
    return f"{gpu} has no profile {profile!r}; {one_of(profile, known)}"


FORM_FACTOR = re.compile(r"sxm\d?|pcie|nvidia|tesla|geforce|\d+gb")


def names_type(product: str, kind: GpuType) -> bool:
    """Whether a product's name is that of a GPU type. The chips must agree, and the memory sizes if both names tell
    them.
    """
    words, wanted = _words(product), _words(kind.product)
    chip = {word for word in wanted if not FORM_FACTOR.fullmatch(word)}
    sizes = [{word for word in one if re.fullmatch(r"\d+gb", word)} for one in (words, wanted)]
    return chip <= words and (not all(sizes) or sizes[0] == sizes[1])


def type_of(product: str) -> GpuType | None:
    """The GPU type of a product's name; the one with the longest name if several fit."""
    fitting = [kind for kind in gpu_types().values() if names_type(product, kind)]
    return max(fitting, key=lambda kind: len(kind.product), default=None)


def _words(product: str) -> set[str]:
    return set(re.split(r"[\s-]+", product.lower()))
