"""``provision minimum``: find and prove the least number of GPUs that an inference-perf specification needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, print_json, seconds, verdict
from provision.commands.live import planning
from provision.commands.planning.solve import print_answer
from provision.instances.files.files import check_writable, load, validate
from provision.instances.importers.tokens.inference_perf import read_inference_perf
from provision.instances.importers.tokens.minimum import minimum_instance
from provision.instances.read import write
from provision.models.base.clock import present_stop
from provision.models.base.errors import InputError
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.loads import TokenCounts
from provision.solving.solve import solve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_minimum(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("spec", metavar="SPEC", help="specification of inference-perf (YAML or JSON)")
    parser.add_argument("--performance", action="append", required=True, metavar="F",
                        help="performance data of kind tokens, a file per GPU type (see `provision import vllm`)")
    parser.add_argument("--model", metavar="NAME", help="the model's name in there (default: the specification's)")
    for name, text in (("ttft-ms", "limit of the first token"), ("tpot-ms", "limit per further token")):
        parser.add_argument(f"--{name}", type=float, metavar="MS", help=f"{text} (default: the specification's)")
    parser.add_argument("--percentile", type=float, metavar="P", help="of the requests, within them (default: 99)")
    for name in ("input", "output"):
        parser.add_argument(f"--{name}-tokens", type=int, metavar="N",
                            help="of every request, where the specification takes requests from a data set")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S", help="seconds (default: 60)")
    parser.add_argument("--instance", metavar="F", help="write the instance here, to change it or ask what-if")
    parser.add_argument("--out", metavar="F", help="write the plan here (.json, else YAML)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    for path in filter(None, (options.instance, options.out)):
        check_writable(path, options.force)
    files = [validate(TokenModels, load(path), path) for path in options.performance]
    prompt, output = (_constant(name, getattr(options, f"{name}_tokens")) for name in ("input", "output"))
    instance = minimum_instance(read_inference_perf(options.spec), files, options.model, options.ttft_ms,
                                options.tpot_ms, options.percentile, prompt, output)
    if options.instance:
        write(instance, options.instance, options.force)
    with planning(instance, "auto") as watch:
        result = solve(instance, time_limit_s=options.time_limit, report=watch.report, tell=watch.tell, strict=True)
    if result.plan is None and present_stop().asked:
        raise KeyboardInterrupt  # main tells that there is nothing to return
    if options.out and result.plan is not None:
        write(result.plan, options.out, options.force)
    if options.json:
        print_json(result.summary() | {"plan_file": options.out if result.plan is not None else None})
    else:
        print_answer(instance, result)
    return verdict(result.verified, result.status if result.plan is None else "violated")


def _constant(name: str, tokens: int | None) -> TokenCounts | None:
    if tokens is not None and tokens < 1:
        raise InputError(f"--{name}-tokens {tokens}: give at least 1")
    return None if tokens is None else TokenCounts.uniform(tokens, tokens)
