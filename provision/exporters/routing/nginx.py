"""Configures nginx as the load balancer of servers that scripts start: an upstream per workload, with weights.

Source: nginx's documentation of ngx_http_upstream_module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.exporters.common import slugs
from provision.exporters.routing.routes import weights
from provision.models.problem.instance import Instance

FILE = "nginx.conf"
METHODS = {"random": ("random;",), "round_robin": (), "least_loaded": ("least_conn;",)}
"""The directives with which an upstream chooses a server in proportion to weights, by the routing of the workload."""
HEAD = """\
# Deals the requests of every workload by the weights of the plan; include it in the http block of nginx.
"""
SERVER = """\
server {{
  listen 80;
  server_name {name}.internal;
  location / {{ proxy_pass http://{name}; }}
}}
"""
NOTE = (
    f"Include `{FILE}` in the http block of nginx: it deals the requests to NAME.internal by the weights of the plan, "
    "and takes the machines by their names here, which hosts or DNS must know."
)

Servers = Mapping[str, Sequence[tuple[str, float]]]
"""The servers of every workload: their addresses HOST:PORT, each with its rate in requests/s."""


def configuration(instance: Instance, servers: Servers) -> str:
    """The configuration of nginx for the given servers. Raises InputError if the rates of a workload cannot be
    expressed as weights.
    """
    names = slugs(workload.name for workload in instance.workloads)
    blocks = [_block(instance, names[workload], workload, found) for workload, found in servers.items()]
    return "\n".join([HEAD, *blocks])


def _block(instance: Instance, name: str, workload: str, servers: Sequence[tuple[str, float]]) -> str:
    """The upstream of a workload, and the nginx server in front of it."""
    dealt = weights(workload, [rate_rps for _, rate_rps in servers])
    lines = [*METHODS[instance.policy.routing_of(instance.workload[workload])]]
    for (address, _), weight in zip(servers, dealt, strict=True):
        lines.append(f"server {address} {f'weight={weight}' if weight else 'down'};")
    inside = "".join(f"  {line}\n" for line in lines)
    return f"upstream {name} {{\n{inside}}}\n{SERVER.format(name=name)}"
