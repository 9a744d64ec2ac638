"""Reads the present request rates from a Prometheus server, through its HTTP API."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from http.client import HTTPException
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from provision.instances.files.files import reason
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance

TRITON = "sum by (model) (rate(nv_inference_request_success[1m]))"
"""The PromQL query for requests/s by model, from the counters that Triton exports."""
PATIENCE_S = 10
"""The seconds to wait for the whole answer, and for each part of it."""
MOST_BYTES = 16 * 2**20


def rates_now(url: str, instance: Instance, query: str | None = None, label: str = "model") -> dict[str, float]:
    """Return the present rate in requests/s of every workload that the server knows.

    Parameters
    ----------
    url
        The address of the server, such as ``http://prometheus:9090``.
    instance
        The instance whose workloads are looked up.
    query
        A PromQL query whose result is a vector of requests/s; None for TRITON.
    label
        The label of the vector that holds the name of a workload, or of its model if no two workloads share a model.

    Raises
    ------
    InputError
        If the server does not answer, its answer is an error or not a vector of rates, or the vector has no workload of
        the instance or several rates for one workload.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(f"prometheus {url!r}: should begin with http:// or https://")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for sample in samples(url, query or TRITON):
        by_name.setdefault(sample["metric"].get(label), []).append(sample)
    takers = Counter(model for workload in instance.workloads for model in workload.models)
    rates = {}
    for workload in instance.workloads:
        models = workload.models if all(takers[model] == 1 for model in workload.models) else ()
        names = (workload.name,) if workload.name in by_name else models
        if found := [by_name[name] for name in names if name in by_name]:
            rates[workload.name] = sum(_value(url, label, samples) for samples in found)
    if not rates:
        there = ", ".join(sorted(map(str, by_name))[:10]) or "nothing"
        raise InputError(f"prometheus {url}: no workload of {instance.name} under label {label!r}; there is {there}")
    return rates


def samples(url: str, query: str) -> list[dict[str, Any]]:
    """The samples in the server's answer to a query, each with its labels (``metric``) and its value."""
    text = _answer(url, query)
    if len(text) > MOST_BYTES:
        raise InputError(f"prometheus {url}: answers more than {MOST_BYTES // 2**20} MiB; ask for less with --query")
    try:
        content = json.loads(text)
        samples = content["data"]["result"]
        if content["data"]["resultType"] != "vector" or not all(isinstance(one["metric"], dict) for one in samples):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InputError(f"prometheus {url}: the answer is no vector of rates; check the address and --query") from None
    return samples


def _answer(url: str, query: str) -> bytes:
    """At most MOST_BYTES + 1 bytes of the answer. Raises InputError if the server refuses or is too late."""
    address = f"{url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}"
    answers: SimpleQueue[bytes | Exception] = SimpleQueue()
    # A timeout of the socket starts again with every byte; only another thread can end the wait for the whole answer.
    Thread(target=lambda: answers.put(_fetched(address)), daemon=True).start()
    try:
        found = answers.get(timeout=PATIENCE_S)
    except Empty:
        found = TimeoutError(f"no whole answer within {PATIENCE_S} s")
    if isinstance(found, HTTPError):
        raise InputError(f"prometheus {url}: refuses the query ({found.code} {found.reason}); check the address "
                         "and the query")
    if isinstance(found, Exception):
        why = reason(getattr(found, "reason", found))
        raise InputError(f"prometheus {url}: does not answer: {why}; check the address")
    return found


def _fetched(address: str) -> bytes | Exception:
    """The content at an address, or the exception because of which it could not be read."""
    try:
        with urlopen(address, timeout=PATIENCE_S) as answer:
            return answer.read(MOST_BYTES + 1)
    except (OSError, ValueError, HTTPException) as error:
        return error


def _value(url: str, label: str, samples: Sequence[dict[str, Any]]) -> float:
    """The rate in the single sample of a workload."""
    sample, *others = samples
    if others:
        name = f"{label}={sample['metric'][label]!r}"
        raise InputError(f"prometheus {url}: {len(samples)} rates with {name}; use sum by ({label}) in --query")
    try:
        rate = float(sample["value"][1])
    except (KeyError, IndexError, TypeError, ValueError):
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise InputError(f"prometheus {url}: {sample['metric']} has no rate but {str(sample.get('value'))[:60]}")
    return rate
