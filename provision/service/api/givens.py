"""Finds the instances and plans that a request gives by name, by digest, or as a whole. A name is never used as a path.
"""

import re
from functools import cache
from typing import Any

from provision import InputError, Instance, Plan
from provision.instances.files.shipped import shipped, shipped_instances
from provision.instances.generators.families import generated
from provision.models.traffic.arrivals import Trace
from provision.service.messages.answers import FieldProblem
from provision.service.messages.problems import RefusedError, refused, unusable, validated
from provision.service.store.store import Document, Store
from provision.service.watch.settings import Settings

DIGEST = re.compile(r"[0-9a-f]{64}")
JOB = re.compile(r"[0-9a-f]{16}")
MOST_COPIES = 4
"""The most digits that a number in the name of a generated instance may have, so that no huge instance is generated."""


class Givens:
    """Finds the instances and plans that requests name, and stores those that they contain."""

    def __init__(self, store: Store, settings: Settings):
        self.store, self.settings = store, settings

    def instance(self, given: Any) -> tuple[Instance, str]:
        """The instance that a request gives, and its digest in the store.

        Raises
        ------
        RefusedError
            If there is no instance of this name, or the instance cannot be used.
        """
        instance = self._named(given) if isinstance(given, str) else validated(Instance, given, "instance")
        if len(instance.workloads) > self.settings.workloads:
            raise _wrong("instance.workloads", f"{len(instance.workloads)} of them; {self.settings.workloads} are "
                         "planned at once here; split it")
        stating = {"policy": instance.policy} | {f"workloads.{one.name}": one for one in instance.workloads}
        for which, one in stating.items():
            if isinstance(one.arrivals, Trace):
                raise _wrong(f"instance.{which}.arrivals", "a trace is a file, and no file of the server is read for "
                             "requests; state another process")
        content = instance.model_dump(mode="json", exclude_none=True)
        return instance, self.store.keep("instance", instance.name, content, instance.digest)

    def plan(self, given: Any) -> tuple[Plan, str]:
        """The plan that a request gives, and its digest in the store.

        Raises
        ------
        RefusedError
            If there is no plan of this digest or job, or the plan cannot be used.
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

    def _named(self, name: str) -> Instance:
        if (found := self.find(name)) is None:
            raise _wrong("instance", f"{name[:80]!r}: neither a shipped nor a stored instance; see /api/v1/instances")
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

