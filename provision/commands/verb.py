"""What a verb is, and what verbs share. A verb is a class: its fields are arguments of the command line and, unless
they are local, fields of jobs over HTTP.

``run`` carries a verb out for the command line and returns the exit code; ``job``, in the verbs of JOBS, carries it out
for a job and returns plain content. The parser, completion, ``docs/reference/commands.md``, the request of a job and
its OpenAPI description follow from the fields.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Action, ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema, create_model

from provision import InputError, Instance, Plan, Report, read, read_plan, shipped_instances
from provision.cluster.state import State
from provision.commands import VERBS
from provision.draw.figures import check_picture
from provision.draw.output import Shown, show
from provision.draw.progress import progress
from provision.instances.files.files import check_writable, refused, validate
from provision.instances.read import generated
from provision.models.base.arguments import FORCE, arguments, declare, flag_of, given, limited, local, operand, option
from provision.models.base.fields import Flag, Name, Positive, Record, finite
from provision.models.base.objects import known

UNKNOWN = 3
"""The exit code if the time limit was reached without a plan and without a proof that there is none."""


def print_json(content: object) -> None:
    """Print a JSON object on stdout, with null for numbers that are not finite."""
    json.dump(finite(content), sys.stdout, indent=1)
    sys.stdout.write("\n")


def verdict(yes: bool, status: str) -> int:
    """The exit code of an answer: 0 for yes, 1 for no, 3 if the search ended without an answer."""
    return 0 if yes else UNKNOWN if status == "unknown" else 1


def until_stopped(row: Callable[[str], dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of all names; after Ctrl-C, the rows that were finished before it."""
    rows = []
    try:
        for name in names:
            rows.append(row(name))
    except KeyboardInterrupt:
        print(f"stopped: {len(rows)} of {len(names)} done", file=sys.stderr)
    return rows


LARGE_BYTES = 100_000
"""The size in bytes from which on reading a file takes noticeably long."""


def read_instance(name_or_path: str) -> Instance:
    """What ``provision.read`` returns. Raises InputError if the instance does not exist or cannot be used."""
    size = os.path.getsize(name_or_path) if os.path.isfile(name_or_path) else 0
    if size < LARGE_BYTES:
        return read(name_or_path)
    with progress(f"reading {name_or_path} ({size / 1e6:.1f} MB)"):
        return read(name_or_path)


def given_plan(plan_file: str, instance_file: str | None) -> tuple[Plan, Instance | None]:
    """The pair (plan, instance). Without an instance file, the instance is the shipped one, or None if that has changed
    since the plan was made. Raises InputError if a file cannot be used.
    """
    if instance_file:
        instance = read_instance(instance_file)
        return read_plan(plan_file, instance), instance
    plan = read_plan(plan_file)
    if plan.instance not in shipped_instances() and generated(plan.instance) is None:
        return plan, None
    instance = read(plan.instance)
    return plan, instance if plan.digest in ("", instance.digest) else None


def instance_of(plan_file: str, instance_file: str | None, plan: Plan) -> Instance:
    """The instance in a file; if none is named, the shipped instance for which the plan was made."""
    if instance_file is None and plan.instance not in shipped_instances():
        raise InputError(f"{plan_file}: made for {plan.instance}, which does not ship; name its file before it")
    return read(instance_file or plan.instance)


Seconds = Annotated[Positive, Field(le=1e7)]
AnyInstance = Name | Annotated[dict[Name, Any], WithJsonSchema({"$ref": "#/components/schemas/Instance"})]
AnyPlan = Name | Annotated[dict[Name, Any], WithJsonSchema({"$ref": "#/components/schemas/Plan"})]
REMOTE = {
    "base": Annotated[AnyInstance, Field(description="the instance before the change, as instance is stated")],
    "instance": Annotated[AnyInstance, Field(
        description="a shipped name, the digest of a stored one, or a whole one")],
    "plan": Annotated[AnyPlan, Field(description="the digest of a stored plan, the id of a job, or a plan")],
    "state": Annotated[dict[Name, Any], Field(description="the state of a cluster, as import kubernetes writes it")],
}
"""The types of fields that name files on the command line, as jobs have them."""


class Given:
    """The input of a job beside its request: its instance, and the plan or the state that it is about (None if there is
    none), as plain content, and the function to which it reports events of a kind (incumbent, progress).
    """

    def __init__(self, instance: Any, about: Any, report: Callable[[str, dict[str, Any]], None]):
        self.report, self._instance, self._about = report, instance, about

    @cached_property
    def instance(self) -> Instance:
        """The instance of a job that has one."""
        return validate(Instance, self._instance, "instance")

    @cached_property
    def base(self) -> Instance:
        """The instance before the change, for a job that reviews a change."""
        return validate(Instance, known(self._about), "base")

    @cached_property
    def plan(self) -> Plan:
        """The plan of a job on a plan."""
        return validate(Plan, known(self._about), "plan")

    @property
    def start(self) -> Plan | None:
        """The best plan of an earlier run of a job that is on no plan, whose process died."""
        return self._about if isinstance(self._about, Plan) else None

    @cached_property
    def state(self) -> State:
        """The state of a job on what runs."""
        return validate(State, known(self._about), "state")

    def incumbent(self, found: Any) -> None:
        """Report that a search has found an Incumbent."""
        self.report("incumbent", {"objective": found.objective, "bound": found.bound})
        if found.plan is not None:
            self.report("plan", {"plan": found.plan})

    def keep(self, result: dict[str, Any]) -> None:
        """Report what the result is if the job is interrupted now."""
        self.report("keep", {"result": result})

    def progress(self, done: int, total: int | None = None) -> None:
        """Report that ``done`` of ``total`` parts are done."""
        self.report("progress", {"done": done, "total": total})


