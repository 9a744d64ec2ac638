"""An operation of the HTTP interface, which its handler states; its route and OpenAPI description are made of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from provision import InputError, Instance, Plan, __version__
from provision.instances.read import generated, shipped, shipped_instances
from provision.models.traffic.arrivals import Trace
from provision.service.jobs import Jobs
from provision.service.messages import FieldProblem, Problem, RefusedError, refused, unusable, validated
from provision.service.processes import Reader
from provision.service.settings import Metrics, Settings
from provision.service.store import Store


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
    """One operation of the HTTP interface: method, path, and the function that answers.

    The function is called with the Service and, as it names them, the request, parts of the path, and parameters of the
    query, which have defaults; it runs in a thread unless it is a coroutine. It returns plain content, a record, or a
    Response. Its docstring says what the operation does, its annotation what it returns, unless ``returns`` says it.
    ``body`` is the type of the request's body; ``status`` and ``media`` are those of the answer.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    returns: Any = None
    status: int = 200
    body: Any = None
    media: str = "application/json"

    @property
    def answer(self) -> Any:
        """The type of the answer; None if only ``media`` describes it."""
        returned = self.returns or signature(self.handler).return_annotation
        return None if isinstance(returned, type) and issubclass(returned, Response) else returned

    @property
    def query(self) -> dict[str, Any]:
        """The types of the query's parameters, by name."""
        given = signature(self.handler).parameters.values()
        return {one.name: one.annotation for one in given if one.default is not one.empty}

    def route(self, service: Service) -> Route:
        """The Starlette route of the operation."""
        query, written = self.query, TypeAdapter(self.answer)
        asks = "request" in signature(self.handler).parameters

        async def endpoint(request: Request) -> Response:
            request.scope["template"] = self.path
            given = request.path_params | {
                name: validated(query[name], text, name) for name, text in request.query_params.items() if name in query
            } | ({"request": request} if asks else {})
            found = await (self.handler(service, **given) if iscoroutinefunction(self.handler)
                           else run_in_threadpool(self.handler, service, **given))
            if isinstance(found, Response):
                return found
            headers = {"Location": f"/api/v1/jobs/{found.id}"} if self.status == 201 and hasattr(found, "id") else None
            return Response(written.dump_json(found), self.status, headers, media_type="application/json")

        return Route(self.path, endpoint, methods=[self.method])


OPERATIONS: list[Operation] = []
"""All operations, in the order in which they are described."""
Handler = TypeVar("Handler", bound=Callable[..., Any])


def operation(method: str, path: str, **settings: Any) -> Callable[[Handler], Handler]:
    """Make the decorated handler an Operation, one of OPERATIONS."""
    def declare(handler: Handler) -> Handler:
        OPERATIONS.append(Operation(method, path, handler, **settings))
        return handler

    return declare


REFERENCE = "#/components/schemas/{model}"
PROBLEM = {"description": "What is wrong",
           "content": {"application/problem+json": {"schema": {"$ref": REFERENCE.format(model="Problem")}}}}


@cache
def description() -> dict[str, Any]:
    """The description, in version 3.1 of OpenAPI."""
    types: list[tuple[Any, Any, Any]] = [
        (one.handler, mode, TypeAdapter(kind)) for one in OPERATIONS
        for mode, kind in (("validation", one.body), ("serialization", one.answer)) if kind is not None]
    named = {kind.__name__: kind for kind in (Problem, Instance, Plan)}
    types += [(name, "validation", TypeAdapter(kind)) for name, kind in named.items()]
    schemas, definitions = TypeAdapter.json_schemas(types, ref_template=REFERENCE)
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(
            one, schemas.get((one.handler, "validation")), schemas.get((one.handler, "serialization")))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "provision", "version": __version__,
            "description": "How few GPUs, partitioned how, for DNN inference under SLOs: plans with proofs.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: schemas[name, "validation"] for name in named} | definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(operation: Operation, body: Any, answer: Any) -> dict[str, Any]:
    summary = (operation.handler.__doc__ or "").removesuffix(".")
    success: dict[str, Any] = {"description": summary}
    if operation.media:
        success["content"] = {operation.media: {"schema": answer or {"type": "string"}}}
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                  for name in re.findall(r"\{(\w+)\}", operation.path)]
    for name, kind in operation.query.items():
        schema = TypeAdapter(kind).json_schema()
        parameters.append({"name": name, "in": "query", "description": schema.pop("description"), "schema": schema})
    content = {kind: {"schema": body} for kind in ("application/json", "application/yaml")}
    return {
        "operationId": operation.handler.__name__, "summary": summary, "parameters": parameters,
        "responses": {str(operation.status): success, "default": PROBLEM},
    } | ({"requestBody": {"required": True, "content": content}} if body is not None else {})


@operation("GET", "/api/v1/openapi.json")
def get_description(service: Service) -> dict[str, Any]:
    """This description."""
    return description()


DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_COPIES = 4
"""The most digits that a number in the name of a generated instance may have, so that no huge instance is generated."""
SHIPPED = cache(shipped)


class Givens:
    """Finds the instances and plans that requests name, and stores those that they contain."""

    def __init__(self, store: Store, settings: Settings):
        self.store, self.settings = store, settings

    def instance(self, given: Any, field: str = "instance") -> tuple[Instance, str]:
        """The instance that a field of a request gives, and its digest in the store; raises RefusedError without."""
        instance = self.find(given) if isinstance(given, str) else validated(Instance, given, field)
        if instance is None:
            raise _wrong(field, f"{given[:80]!r}: neither a shipped nor a stored instance; see /api/v1/instances")
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
        """The plan that a request gives, and its digest in the store; raises RefusedError without."""
        content = given
        if isinstance(given, str):
            content = self.store.document(self.store.used([given], "plan").get(given, given), "plan")
        if content is None:
            raise _wrong("plan", f"{given[:80]!r}: neither the digest of a stored plan nor the id of a job with one")
        plan: Plan = validated(Plan, content, "plan")
        return plan, self.store.keep("plan", plan.instance, plan.model_dump(mode="json", exclude_none=True))

    def find(self, name: str) -> Instance | None:
        """The instance of a name, the latest stored one, or of a digest; None if there is none."""
        if name in shipped_instances():
            return SHIPPED(name)
        latest = [] if DIGEST.fullmatch(name) else self.store.documents("instance", name, 1)
        if found := self.store.document(latest[0].digest if latest else name, "instance"):
            return validated(Instance, found, "instance")
        few = all(len(number) <= MOST_COPIES for number in re.findall(r"\d+", name))
        try:
            return generated(name) if few else None
        except InputError as error:
            raise unusable(error, "instance") from None


def _wrong(field: str, detail: str) -> RefusedError:
    pointer = "#/" + field.replace(".", "/")
    return refused(422, f"{field}: {detail}", [FieldProblem(pointer=pointer, field=field, detail=detail)])
