"""``provision export``: writes a plan as the files of the tool that is to run it."""

from typing import Any

from provision.commands.verb import Given, OnPlan, Writing, instance_of
from provision.exporters.export import TARGETS, export, render
from provision.instances.read import read_plan
from provision.models.base.arguments import local, option
from provision.models.base.fields import Name, PositiveCount


class Export(OnPlan, Writing):
    """``provision export``: the files come as texts by name."""

    to: Name = option(..., "T", f"one of {', '.join(TARGETS)}", choices=tuple(TARGETS))
    out: str = local(..., "DIR", "folder to write, new or empty")
    gpus_per_node: PositiveCount = option(8, "N", "GPUs that a machine has", most=1024)

    def run(self) -> int:
        plan = read_plan(self.plan)
        instance = instance_of(self.plan, self.instance, plan)
        files = export(plan, self.to, self.out, instance, self.force, self.gpus_per_node)
        return self.answer({"to": self.to, "folder": self.out, "files": list(files)},
                           f"{len(files)} files written to {self.out}; its README.md says what to do with them")

    def job(self, given: Given) -> dict[str, Any]:
        return {"files": render(given.plan, self.to, given.instance, self.gpus_per_node)}
