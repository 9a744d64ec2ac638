"""Request rates as a Prometheus server measures them now, through its HTTP API."""

import json
import math
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from provision.instances.files import reason
from provision.models.errors import InputError

TRITON = "sum by (model) (rate(nv_inference_request_success[1m]))"
"""Requests/s by model, from the counters that Triton exports."""
PATIENCE_S = 10
MOST_BYTES = 16 * 2**20


def rates_now(url, instance, query=None, label="model"):
    """Rates (requests/s) of the workloads that the server knows, by name.

    Parameters
    ----------
    url
        The server's, as ``http://prometheus:9090``.
    instance
        The Instance whose workloads are asked for.
    query
        PromQL whose result is a vector of requests/s; None for TRITON.
    label
        The label of the vector that holds a workload's name, or its model's where no two workloads share one.

    Raises
    ------
    InputError
        When the server does not answer, answers with an error or nonsense, or knows no workload of the instance.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"prometheus {url!r}: should begin with http:// or https://")
    samples = _samples(url, query or TRITON)
    names = {sample["metric"].get(label): _value(url, sample) for sample in samples}
    models = [workload.model for workload in instance.workloads]
    rates = {}
    for workload in instance.workloads:
        by_model = names.get(workload.model) if models.count(workload.model) == 1 else None
        found = names.get(workload.name, by_model)
        if found is not None:
            rates[workload.name] = found
    if not rates:
        there = ", ".join(sorted(map(str, names))[:10]) or "nothing"
        raise InputError(f"prometheus {url}: no workload of {instance.name} under label {label!r}; there is {there}")
    return rates


def _samples(url, query):
    """The vector that the server answers with."""
    address = f"{url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}"
    try:
        with urlopen(address, timeout=PATIENCE_S) as answer:
            text = answer.read(MOST_BYTES)
    except HTTPError as error:
        raise InputError(f"prometheus {url}: refuses the query ({error.code} {error.reason}); check --query") from None
    except (URLError, OSError, ValueError) as error:
        why = reason(getattr(error, "reason", error))
        raise InputError(f"prometheus {url}: does not answer: {why}; check the address") from None
    try:
        content = json.loads(text)
        samples = content["data"]["result"]
        if content["data"]["resultType"] != "vector" or not all(isinstance(one["metric"], dict) for one in samples):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InputError(f"prometheus {url}: the answer is no vector of rates; check the address and --query") from None
    return samples


def _value(url, sample):
    """The value of a sample, a rate."""
    try:
        rate = float(sample["value"][1])
    except (KeyError, IndexError, TypeError, ValueError):
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise InputError(f"prometheus {url}: {sample['metric']} has no rate but {str(sample.get('value'))[:60]}")
    return rate
