"""Mutation testing: which small changes of the code that judges and proves do its quick tests miss?

Run as ``python benchmarks/verification/mutation.py [TARGET ...] [--sample N] [--seed S]``; it needs the extra
``mutation``. A copy of the package is changed in one place at a time, by Cosmic Ray's operators, and the target's
quick tests run on it. Places are drawn at random, and for each one of the operators that apply there. Prints every
surviving change as a diff and a row per target: mutants, killed, survived. ``--named`` runs the changes that once
survived instead of a sample.
"""

import argparse
import difflib
import importlib
import math
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ZeroIterationForLoop|ReplaceComparisonOperator_.*"
    r"|ReplaceUnaryOperator_.*|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul))"
)
"""Changes that are not mere type errors."""
LOADED = ("cosmic_ray", "hypothesis", "matplotlib", "networkx", "numba", "numpy", "ortools.sat.python.cp_model", "pulp",
          "pydantic", "pytest", "scipy.optimize", "scipy.stats", "yaml")
"""Imported once, before the processes that run the tests are forked."""
SLACK, LEAST_S = 3.0, 10
"""A mutant may use so many times the CPU seconds of the unchanged code, and at least so many, before it is killed."""


class Target(NamedTuple):
    """Modules to change, and the quick tests that should notice, as arguments of pytest."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS = {
    "verification": Target(
        ("provision/verification/verify.py", "provision/verification/deployment.py"),
        ("tests/provision/verification/test_verify_rules.py", "tests/provision/verification/test_verify.py",
         "tests/models/hardware/test_geometry.py", "tests/provision/verification/test_token_engine.py"),
    ),
    "latency rules": Target(
        ("models/traffic/rules.py", "models/traffic/queueing.py", "models/traffic/queue_rule.py",
         "models/traffic/turn_rule.py"),
        ("tests/models/traffic/test_queueing.py", "tests/models/traffic/test_rules.py"),
    ),
    "bounds": Target(
        ("formulations/pricing/replica_sets.py", "formulations/search/problem.py"),
        ("tests/formulations/pricing/test_replica_sets.py", "tests/formulations/search/test_regrouping.py"),
    ),
    "applier": Target(
        ("provision/applier/match.py", "provision/applier/steps.py", "provision/applier/target.py"),
        ("tests/provision/applier/test_applier_steps.py",),
    ),
}
NAMED = {
    "verification": (
        ("provision/verification/verify.py", "times_ms[-1]", "times_ms[0]"),
    ),
    "latency rules": (
        ("models/traffic/queueing.py", "gammaincinv(batch - 1,", "gammaincinv(batch,"),
    ),
}
"""Module, text and its replacement: what all tests once let pass."""


class Mutant(NamedTuple):
    """A changed module: its path in the repository and its whole new text."""

    module: str
    text: str

    def diff(self) -> str:
        """The change as a unified diff without context."""
        before, after = (ROOT / self.module).read_text().splitlines(), self.text.splitlines()
        return "\n".join(difflib.unified_diff(before, after, self.module, "changed", lineterm="", n=0))


def built(folder: Path) -> dict[str, Path]:
    """Copy the packages as they are installed into a folder, compiled kernels included; where each folder went."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    places = {}
    for package, source in project["tool"]["setuptools"]["package-dir"].items():
        places[source] = folder / package.replace(".", "/")
        shutil.copytree(ROOT / source, places[source], dirs_exist_ok=True)
    return places


def drawn(modules: Sequence[str], sample: int, draw: random.Random) -> Iterator[Mutant]:
    """Mutants of different places of some modules, at most ``sample``."""
    places = defaultdict(list)
    for module in modules:
        tree, lines = get_ast_from_path(ROOT / module), (ROOT / module).read_text().splitlines()
        for name in filter(OPERATORS.fullmatch, operator_names()):
            operator = get_operator(name)()
            starts = [start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
            for occurrence, start in enumerate(starts):
                if not lines[start[0] - 1].startswith("@"):  # whether a record is frozen does not show
                    places[module, start].append((operator, occurrence))
    for module, start in draw.sample(sorted(places), min(sample, len(places))):
        operator, occurrence = draw.choice(places[module, start])
        yield Mutant(module, mutate_code((ROOT / module).read_text(), operator, occurrence))


def named(target: str) -> Iterator[Mutant]:
    """The changes of a target that once survived."""
    for module, old, new in NAMED.get(target, ()):
        text = (ROOT / module).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{module}: {old!r} stands {text.count(old)} times, not once; mend NAMED")
        yield Mutant(module, text.replace(old, new))


def passes(tests: Sequence[str], package: Path, limit_s: int | None = None) -> tuple[bool, float]:
    """Whether tests pass on a copy of the package, and the CPU seconds that they took."""
    child = os.fork()
    if child == 0:
        _run(tests, package, limit_s)
    _, status, usage = os.wait4(child, 0)
    return status == 0, usage.ru_utime + usage.ru_stime


def _run(tests: Sequence[str], package: Path, limit_s: int | None) -> None:
    """Run tests in this process and end it with their exit code."""
    import pytest

    if limit_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(package / "hypothesis")
    sys.path.insert(0, str(package))
    sys.dont_write_bytecode = True
    os.chdir(ROOT)
    os._exit(int(pytest.main(["-x", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests])))


def tested(target: Target, mutants: Iterator[Mutant], package: Path, places: dict[str, Path], until: float
           ) -> tuple[int, int]:
    """How many mutants were tested, none after a ``perf_counter``, and how many of them survived."""
    good, spent_s = passes(target.tests, package)
    if not good:
        raise RuntimeError(f"{' '.join(target.tests)} fail without any change; mend them first")
    limit_s, total, survived = int(max(LEAST_S, SLACK * spent_s)), 0, 0
    for mutant in mutants:
        room, _, rest = mutant.module.partition("/")
        file = places[room] / rest
        kept = file.read_text()
        file.write_text(mutant.text)
        try:
            good, _ = passes(target.tests, package, limit_s)
        finally:
            file.write_text(kept)
        total, survived = total + 1, survived + good
        if good:
            print(mutant.diff(), flush=True)
        if time.perf_counter() > until:
            break
    return total, survived


def main() -> int:
    """Test the mutants of all targets and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; by default all")
    parser.add_argument("--sample", type=int, default=40, help="mutants per target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for a target, at most")
    parser.add_argument("--named", action="store_true", help="the changes that once survived, no sample")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    for name in LOADED:
        importlib.import_module(name)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        places = built(package)
        for name in options.targets or TARGETS:
            started = time.perf_counter()
            mutants = named(name) if options.named else drawn(
                TARGETS[name].modules, options.sample, random.Random(options.seed))
            total, survived = tested(TARGETS[name], mutants, package, places, started + options.seconds)
            missed += survived
            print(f"{name}: {total} mutants, {total - survived} killed, {survived} survived, "
                  f"{time.perf_counter() - started:.0f} s", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
