"""An operation of the HTTP interface, which its handler states, and the route that is made of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from provision import InputError, Instance, Plan
from provision.instances.files.instance_file import shipped, shipped_instances
from provision.instances.generators.families import generated
from provision.models.traffic.arrivals import Trace
from provision.service.jobs import Jobs
from provision.service.messages import FieldProblem, RefusedError, problem_of, refused, response, unusable, validated
from provision.service.pool import Reader
from provision.service.settings import Metrics, Settings
from provision.service.store import Document, Store


@dataclass(eq=False)
class Service:
    """The objects that all handlers use: settings, store, jobs, metrics, and the reader of bodies."""

    settings: Settings
    store: Store
    jobs: Jobs
    metrics: Metrics
    reader: Reader


@dataclass(frozen=True)
class Operation:
    """One operation of the HTTP interface.

    Attributes
    ----------
    method, path
        HTTP method and path.
    handler
        The function that answers. It is called with the Service and, as it names them, the request, parts of the path,
        and parameters of the query, which have defaults; it runs in a thread unless it is a coroutine. It returns plain
        content, a record, or a Response. Its docstring says what the operation does, its annotation what it returns.
    returns
        The type of the answer, where the annotation does not say it.
    status
        HTTP status of success.
    body
        The type of the request's body, for the OpenAPI description; None if there is no body.
    media
        Media type of the answer.
    problems
        HTTP statuses of problem documents that clients have to expect, in addition to 401.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    returns: Any = None
    status: int = 200
    body: Any = None
    media: str = "application/json"
    problems: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The operation's identifier in the OpenAPI description."""
        return self.handler.__name__

    @cached_property
    def answer(self) -> Any:
        """The type of the answer; None if only ``media`` describes it."""
        returned = self.returns or signature(self.handler).return_annotation
        return None if isinstance(returned, type) and issubclass(returned, Response) else returned

    @cached_property
    def query(self) -> dict[str, Any]:
        """The types of the query's parameters, by name."""
        given = signature(self.handler).parameters.values()
        return {one.name: one.annotation for one in given if one.default is not one.empty}

    def route(self, service: Service) -> Route:
        """The Starlette route of the operation; errors become problem documents."""

        async def endpoint(request: Request) -> Response:
            request.scope["template"] = self.path
            try:
                given = self._given(request)
                found = await (self.handler(service, **given) if iscoroutinefunction(self.handler)
                               else run_in_threadpool(self.handler, service, **given))
            except ClientDisconnect:
                return response(refused(400, "body: the client hung up before its end").problem)
            except Exception as error:
                if (problem := problem_of(error)) is None:
                    raise
                return response(problem)
            return found if isinstance(found, Response) else self._response(found)

        return Route(self.path, endpoint, methods=[self.method], name=self.name)

    def _given(self, request: Request) -> dict[str, Any]:
        whole = {"request": request} if "request" in signature(self.handler).parameters else {}
        query = {name: validated(self.query[name], text, name) for name, text in request.query_params.items()
                 if name in self.query}
        return whole | request.path_params | query

    def _response(self, found: Any) -> Response:
        text = TypeAdapter(self.answer).dump_json(found)
        headers = {"Location": f"/api/v1/jobs/{found.id}"} if self.status == 201 and hasattr(found, "id") else None
        return Response(text, self.status, headers, media_type="application/json")


OPERATIONS: list[Operation] = []
"""All operations, in the order in which they are described."""
Handler = TypeVar("Handler", bound=Callable[..., Any])


def operation(method: str, path: str, **settings: Any) -> Callable[[Handler], Handler]:
    """Make the decorated handler an Operation, one of OPERATIONS."""
    def declare(handler: Handler) -> Handler:
        OPERATIONS.append(Operation(method, path, handler, **settings))
        return handler

    return declare


DIGEST = re.compile(r"[0-9a-f]{64}")
JOB = re.compile(r"[0-9a-f]{16}")
MOST_COPIES = 4
"""The most digits that a number in the name of a generated instance may have, so that no huge instance is generated."""


class Givens:
    """Finds the instances and plans that requests name, and stores those that they contain."""

    def __init__(self, store: Store, settings: Settings):
        self.store, self.settings = store, settings

    def instance(self, given: Any, field: str = "instance") -> tuple[Instance, str]:
        """The instance that a field of a request gives, and its digest in the store. Raises RefusedError if there is no
        instance of this name, or the instance cannot be used.
        """
        instance = self._named(given, field) if isinstance(given, str) else validated(Instance, given, field)
        if len(instance.workloads) > self.settings.workloads:
            raise _wrong(f"{field}.workloads", f"{len(instance.workloads)} of them; {self.settings.workloads} are "
                         "planned at once here; split it")
        stating = {"policy": instance.policy} | {f"workloads.{one.name}": one for one in instance.workloads}
        for which, one in stating.items():
            if isinstance(one.arrivals, Trace):
                raise _wrong(f"{field}.{which}.arrivals", "a trace is a file, and no file of the server is read for "
                             "requests; state another process")
        content = instance.model_dump(mode="json", exclude_none=True)
        return instance, self.store.keep("instance", instance.name, content, instance.digest)

    def plan(self, given: Any) -> tuple[Plan, str]:
        """The plan that a request gives, and its digest in the store. Raises RefusedError if there is no plan of this
        digest or job, or the plan cannot be used.
        """
        content = self._planned(given) if isinstance(given, str) else given
        plan: Plan = validated(Plan, content, "plan")
        return plan, self.store.keep("plan", plan.instance, plan.model_dump(mode="json", exclude_none=True))

    def find(self, name: str) -> Instance | None:
        """The instance of a name or digest; None if there is none."""
        if name in shipped_instances():
            return _shipped(name)
        if found := self._stored(name):
            return validated(Instance, found.content, "instance")
        few = all(len(number) <= MOST_COPIES for number in re.findall(r"\d+", name))
        return _generated(name) if few else None

    def _named(self, name: str, field: str) -> Instance:
        if (found := self.find(name)) is None:
            raise _wrong(field, f"{name[:80]!r}: neither a shipped nor a stored instance; see /api/v1/instances")
        return found

    def _stored(self, name: str) -> Document | None:
        """The stored instance with this digest, or the latest stored instance with this name; None if there is none."""
        if not DIGEST.fullmatch(name):
            name = next((row.digest for row in self.store.documents("instance", name, 1)), "")
        return self.store.document(name, "instance")

    def _planned(self, name: str) -> Any:
        if JOB.fullmatch(name):
            name = self.store.used([name], "plan").get(name, name)
        found = self.store.document(name, "plan")
        if found is None:
            raise _wrong("plan", f"{name[:80]!r}: neither the digest of a stored plan nor the id of a job with one")
        return found.content


@cache
def _shipped(name: str) -> Instance:
    """A shipped instance; cached."""
    return shipped(name)


def _generated(name: str) -> Instance | None:
    try:
        return generated(name)
    except InputError as error:
        raise unusable(error, "instance") from None


def _wrong(field: str, detail: str) -> RefusedError:
    pointer = "#/" + field.replace(".", "/")
    return refused(422, f"{field}: {detail}", [FieldProblem(pointer=pointer, field=field, detail=detail)])
