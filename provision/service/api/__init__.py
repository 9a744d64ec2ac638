"""The HTTP interface: every operation in one table, from which routes and the OpenAPI description are made."""

from provision.service.api import instances, jobs

OPERATIONS = (*instances.LISTS, *instances.OPERATIONS, *jobs.OPERATIONS)
"""All operations, in the order in which they are described."""
