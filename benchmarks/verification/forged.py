"""Forged certificates with true seals: is each refused in one line, or its bound true?

Run as ``python benchmarks/verification/forged.py [--kinds K ...] [--instances N] [--lines L] [--results DIR]``. The
instances are of all kinds that are certified: MIG slices, GPUs shared under iGniter's model, both together, with price
tiers, limits on replicas, rates of 0 and models without data on one of the types. In L lines of each type, every field
and every number of every step is replaced by each of VALUES; twice: alone, and with the cut, the bound and the number
of units that then follow. Last, all prices of a certificate are multiplied by large numbers. A bound is true if no
verified plan is cheaper. A child process checks the files of an instance, so that a signal or a hang is seen; what
replicas carry alone is computed once there. Exit 1 after a false bound, a traceback, a signal, or a check of more than
HANG_S seconds of CPU.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results

import provision
from provision.draw.output import print_table
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.proofs import check as checker
from provision.proofs.check import Facts, check
from provision.proofs.demand import pools_of
from provision.proofs.lines import RefusedError, sealed
from provision.solving.certificate import certificate_of

VALUES = (0, -1, 2**31, 2**53, 2**61, 2**62, 2**63, 2**64, 10**30, math.nan, math.inf, 1.5, "1", "", [], [1], {}, None,
          True)
FACTORS = (2**31, 2**40, 2**53, 2**61, 2**62, 3 * 2**61, 2**63, 10**30)
HANG_S = 60.0
COLUMNS = ("kind", "instances", "files", "refused", "true bounds", "false bounds", "tracebacks", "signals", "hangs",
           "longest_s")
A100 = {"gpu": "a100-80gb", "price_per_hour": 3.0}
V100 = {"gpu": "v100", "price_per_hour": 2.0}
IGNITER = ["igniter-v100"]
MIXED = ["parvagpu-a100", "igniter-v100"]


def workload(name: str, model: str, slo_ms: float, rate_rps: float, **limits: Any) -> dict[str, Any]:
    """A workload as in a file."""
    return {"name": name, "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps, **limits}


SMALL = [workload("a", "resnet50", 60, 5000), workload("b", "vgg19", 120, 800)]
IDLE = [workload("a", "resnet50", 60, 5000), *(workload(f"z{at}", "vgg19", 150, 0) for at in range(3))]
LIMITED = [workload("a", "resnet50", 60, 5000, min_replicas=3), workload("b", "vgg19", 120, 400, max_replicas=2),
           workload("c", "resnet50", 90, 2000, max_share_per_gpu=0.5)]
APART = [workload("a", "alexnet", 60, 5000), workload("b", "vgg16", 200, 500)]
TIERS = [A100 | {"price_per_hour": 1.0, "count": 1}, A100]
KINDS: dict[str, list[tuple[list[dict[str, Any]], list[str], list[dict[str, Any]], str]]] = {
    "MIG slices": [([A100], MIXED[:1], some, rule) for some in (SMALL, LIMITED) for rule in ("half_slo", "queueing")],
    "MIG slices, tiers": [(TIERS, MIXED[:1], some, rule)
                          for some in (SMALL, IDLE) for rule in ("half_slo", "queueing")],
    "shared GPUs": [([V100], IGNITER, some, "half_slo") for some in (SMALL, IDLE, LIMITED)]
                   + [([V100], IGNITER, SMALL[:1], "queueing")],
    "both": [([A100, V100], MIXED, some, "half_slo") for some in (SMALL, IDLE, LIMITED, APART)],
    "both, tiers": [([*TIERS, V100], MIXED, some, "half_slo") for some in (SMALL, IDLE, LIMITED, APART)],
}
"""Fleet, data, workloads and latency rule of the instances of every kind."""


def instances(kind: str) -> list[Instance]:
    """The instances of a kind."""
    return [Instance.model_validate({
        "version": 2, "name": f"{kind} {number}".replace(",", "").replace(" ", "-"), "fleet": fleet,
        "performance": data, "policy": {"latency_budget": rule}, "workloads": workloads})
        for number, (fleet, data, workloads, rule) in enumerate(KINDS[kind])]


def replaced(value: Any) -> Iterator[Any]:
    """A field's value with itself, or one number within it, replaced by each of VALUES."""
    yield from VALUES
    for at, part in enumerate(value) if isinstance(value, list) else ():
        for other in replaced(part) if at in (0, len(value) - 1) else ():
            yield [*value[:at], other, *value[at + 1 :]]


