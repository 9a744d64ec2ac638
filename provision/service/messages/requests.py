"""Requests for jobs, one class for every verb that the service offers, made from the fields of the verb; the field
``verb`` tells which class a request follows.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from provision.commands import JOBS
from provision.commands.verb import request

requests: Any = reduce(or_, map(request, JOBS))
JobRequest: Any = Annotated[requests, Field(discriminator="verb")]
"""The request for any job."""
