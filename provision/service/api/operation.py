"""An operation of the HTTP interface, and the route that is made of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from provision.service.messages.problems import problem_of, refused, response
from provision.service.store.store import Store
from provision.service.watch.metrics import Metrics
from provision.service.watch.settings import Settings
from provision.service.work.jobs import Jobs
from provision.service.work.reader import Reader


@dataclass
class Service:
    """The objects that all handlers use: settings, store, jobs, metrics, and the reader of bodies."""

    settings: Settings
    store: Store
    jobs: Jobs
    metrics: Metrics
    reader: Reader


Handler = Callable[[Service, Request], Awaitable[Any]]


@dataclass(frozen=True)
class Operation:
    """One operation of the HTTP interface.

    Attributes
    ----------
    method, path
        HTTP method and path.
    summary
        What the operation does.
    handler
        The function that answers a request; it returns plain content, a record of type ``answer``, or a Response.
    answer
        The type of the answer, for the OpenAPI description; None if only ``media`` describes the answer.
    status
        HTTP status of success.
    body
        The type of the request's body, for the OpenAPI description; None if there is no body.
    query
        Parameters of the query, each with its meaning.
    media
        Media type of the answer.
    problems
        HTTP statuses of problem documents that clients have to expect, in addition to 401.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    answer: Any = None
    status: int = 200
    body: Any = None
    query: tuple[tuple[str, str], ...] = ()
    media: str = "application/json"
    problems: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The operation's identifier in the OpenAPI description."""
        return self.handler.__name__

    def route(self, service: Service) -> Route:
        """The Starlette route of the operation; errors become problem documents."""

        async def endpoint(request: Request) -> Response:
            request.scope["template"] = self.path
            try:
                found = await self.handler(service, request)
            except ClientDisconnect:
                return response(refused(400, "body: the client hung up before its end").problem)
            except Exception as error:
                if (problem := problem_of(error)) is None:
                    raise
                return response(problem)
            return found if isinstance(found, Response) else self._response(found)

        return Route(self.path, endpoint, methods=[self.method], name=self.name)

    def _response(self, found: Any) -> Response:
        text = TypeAdapter(self.answer).dump_json(found)
        headers = {"Location": f"/api/v1/jobs/{found.id}"} if self.status == 201 and hasattr(found, "id") else None
        return Response(text, self.status, headers, media_type="application/json")
