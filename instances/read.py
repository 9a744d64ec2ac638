"""Reads instances and plans, by name or by path, and writes them."""

import os

from pydantic import BaseModel

from provision.instances.files.files import FilePath, dump, load, path_of, validate, write_text
from provision.instances.files.instance_file import read_instance_file, refuse_other_kinds, shipped, shipped_instances
from provision.instances.files.tables import is_table, read_plan_table, write_plan_table
from provision.instances.generators.families import PATTERNS, generated
from provision.instances.importers.parvagpu import import_deployment
from provision.models.base.errors import InputError
from provision.models.base.register import did_you_mean
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

DEPLOYMENT = ".csv"
SUFFIXES = (".yaml", ".yml", ".json")


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
