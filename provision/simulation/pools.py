"""Replays language models. With two pools, requests reach the decode pool together with their KV caches."""

from collections.abc import Mapping, Sequence

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.plans.simulation_report import SimulationSettings
from provision.models.problem.instance import Instance
from provision.simulation.deployment import Deployment
from provision.simulation.tokens import Answers, answered_ns

Times = tuple["Ints", "Ints"]
"""The arrival times of requests, and the times of their last answers, in whole nanoseconds."""


def answers_of_all(
    instance: Instance, deployment: Deployment, settings: SimulationSettings, arriving_ns: Sequence[Ints],
    owners: Mapping[str, Ints], streams: Sequence[np.random.Generator],
) -> tuple[dict[int, Answers], dict[int, Times]]:
    """Replay the requests of all language models that have replicas, and of workflows with two pools.

    Parameters
    ----------
    instance, deployment, settings
        The Instance, the Deployment of the plan, the SimulationSettings.
    arriving_ns
        The arrivals of every workload. Those of decode pools are not yet known.
    owners
        By workload, the replica of each request, in the order of arrival.
    streams
        The random number generator of every workload.

    Returns
    -------
    dict
        The Answers by index of the workload.
    dict
        The Times by index of the workflow, for workflows with two pools.
    """  # fmt: skip
    index = {name: at for at, name in enumerate(instance.workload)}
    second = {name for flow in instance.workflows for name in flow.order[1:]}

    def answers(name: str, times_ns: Ints, prompt: Ints | None = None) -> Answers:
        tokens = instance.workload[name].tokens
        assert tokens is not None
        return answered_ns(deployment.engines[name], tokens, times_ns, owners[name], settings, streams[index[name]],
                           prompt)

    found = {index[name]: answers(name, arriving_ns[index[name]])
             for name, engines in deployment.engines.items() if engines and name not in second}
    passed: dict[int, Times] = {}
    for number, flow in enumerate(instance.workflows):
        first, last = flow.order[0], flow.order[-1]
        if instance.workload[first].tokens:
            prefilled = found[index[first]]
            done_ns = prefilled.arrived_ns + prefilled.took_ns[-1]
            order = np.argsort(done_ns, kind="stable")
            decoded = found[index[last]] = answers(last, done_ns[order], prefilled.prompt[order])
            passed[number] = (prefilled.arrived_ns[order][decoded.at], decoded.arrived_ns + decoded.took_ns[-1])
    return found, passed
