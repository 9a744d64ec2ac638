"""The safety factors with which a plan holds at a confidence level, computed from an instance's file alone.

One factor on all service times and one on all rates are uncertain. They are lognormal and independent. If k of them
vary, the plan must bear each of these at its quantile ``confidence^(1/k)``.
"""

import math
from typing import Any, NamedTuple

from scipy.special import ndtri, stdtrit

from .kinds.service import kind_of
from .records import Tree

NINETY, ABSOLUTE = float(ndtri(0.95)), float(ndtri(0.975))
"""The numbers of standard deviations from the mean of a normal distribution to the upper end of its 90 % band, and to
the 95th percentile of its absolute errors.
"""
LOW, HIGH = 1, 5
"""The places of the quantiles at 5 and 95 % among those that performance data states."""


class Factors(NamedTuple):
    """Factors by which service times, times to the first token, and rates are multiplied. All are 1 without a
    confidence level.
    """

    service: float = 1.0
    first_token: float = 1.0
    rate: float = 1.0


def factors(tree: Tree, performance: tuple[Tree, ...]) -> Factors:
    """The factors that the policy in an instance's file asks for; all 1 if it asks for no confidence."""
    policy = tree.get("policy") or {}
    if policy.get("confidence") is None:
        return Factors()
    said = policy.get("uncertainty") or {}
    rates, service = math.log1p(_part(said.get("rates", 0))), said.get("service", "fitted")
    if service == "fitted":
        models = {name for one in tree["workloads"] for name in (one["model"], *(one.get("variants") or []))}
        types = {one["gpu"] for one in tree["fleet"]}
        stated = [pair for data in performance if data["gpu"] in types for name in sorted(models & set(data["models"]))
                  for pair in _stated(data, name)] or [((0.0, 0.0), (0.0, 0.0))]
        times, firsts = (max(column, key=lambda one: one[0] + NINETY * one[1]) for column in zip(*stated, strict=True))
    else:
        times = firsts = (0.0, math.log1p(_part(service)))
    level = float(policy["confidence"]) ** (1 / max((times[1] > 0) + (rates > 0), 1))
    longer, later, more = (_quantile(one, level) for one in (times, firsts, (0.0, rates)))
    return Factors(longer, max(longer, later), more)


def burstier(tree: Tree) -> Tree | None:
    """The arrivals that the policy's uncertainty names for all workloads; None if it names none."""
    policy = tree.get("policy") or {}
    cv = (policy.get("uncertainty") or {}).get("cv") if policy.get("confidence") is not None else None
    return None if cv is None else {"process": "renewal", "cv": float(cv)}


def _quantile(spread: tuple[float, float], level: float) -> float:
    return math.exp(max(spread[0] + float(ndtri(level)) * spread[1], 0.0))


def _part(said: Any) -> float:
    """A fraction that is stated as a number or as a percentage."""
    return float(said.strip()[:-1]) / 100 if isinstance(said, str) else float(said)


def _stated(data: Tree, name: str) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """For each error that the data states of a model, the mean and the deviation of the logarithm of two factors: on
    service times and on first tokens.
    """
    model = data["models"][name]
    bands = [one.get("bands") for one in model["slices"].values()] if kind_of(data).language else []
    if bands and all(bands):
        return [(_band(one["tpot"]), _band(one["ttft"])) for one in bands]
    seen = (data.get("bands") or {"models": {}})["models"].get(name, ())
    if seen:
        limits = [sum(field in one for field in ("profile", "batches", "sm_shares")) for one in seen]
        return [(_band({"low": one["quantiles"][LOW], "high": one["quantiles"][HIGH]}),) * 2
                for one, number in zip(seen, limits, strict=True) if number == min(limits)]
    errors = [one for one in (*(model.get(name) for name in ("error", "solo_error", "pair_error")), data.get("error"))
              if one]
    return [((0.0, math.log1p(one["p95"]) * float(stdtrit(one["points"], 0.975)) / ABSOLUTE**2),) * 2 for one in errors]


def _band(band: Tree) -> tuple[float, float]:
    low, high = math.log(band["low"]), math.log(band["high"])
    return (low + high) / 2, (high - low) / 2 / NINETY