class Verb(Record):
    """Base of all verbs. ``more_help`` ends the description in the help; empty is a full stop."""

    more_help: ClassVar[str] = ""

    @classmethod
    def declare(cls, parser: ArgumentParser) -> None:
        """Declare the arguments on a parser."""
        declare(parser, cls)

    @classmethod
    def chosen(cls, options: Namespace) -> type[Verb]:
        """The class that parsed options give the fields of."""
        return cls

    def refuse(self) -> None:
        """Refuse what cannot work, before any work."""

    def run(self) -> int:
        """Carry the verb out, print what comes of it, and return the exit code."""
        raise NotImplementedError

    def job(self, given: Given) -> dict[str, Any]:
        """The result as plain content. Raises KeyboardInterrupt if there is no more to keep than was told."""
        raise NotImplementedError

    def kept(self, given: Given) -> dict[str, Any] | None:
        """The result of a job that is cancelled before there is anything to keep; None if there is none."""
        return None


class Answering(Verb):
    """Base of verbs whose answer can be had as JSON."""

    as_json: Flag = local(False, None, "print one JSON object on stdout and nothing else", "--json")

    def answer(self, content: object, text: Shown, code: int = 0) -> int:
        """Print an answer: as JSON, or as people read it. Returns the exit code."""
        if self.as_json:
            print_json(content)
        else:
            show(text)
        return code


class Writing(Answering):
    """Base of verbs that write files. What stands in the way of these is told before any work."""

    force: Flag = FORCE

    @property
    def overwrites(self) -> bool:
        """Whether files that exist are written anew."""
        return self.force

    @property
    def outputs(self) -> dict[str, str]:
        """The files to write, by the flags that name them."""
        found = {flag_of(name, one): getattr(self, name) for name, (_, one) in arguments(type(self)).items()
                 if one.writes}
        return {flag: path for flag, path in found.items() if path}

    @property
    def files_told(self) -> list[str]:
        """A line on every file that was written."""
        return [f"written to {path}" for path in self.outputs.values()]

    def refuse(self) -> None:
        """Refuse files that cannot be written, or that two options name."""
        kinds = {flag_of(name, one): one.writes for name, (_, one) in arguments(type(self)).items()}
        first: dict[str, str] = {}
        for flag, path in self.outputs.items():
            if first.setdefault(path, flag) != flag:
                raise InputError(f"{path}: named by {first[path]} and by {flag}; give each a name of its own")
            (check_picture if kinds[flag] == "picture" else check_writable)(path, self.overwrites)


PLAN = "the plan, after its instance; a plan of an instance that ships needs none"

INSTANCE = option(None, "I", "the instance, where it does not stand before the plan")


class PlanFiles(Action):
    """The action of an argument that takes one file, the plan, or two files, the instance and the plan."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: str | Sequence[str] | None,
                 option_string: str | None = None) -> None:
        """Set the plan, and the instance if there are two files."""
        files = list(values or ())
        if len(files) > 2:
            raise ArgumentError(None, f"{' '.join(files)}: give a plan, and before it at most its instance")
        if files:
            namespace.plan = files[-1]
        if len(files) == 2:
            namespace.instance = files[0]


class OnPlan(Answering):
    """Base of verbs on a plan; an instance that ships may be left out."""

    plan: str = operand("[INSTANCE] PLAN", PLAN, nargs="+", action=PlanFiles)
    instance: str | None = INSTANCE


def verb_class(verb: str) -> type[Verb]:
    """The class of a verb."""
    module = import_module(f"provision.{VERBS[verb][0]}")
    found: type[Verb] = getattr(module, "".join(part.capitalize() for part in verb.split("-")))
    return found


def requested(verb: str, options: Namespace) -> Verb:
    """The verb that parsed options ask for."""
    kind = verb_class(verb).chosen(options)
    with refused(verb, kind):
        found = kind(**given(kind, options))
    found.refuse()
    return found


def request(verb: str) -> type[Record]:
    """The class of the requests for jobs of a verb."""
    kind = verb_class(verb)
    fields: dict[str, Any] = {"verb": (Literal[verb], ...)}
    for name, (one, argument) in arguments(kind).items():
        if argument.local:
            continue
        if name in REMOTE:
            fields[name] = (REMOTE[name], ...)
            continue
        content = argument.flag is None or argument.remote is not None
        default = ... if one.is_required() or (content and one.default is None) else one.default
        stated = argument.remote or limited(one, argument.most)
        fields[name] = (stated, Field(default, description=one.description))
    made: type[Record] = create_model(kind.__name__, __base__=Record, __doc__=kind.__doc__ or VERBS[verb][1], **fields)
    return made


def asked(verb: str, request: dict[str, Any]) -> Verb:
    """The verb that the request for a job asks for, with names in place of files, which jobs do not have."""
    kind = verb_class(verb)
    stated = {name: value for name, value in request.items() if name != "verb"}
    elsewhere = {name: name for name, (one, argument) in arguments(kind).items()
                 if (one.is_required() if argument.local else name in REMOTE)}
    with refused(verb, kind):
        return kind(**elsewhere | stated)


def planned(plan: Plan | None, report: Report | None) -> dict[str, Any]:
    """A plan and the verifier's report on it as plain content; the store keeps the plan as a document of its own."""
    return {
        "plan": plan and plan.model_dump(mode="json", exclude_none=True),
        "report": report and report.model_dump(mode="json"),
    }
