"""One module per verb or per few that belong together; what each verb does, so that only the one given is imported.

- ``planning``: plan, judge, compare, vary, replan. ``measuring``: profile and fit. ``gpus``: carry plans out.
- Beside them: what there is (``lists``), importers, the service, training, studies; ``common`` is what verbs share.
"""

import os
import signal
import sys
from collections.abc import Callable

VERBS = {
    "init": ("init", "write a first instance: from a few questions, or from the tables (CSV) in a folder"),
    "instances": ("lists", "list the shipped instances"),
    "methods": ("lists", "list the methods and what they can do"),
    "gpus": ("lists", "list the GPU types with their MIG profiles"),
    "schema": ("lists", "print the JSON Schema of a kind of file"),
    "solve": (
        "planning.solve",
        "find the plan with the fewest or cheapest GPUs or most throughput, prove it, verify it",
    ),
    "verify": ("planning.verify", "check a plan against its instance, independently of whoever made it"),
    "simulate": ("planning.simulate", "replay a plan: what latencies do its workloads meet, queueing and all?"),
    "compare": ("planning.compare", "run several methods on one instance and print one table"),
    "show": ("planning.show", "draw the GPUs of a plan with their slices"),
    "report": (
        "planning.report",
        "one page of everything: the plan and its proof, other methods, what if, a replay, a plan for more traffic",
    ),
    "import": ("imports", "turn public files of other systems into instances, performance data and plans"),
    "minimum": ("planning.minimum", "the least number of GPUs that an inference-perf specification needs, proven"),
    "serve": ("serve", "plan, watch, compare and export over HTTP and in a browser"),
    "warm-up": ("warm_up", "compile the kernels of the common methods ahead, so that no first answer waits for them"),
    "bench": (
        "planning.bench",
        "solve the benchmark families and set the answers against the best known; exit 1 when one is worse",
    ),
    "export": ("gpus.export", "write a plan for mig-parted, Kubernetes, Helm, KServe, Ray Serve, Triton or a shell"),
    "what-if": (
        "planning.what_if",
        "solve variations of an instance: what changes, where the next GPU is due, what a request costs",
    ),
    "fit": (
        "measuring.fit",
        "fit latency models to measured profile tables and judge them, on points left out when only some are fitted",
    ),
    "profile": ("measuring.profile", "measure models on the GPU, MIG slice or MPS share that CUDA programs get here"),
    "status": ("gpus.status", "show what runs: MIG modes, instances, MPS daemons, processes"),
    "diff": (
        "gpus.status",
        "list the steps from what runs to a plan, with what each disturbs; exit 1 when there are any",
    ),
    "assert": ("gpus.status", "exit 0 when a plan stands on the GPUs, 1 with what differs when it does not"),
    "apply": (
        "gpus.apply",
        "bring the GPUs to a plan; what fits already is not touched, after a failure what was there is put back",
    ),
    "rollback": ("gpus.apply", "go back to the layout that was there before the last apply"),
    "replan": ("planning.replan", "the best plan for new demand that disturbs the running one little"),
    "simulate-trace": (
        "planning.replan",
        "replay hours of demand under replanning policies: GPU-hours, changes, demand not served",
    ),
    "veltair": (
        "veltair",
        "serve DNNs on a modelled 64-core CPU as VELTAIR's figures do; exit 1 when a shape does not come out",
    ),
    "train": (
        "train",
        "train a policy for --method inss: soft actor-critic in InSS's analytic model of the instance's system",
    ),
    "profile-layers": (
        "measuring.profile_layers",
        "measure layers with PyTorch on this CPU, in several versions, alone and beside a load that streams memory",
    ),
    "fit-layers": (
        "measuring.fit_layers",
        "fit the analytical CPU model to measured layer times: how far off it is, how a background slows layers",
    ),
}
"""The module of each verb, whose function ``add_VERB`` declares the arguments, and what the verb does."""

SIGNALLED = 128
"""Added to a signal's number: the exit code of what the signal ended, as shells have it."""
INTERRUPTED = SIGNALLED + signal.SIGINT
"""Exit code of what Ctrl-C ended."""


def told(tell: Callable[[], None]) -> None:
    """Print an answer whose exit code counts, whether or not its reader is there to the end."""
    try:
        tell()
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Lead stdout nowhere: what it holds back Python would write, and complain about, at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
