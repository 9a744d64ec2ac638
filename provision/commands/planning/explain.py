"""``provision explain``: tell why a plan is as it is, what it costs, and what a longer SLO or another GPU would gain.
"""

from typing import Any

from provision.answers.explain import explain
from provision.commands.verb import Given, OnPlan, Seconds, given_plan
from provision.draw.progress import progress
from provision.instances.read import read_plan
from provision.models.base.arguments import local, option
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Name


class Explain(OnPlan):
    """``provision explain``: for one workload or all, compared with a GPU type or all of the fleet."""

    workload: Name | None = option(None, "W", "tell of this workload alone")
    on: Name | None = option(None, "GPU", "compare with this GPU type, also one that the fleet lacks")
    before: str | None = local(None, "PLAN", "the plan that ran before: tell what changes")
    time_limit_s: Seconds = option(20.0, "S", "seconds")
    markdown: Flag = local(False, None, "as Markdown, such as for a pull request")

    def run(self) -> int:
        plan, instance = given_plan(self.plan, self.instance)
        if instance is None:
            raise InputError(f"{self.plan}: made for {plan.instance}, which does not ship; name its file before it")
        before = read_plan(self.before, instance) if self.before else None
        with progress(f"explaining {self.plan}"):
            found = explain(instance, plan, self.workload, self.on, before, self.time_limit_s)
        heading, item = ("### {}\n", "- {}") if self.markdown else ("{}:", "  {}")
        return self.answer(found.summary(), (line for title, lines in found.sections().items()
                                             for line in (heading.format(title), *map(item.format, lines))))

    def job(self, given: Given) -> dict[str, Any]:
        found = explain(given.instance, given.plan, self.workload, self.on, None, self.time_limit_s)
        return found.summary() | {"sections": found.sections()}
