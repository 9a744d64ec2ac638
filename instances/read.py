"""Reads instances and plans, by name or by path, and writes them.

A name is that of a shipped instance or of a generated one: ``igniter-1000-seed0`` has 1,000 workloads like those of
iGniter's testbed (``generate``), ``inss-seed0`` has InSS's workloads at random rates, and ``parvagpu-s5-x10`` is
scenario S5 with every workload ten times.

The file of an instance may name other files, with performance data or workloads, and paths of recorded arrivals, which
are made absolute. GPU types are read from files too. The kind of a file is recognised by its fields, so that a file of
the wrong kind is refused in one line.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from provision.instances.files.files import FilePath, dump, load, path_of, validate, write_text
from provision.instances.files.tables import PARQUET, read_plan_table, read_workloads, write_plan_table
from provision.instances.importers.parvagpu import import_deployment
from provision.models.base.errors import InputError
from provision.models.base.register import did_you_mean
from provision.models.hardware.gpu import GpuType, shipped_types
from provision.models.performance.catalogue import PerformanceFile, shipped_performance
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

DEPLOYMENT = ".csv"
SUFFIXES = (".yaml", ".yml", ".json")
TABLES = (PARQUET, ".arrow", ".feather")
"""The endings of deployment maps, of other files, and of tables of workloads or plans."""


def read(name_or_path: Instance | FilePath) -> Instance:
    """Read an instance: a shipped or generated instance by its name, or a file by its path.

    A file takes precedence over a shipped instance of the same name. An Instance is returned as it is.

    Raises
    ------
    InputError
        If the instance does not exist or cannot be used.
    """
    if isinstance(name_or_path, Instance):
        return name_or_path
    name = path_of(name_or_path, "instance: should be an Instance, a shipped name")
    if name in shipped_instances() and not os.path.isfile(name):
        return shipped(name)
    if os.path.exists(name):
        return read_instance_file(name)
    if found := generated(name):
        return found
    raise InputError(
        f"{name}: no such file, and no shipped instance; provision instances tells what ships, and there are generated "
        f"ones: {', '.join(PATTERNS)}{did_you_mean(name, _beside(name)) or did_you_mean(name, shipped_instances())}"
    )


def _beside(path: str) -> list[str]:
    """The paths of the files in a path's folder that have the suffix of an instance file."""
    folder, _ = os.path.split(path)
    there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    return [os.path.join(folder, one) for one in there if one.endswith(SUFFIXES)]


def read_plan(path: Plan | FilePath, instance: Instance | FilePath | None = None) -> Plan:
    """Read a plan from a file. A Plan is returned as it is.

    Parameters
    ----------
    path
        The file of a plan: YAML, JSON or a table (Parquet, Arrow); with ``instance`` also a deployment map of ParvaGPU
        (``.csv``), which becomes a plan for the instance.
    instance
        The instance of the plan, as for ``read``; None if unknown.

    Raises
    ------
    InputError
        If the file does not exist or cannot be used.
    """
    if isinstance(path, Plan):
        return path
    if path_of(path, "plan: should be a Plan").endswith(DEPLOYMENT) and instance is not None:
        return import_deployment(path, read(instance))
    if is_table(path):
        return read_plan_table(path)
    content = load(path)
    refuse_other_kinds(content, "a plan", path)
    return validate(Plan, content, path)


def is_table(path: object) -> bool:
    """Whether a file is a table, by the end of its name."""
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).endswith(TABLES)


def write(record: BaseModel, path: FilePath, force: bool = False) -> None:
    """Write an instance or a plan as JSON (``.json``) or YAML, atomically; a plan also as a table (``.parquet``).

    Raises
    ------
    InputError
        If the file exists and ``force`` is not set, if it cannot be written, or if there is no record to write.
    """
    if not isinstance(record, BaseModel):
        raise InputError(f"record: should be an Instance or a Plan, not {type(record).__name__}")
    if is_table(path) and isinstance(record, Plan):
        write_plan_table(record, path, force)
        return
    write_text(path, dump(record, path), force)