def forgeries(instance: Instance, claims: list[dict[str, Any]], lines: int) -> Iterator[list[dict[str, Any]]]:
    """The forged claims of a certificate."""
    seen: Counter[str] = Counter()
    for at, claim in enumerate(claims):
        sort = min(claim.keys() - {"needs", "price", "most", "steps", "bound", "digest", "instance"})
        seen[sort] += 1
        for field in claim if seen[sort] <= lines else ():
            for value in replaced(claim[field]):
                forged = [*claims[:at], claim | {field: value}, *claims[at + 1 :]]
                yield forged
                if field not in ("cut", "units", "bound", "digest", "instance", "certificate"):
                    yield following(instance, forged)
            yield [*claims[:at], {name: kept for name, kept in claim.items() if name != field}, *claims[at + 1 :]]
        if seen[sort] <= lines:
            yield [*claims[:at], claim | {"more": 1}, *claims[at + 1 :]]
            yield [*claims[: at + 1], claim, *claims[at + 1 :]]
    for factor in FACTORS:
        many = [{name: factor * value if name in ("price", "needs", "most", "cut") else
                 [[rate, factor * price] for rate, price in value] if name == "steps" else value
                 for name, value in claim.items()} for claim in claims]
        yield many
        yield following(instance, [claim | {"units": 2 * claim["units"]} if "units" in claim else claim
                                   for claim in many])
        yield following(instance, [claim | {"needs": factor} if "needs" in claim else claim for claim in claims])


def following(instance: Instance, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Claims with the cuts that their needs add up to, and twice the units if a cut grew; the bound fits the units."""
    needed, grown, found = 0, False, []
    for claim in claims:
        if "cut" in claim:
            grown |= needed > claim["cut"]
            claim, needed = claim | {"cut": needed}, 0
        elif "needs" in claim and type(claim["needs"]) is int:
            needed += claim["needs"]
        elif "units" in claim and type(claim["units"]) is int:
            units = claim["units"] * (2 if grown else 1)
            claim = claim | {"units": units, "bound": str(units * pools_of(instance)[0])}
        found.append(claim)
    return found


def judged(instance: Instance, claims: list[dict[str, Any]], cost: float | None) -> str:
    """The column of COLUMNS that counts a certificate. ``cost`` is that of a verified plan."""
    try:
        bound = check(instance, list(sealed(claims)))
    except (RefusedError, InputError) as error:
        return "refused" if len(str(error).splitlines()) == 1 else "tracebacks"
    except Exception as error:
        print(f"{instance.name}: {type(error).__name__}: {error}: {json.dumps(claims)[:2000]}", flush=True)
        return "tracebacks"
    if cost is None or bound <= Fraction(cost) * (1 + Fraction(1, 10**9)):
        return "true bounds"
    print(f"{instance.name}: {float(bound)} claimed, a plan has {cost}: {json.dumps(claims)[:2000]}", flush=True)
    return "false bounds"


def counted(instance: Instance, lines: int, out: Any) -> None:
    """Send the column and the seconds of every forged certificate of an instance, and at the end None."""
    found = provision.solve(instance, time_limit_s=5, replay=False)
    claims = [json.loads(text) for text in certificate_of(instance, 8).lines]
    for claim in claims:
        del claim["seal"]
    facts = Facts(instance)
    checker.Facts = lambda _: facts  # type: ignore[assignment, misc]
    for forged in [claims, *forgeries(instance, claims, lines)]:
        out.send("begun")
        began = time.process_time()
        what = judged(instance, forged, found.objective)
        out.send((what, time.process_time() - began))
    out.send(None)


def main() -> int:
    """Print the counts of every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=4, help="of each kind")
    parser.add_argument("--lines", type=int, default=1, help="forged lines of each type")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    results.add_results(parser)
    options = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    for kind in options.kinds:
        several, counts, longest_s = instances(kind)[: options.instances], Counter[str](), 0.0
        for instance in several:
            here, there = get_context("spawn").Pipe(duplex=False)
            child = get_context("spawn").Process(target=counted, args=(instance, options.lines, there))
            child.start()
            there.close()
            try:
                while here.poll(10 * HANG_S) and (told := here.recv()) is not None:
                    if told != "begun":
                        counts[told[0]] += 1
                        longest_s = max(longest_s, told[1])
                        counts["hangs"] += told[1] > HANG_S
                else:
                    counts["hangs"] += child.is_alive() and not here.poll(0) and told is not None
            except EOFError:
                counts["signals"] += 1
            child.kill()
            child.join()
        files = sum(counts.values()) - counts["hangs"]
        rows.append((kind, len(several), files, *(counts[one] for one in COLUMNS[3:-1]), round(longest_s, 2)))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    results.write(options.results, "forged", COLUMNS, rows, [0])
    return 1 if any(row[at] for row in rows for at in range(5, 9)) else 0


if __name__ == "__main__":
    sys.exit(main())
