"""``provision minimum``: find and prove the least number of GPUs that an inference-perf specification needs."""

from __future__ import annotations

from provision.commands.common import print_json, verdict
from provision.commands.live import planning
from provision.commands.planning.solve import print_answer
from provision.commands.verb import Seconds, Writing
from provision.instances.files.files import check_writable, load, validate
from provision.instances.importers.tokens.inference_perf import read_inference_perf
from provision.instances.importers.tokens.minimum import minimum_instance
from provision.instances.read import write
from provision.models.base.arguments import local, operand, option
from provision.models.base.clock import present_stop
from provision.models.base.fields import PositiveCount
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.loads import TokenCounts
from provision.solving.solve import solve


class Minimum(Writing):
    """``provision minimum``."""

    spec: str = operand("SPEC", "specification of inference-perf (YAML or JSON)")
    performance: tuple[str, ...] = option(..., "F", "performance data of kind tokens, a file per GPU type (see "
                                                    "`provision import vllm`)", action="append")
    model: str | None = option(None, "NAME", "the model's name in there (default: the specification's)")
    ttft_ms: float | None = option(None, "MS", "limit of the first token (default: the specification's)")
    tpot_ms: float | None = option(None, "MS", "limit per further token (default: the specification's)")
    percentile: float | None = option(None, "P", "of the requests, within them (default: 99)")
    input_tokens: PositiveCount | None = option(
        None, "N", "of every request, where the specification takes requests from a data set")
    output_tokens: PositiveCount | None = option(
        None, "N", "of every request, where the specification takes requests from a data set")
    time_limit_s: Seconds = option(60.0, "S", "seconds")
    instance: str | None = local(None, "F", "write the instance here, to change it or ask what-if")
    out: str | None = local(None, "F", "write the plan here (.json, else YAML)")

    def run(self) -> int:
        """Print the plan with its proof."""
        for path in filter(None, (self.instance, self.out)):
            check_writable(path, self.force)
        files = [validate(TokenModels, load(path), path) for path in self.performance]
        prompt, output = _constant(self.input_tokens), _constant(self.output_tokens)
        instance = minimum_instance(read_inference_perf(self.spec), files, self.model, self.ttft_ms,
                                    self.tpot_ms, self.percentile, prompt, output)
        if self.instance:
            write(instance, self.instance, self.force)
        with planning(instance, "auto") as watch:
            result = solve(instance, time_limit_s=self.time_limit_s, report=watch.report, tell=watch.tell, strict=True)
        if result.plan is None and present_stop().asked:
            raise KeyboardInterrupt  # main tells that there is nothing to return
        if self.out and result.plan is not None:
            write(result.plan, self.out, self.force)
        if self.as_json:
            print_json(result.summary() | {"plan_file": self.out if result.plan is not None else None})
        else:
            print_answer(instance, result)
        return verdict(result.verified, result.status if result.plan is None else "violated")


def _constant(tokens: int | None) -> TokenCounts | None:
    return None if tokens is None else TokenCounts.uniform(tokens, tokens)
