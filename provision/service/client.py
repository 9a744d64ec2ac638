"""A client of the service: ``Client(url).solve(instance)`` does what ``provision.solve`` does."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from pydantic import BaseModel

from provision import InputError, Instance, Plan, Report, Result
from provision.commands import JOBS
from provision.commands.verb import REMOTE, request
from provision.models.problem.search import Incumbent

TRIES, WAIT_S = 5, 1.0
"""The number of times that a broken stream of events is opened, and the pause before each new attempt, in seconds."""
PARTS = {"compare": "rows", "what-if": "rows", "export": "files", "diff": "steps"}
"""The verbs of whose answer the client returns one part."""
NONE: Mapping[str, str] = {}


class Client:
    """A server of ``provision serve``; ``token`` if it asks for one, and the most seconds to wait for an answer."""

    def __init__(self, url: str = "http://127.0.0.1:8765", token: str | None = None, timeout_s: float = 60.0):
        self.url, self.token, self.timeout_s = url.rstrip("/"), token, timeout_s

    def solve(self, instance: str | Instance, method: str = "auto", time_limit_s: float = 60.0, seed: int = 0,
              report: Callable[[Incumbent], None] | None = None, **parameters: Any) -> Result:
        """Plan an instance, also one of the store, as ``provision.solve`` does. Raises InputError if refused."""
        job = {"verb": "solve", "instance": _plain(instance), "method": method, "time_limit_s": time_limit_s,
               "seed": seed, "parameters": parameters}
        found = self.run(job, report)
        plan, report_on_it = found["plan"], found["report"]
        return Result.of_summary(found, plan and Plan(**plan), report_on_it and Report(**report_on_it))

    def verify(self, instance: str | Instance, plan: str | Plan) -> Report:
        """Check a plan with the verifier, as ``provision.verify`` does."""
        return Report(**self._asked("verify", instance, plan))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The function of any other verb; it takes the fields of a job, as in ``replan(instance, plan)``."""
        verb = name.replace("_", "-")
        if verb not in JOBS:
            raise AttributeError(f"a client has no {name!r}; the service offers {', '.join(JOBS)}")
        return partial(self._asked, verb)

    def _asked(self, verb: str, *given: Any, **settings: Any) -> Any:
        """The answer of a job of a verb as plain content; of some verbs the part of it that counts (PARTS)."""
        fields = [name for name in request(verb).model_fields if name != "verb"]
        names = [*(name for name in REMOTE if name in fields), *(name for name in fields if name not in REMOTE)]
        content = {name: _plain(value) for name, value in (dict(zip(names, given, strict=False)) | settings).items()}
        found = self.run({"verb": verb} | content)
        return found[PARTS[verb]] if verb in PARTS else found

    def methods(self) -> list[dict[str, Any]]:
        """The rows of ``provision methods --json``."""
        return self.call("GET", "/api/v1/methods")

    def gpu_types(self) -> list[dict[str, Any]]:
        """The rows of ``provision gpus --json``."""
        return self.call("GET", "/api/v1/gpus")

    def instances(self) -> list[dict[str, Any]]:
        """The instances that ship with the server and the instances that were stored."""
        return self.call("GET", "/api/v1/instances")

    def read(self, name: str) -> Instance:
        """The instance with this name or digest on the server."""
        return Instance(**self.call("GET", f"/api/v1/instances/{quote(name, safe='')}"))

    def write(self, instance: Instance) -> str:
        """Store an instance on the server; returns its digest."""
        return self.call("POST", "/api/v1/instances", _plain(instance))["digest"]

    def submit(self, job: dict[str, Any]) -> str:
        """Submit a job; returns its id."""
        return self.call("POST", "/api/v1/jobs", job)["id"]

    def job(self, id: str) -> dict[str, Any]:
        """The state of a job: its status, incumbents, and its result or problem."""
        return self.call("GET", f"/api/v1/jobs/{quote(id, safe='')}")

    def cancel(self, id: str) -> None:
        """Cancel a job; it keeps the best plan that it has found."""
        self.call("DELETE", f"/api/v1/jobs/{quote(id, safe='')}")

    def run(self, job: dict[str, Any], report: Callable[[Incumbent], None] | None = None) -> dict[str, Any]:
        """The result of a job; Ctrl-C cancels it and returns the best so far. Raises InputError without one."""
        id = self.submit(job)
        try:
            for kind, content in self.events(id):
                if kind == "incumbent" and report is not None:
                    report(Incumbent(content["objective"], content["bound"]))
        except KeyboardInterrupt:
            self.cancel(id)
            for _ in self.events(id):
                pass
        found = self.job(id)
        if found["result"] is None:
            problem = found["problem"]
            raise InputError(problem["detail"] if problem else f"job {id} was {found['status']} before it had a result")
        return found["result"]

    def events(self, id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a job's events, ``(kind, content)``, until the job ends; a broken stream is resumed where it broke."""
        last, path = "0", f"/api/v1/jobs/{quote(id, safe='')}/events"
        for _ in range(TRIES):
            fields: dict[str, str] = {}
            with suppress(OSError, HTTPException), self._open("GET", path, headers={"Last-Event-ID": last}) as answer:
                for line in answer:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name:
                        fields[name] = value
                        continue
                    if fields.get("event") == "end":
                        return
                    if "event" in fields:
                        last = fields["id"]
                        yield fields["event"], json.loads(fields["data"])
                    fields = {}
            time.sleep(WAIT_S)
        raise InputError(f"{self.url}: the stream of job {id} breaks again and again; see /api/v1/jobs/{id}")

    def call(self, method: str, path: str, content: Any = None) -> Any:
        """The plain content of an answer; None if it is empty. Raises InputError without one, or if refused."""
        try:
            with self._open(method, path, content) as answer:
                text = answer.read()
        except (OSError, HTTPException) as error:
            raise InputError(f"{self.url}: the server does not answer: {error}") from None
        return json.loads(text) if text else None

    def _open(self, method: str, path: str, content: Any = None, headers: Mapping[str, str] = NONE) -> Any:
        body = None if content is None else json.dumps(content).encode()
        asked = Request(self.url + path, body, {"Content-Type": "application/json", **headers}, method=method)
        if self.token:
            asked.add_header("Authorization", f"Bearer {self.token}")
        try:
            return urlopen(asked, timeout=self.timeout_s)
        except HTTPError as error:
            try:
                told = json.loads(error.read())["detail"]  # of a problem document
            except (ValueError, KeyError):
                told = f"{error.code} {error.reason}"
            raise InputError(str(told)) from None


def _plain(given: Any) -> Any:
    return given.model_dump(mode="json", exclude_none=True) if isinstance(given, BaseModel) else given