MARKS = {"an instance": {"workloads", "fleet"}, "a plan": {"instance", "gpus"}, "performance data": {"kind", "models"},
         "a GPU type": {"product", "sms"}}
"""For every kind of file the fields by which it is recognised; no other kind has all of them."""


def refuse_other_kinds(content: Any, wanted: str, path: FilePath) -> None:
    """Refuse a file that is recognised as another kind than ``wanted``; a file that is not recognised passes. Raises
    InputError if the content has all fields in MARKS of another kind, but not those of ``wanted``.
    """
    fields = set(content) if isinstance(content, dict) else set()
    for kind, marks in MARKS.items():
        if kind != wanted and marks <= fields and not MARKS[wanted] <= fields:
            raise InputError(f"{path}: is {kind}; give {wanted} here")


def read_instance_file(path: FilePath) -> Instance:
    """Read the instance in a file. Raises InputError if the file cannot be used."""
    content = load(path)
    refuse_other_kinds(content, "an instance", path)
    if "performance" in content:
        content["performance"] = _with_files(content["performance"], path)
    if is_table(content.get("workloads")):
        content["workloads"] = read_workloads(Path(path).parent / content["workloads"])
    for arrivals in _traces(content):
        arrivals["path"] = str(Path(path).absolute().parent / arrivals["path"])
    return validate(Instance, content, path)


def _traces(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the ``arrivals`` of an instance's policy and workloads that name a file."""
    workloads = content.get("workloads")
    for one in (content.get("policy"), *(workloads if isinstance(workloads, list) else ())):
        arrivals = one.get("arrivals") if isinstance(one, dict) else None
        if isinstance(arrivals, dict) and isinstance(arrivals.get("path"), str):
            yield arrivals


def _with_files(performance: Any, instance: FilePath) -> Any:
    """The field ``performance`` of an instance with paths replaced by the content of the files; names of shipped data
    are kept.
    """
    if isinstance(performance, list):
        return [_from_file(one, instance) for one in performance]
    return _from_file(performance, instance)


def _from_file(performance: Any, instance: FilePath) -> Any:
    if not isinstance(performance, str) or performance in shipped_performance():
        return performance
    path = Path(instance).parent / performance
    if not os.path.isfile(path):
        names = ", ".join(shipped_performance())
        raise InputError(
            f"{instance}: performance: {performance!r} is neither shipped data ({names}) nor a file beside the "
            f"instance ({path}); correct the name{did_you_mean(performance, shipped_performance())}"
        )
    content = load(path)
    refuse_other_kinds(content, "performance data", path)
    return validate(PerformanceFile, content, path)


GPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Matches names of GPU types that are valid file names."""


def read_gpu_type(path: FilePath) -> GpuType:
    """Read the GPU type in a YAML or JSON file. Raises InputError if the file cannot be used, or its GPU type has the
    name of a shipped one.
    """
    content = load(path)
    refuse_other_kinds(content, "a GPU type", path)
    kind = validate(GpuType, content, path)
    if kind.name in shipped_types():
        raise InputError(f"{path}: name: {kind.name} is a GPU type that ships; give yours another name")
    if not GPU_NAME.fullmatch(kind.name):
        raise InputError(f"{path}: name: {kind.name!r} should have letters, digits, dots and hyphens only; rename it")
    return kind


@cache
def shipped_instances() -> tuple[str, ...]:
    """Names of the shipped instances, sorted."""
    return tuple(sorted(path.name.removesuffix(".yaml") for path in (files("provision.instances") / "data").iterdir()))


def shipped(name: str) -> Instance:
    """The shipped instance of this name."""
    with as_file(files("provision.instances") / "data" / f"{name}.yaml") as path:
        return read_instance_file(path)


TESTBED, INSS = "igniter-testbed-12", "inss"


def generate(workloads: int, seed: int) -> Instance:
    """Generate ``workloads`` copies of the testbed's workloads in turn, with rates multiplied by U(0.5, 1). Raises
    InputError if there is less than one workload or the seed is negative.
    """
    if workloads < 1 or seed < 0:
        raise InputError(f"{workloads} workloads, seed {seed}: give at least 1 workload and a seed from 0 on")
    testbed = shipped(TESTBED)
    factors = np.random.default_rng(seed).uniform(0.5, 1, workloads).tolist()
    rounds = [(*divmod(index, len(testbed.workloads)), factor) for index, factor in enumerate(factors)]
    return testbed.replace(
        name=f"igniter-{workloads}-seed{seed}",
        source=f"generated: the workloads of {TESTBED} in turn, rates times U(0.5, 1), seed {seed}",
        workloads=tuple(
            _varied(testbed.workloads[which], f"-{turn + 1}", factor) for turn, which, factor in rounds
        ),
    )


def generate_inss(seed: int) -> Instance:
    """The shipped instance ``inss`` with rates multiplied by U(0.5, 1.5)."""
    inss = shipped(INSS)
    factors = np.random.default_rng(seed).uniform(0.5, 1.5, len(inss.workloads)).tolist()
    return inss.replace(
        name=f"{INSS}-seed{seed}",
        source=f"generated: {INSS}, rates times U(0.5, 1.5), seed {seed}",
        workloads=tuple(_varied(one, "", factor) for one, factor in zip(inss.workloads, factors, strict=True)),
    )


def _varied(workload: Workload, suffix: str, factor: float) -> Workload:
    """A workload with another name and its rate multiplied by a factor."""
    return workload.model_copy(update={"name": workload.name + suffix, "rate_rps": workload.rate_rps * factor})


PATTERNS = ("igniter-N-seedS", "inss-seedS", "parvagpu-sK-xN")
"""The forms of names of generated instances."""
FAMILIES = {
    "parvagpu": tuple(f"parvagpu-s{row}" for row in range(1, 7)),
    "parvagpu-shared": tuple(f"parvagpu-s{row}-shared" for row in range(1, 7)),
    "parvagpu-repeated": ("parvagpu-s5-x10", "parvagpu-s6-x10", "parvagpu-s5-x100"),
    "igniter": ("igniter-motivation", "igniter-testbed-12", "igniter-120-seed0", "igniter-1000-seed0"),
    "gpulets": tuple(f"gpulets-{name}" for name in ("equal", "long-only", "short-skew", "game", "traffic")),
    "gpulets-2022": tuple(f"gpulets-scen{number}" for number in range(1, 6)),
    "inss": ("inss", *(f"inss-seed{seed}" for seed in range(4)), "inss-six"),
    "variants": ("igniter-variants-12",),
    "mlperf": ("mlperf-llama-3.1-8b-server", "mlperf-llama-3.1-8b-interactive"),
}
"""The instances that ``provision bench`` solves, by family."""


def generated(name: str) -> Instance | None:
    """Generate the instance of this name; return None if the name has none of the forms in PATTERNS. Raises InputError
    if the instance would have no workload.
    """
    if found := re.fullmatch(r"igniter-(\d{1,6})-seed(\d{1,9})", name):
        return generate(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"inss-seed(\d{1,9})", name):
        return generate_inss(int(found[1]))
    if (found := re.fullmatch(r"(parvagpu-.+)-x([1-9]\d{0,3})", name)) and found[1] in shipped_instances():
        return repeated(shipped(found[1]), int(found[2]))
    return None


def repeated(instance: Instance, times: int) -> Instance:
    """The instance with ``times`` copies of every workload; every copy has another name."""
    return instance.replace(
        name=f"{instance.name}-x{times}",
        source=f"generated: {instance.name} with every workload {times} times",
        workloads=tuple(
            one.model_copy(update={"name": f"{one.name}-{copy}"})
            for copy in range(1, times + 1) for one in instance.workloads
        ),
        workflows=(),
    )
