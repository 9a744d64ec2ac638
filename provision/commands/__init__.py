"""The verbs of the command line, each with the name of its module. Only the module of the given verb is imported.

``planning`` has the verbs that plan, verify, explain, compare and replan; the files beside it look at what runs, carry
plans out, measure and fit; ``verb`` has what verbs share.
"""

import os
import signal
import sys
from collections.abc import Callable

from provision.models.base.clock import present_stop

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Plan": {
        "solve": ("commands.planning.solve", "the plan of least cost, fewest GPUs or most throughput, proven"),
        "replan": ("commands.planning.replan", "the best plan for new demand that disturbs what runs little"),
        "ration": ("commands.planning.buy", "too few GPUs or too little money: who goes without, what helps"),
        "buy": ("commands.planning.buy", "what to reserve for demand over time, with a plan per period"),
        "minimum": ("commands.planning.solve", "the fewest GPUs that an inference-perf specification needs"),
    },
    "Check": {
        "verify": ("commands.planning.verify", "does a plan hold? Independent of whoever made it"),
        "check-proof": ("commands.planning.verify", "does a certificate prove its bound? No solver is asked"),
        "simulate": ("commands.planning.simulate", "replay a plan request by request: what latencies come of it?"),
        "simulate-trace": ("commands.planning.replan", "replay hours of demand under replanning policies"),
    },
    "Explain": {
        "explain": ("commands.planning.explain", "why these GPUs, what each workload costs, what binds"),
        "show": ("commands.planning.show", "draw the GPUs of a plan with their slices"),
        "what-if": ("commands.planning.what_if", "other rates, SLOs, prices, GPUs: what changes, and where?"),
        "review": ("commands.planning.explain", "what a change of an instance does: cost, moves, P99s, limits"),
        "report": ("commands.planning.report", "one page of everything: plan, proof, methods, what if, replay"),
    },
    "Data": {
        "init": ("commands.init", "write a first instance, from a few questions or tables (CSV)"),
        "import": ("commands.init", "turn files of other tools into instances, data and plans"),
        "profile": ("commands.layers", "measure models on the GPU, MIG slice or MPS share here"),
        "fit": ("commands.fit", "fit latency models to measurements, and judge the fit"),
        "instances": ("commands.lists", "list the instances that ship"),
        "gpus": ("commands.lists", "list GPU types: MIG profiles, data that ships, list prices"),
        "schema": ("commands.lists", "print the JSON Schema of a kind of file"),
    },
    "Cluster": {
        "recommend": ("commands.cluster", "how few GPUs are enough for what runs, and the steps there"),
        "defragment": ("commands.cluster", "the fewest moves that free GPUs, or proof that none do"),
        "calibrate": ("commands.cluster", "does a running plan do what was predicted?"),
        "watch": ("commands.cluster", "watch the rates: journal what should change, or do it"),
        "layout": ("commands.cluster", "does a MIG layout fit, where, and how is it created?"),
    },
    "GPUs": {
        "export": ("commands.planning.show", "write a plan for Kubernetes, Helm, KServe, Ray, Triton, shell"),
        "status": ("commands.apply", "what runs: MIG modes, instances, MPS daemons, processes"),
        "diff": ("commands.apply", "the steps from what runs to a plan; exit 1 when there are any"),
        "apply": ("commands.apply", "bring the GPUs to a plan; what fits already is not touched"),
        "assert": ("commands.apply", "exit 0 when a plan stands on the GPUs, 1 when not"),
        "rollback": ("commands.apply", "go back to the layout before the last apply"),
    },
    "Service": {
        "serve": ("service.serve", "a page and an HTTP interface: plan, watch, compare, export"),
    },
    "Research": {
        "methods": ("commands.lists", "list the methods and what each can do"),
        "compare": ("commands.planning.compare", "several methods on one instance, in one table"),
        "bench": ("commands.planning.bench", "the benchmark families against the best-known plans"),
        "train": ("commands.studies", "train a policy for the method inss"),
        "veltair": ("commands.studies", "serve DNNs on a modelled 64-core CPU as VELTAIR's figures do"),
        "profile-layers": ("commands.layers", "measure layers with PyTorch on this CPU"),
        "fit-layers": ("commands.layers", "fit the CPU model to measured layer times"),
    },
    "provision itself": {
        "help": ("commands.lists", "this page, or that of a verb"),
        "completion": ("commands.lists", "print what completes verbs and options in bash, zsh or tcsh"),
        "warm-up": ("commands.lists", "compile the kernels ahead, so that no first answer waits"),
    },
}
"""The verbs by group, each with the name of the module that has its class, and a summary."""
VERBS = {verb: about for verbs in GROUPS.values() for verb, about in verbs.items()}
"""All verbs, in the order of the groups."""

SIGNALLED = 128
"""The exit code of a verb that a signal ended is this number plus the number of the signal, as in shells."""
STOPPABLE = {"solve", "buy", "minimum", "compare", "bench", "what-if", "replan", "watch"}
"""The verbs that search or watch. Ctrl-C and SIGTERM ask them to stop; they end with what they have."""
JOBS = ("solve", "buy", "compare", "what-if", "explain", "review", "verify", "simulate", "simulate-trace", "replan",
        "export", "diff", "ration", "apply", "recommend", "defragment", "calibrate", "layout")
"""The verbs that the service offers as jobs."""
COMPUTING = {*STOPPABLE, "verify", "check-proof", "simulate", "simulate-trace", "explain", "show", "report",
             "ration", "review", "recommend", "defragment", "calibrate"}
"""The verbs that run compiled code, in which no signal may raise. Ctrl-C ends those that are not stoppable at once."""
NOTHING = "stopped before there was anything to return"


def interrupted() -> int:
    """The exit code of a verb that a signal ended; that of Ctrl-C if no other is known."""
    return SIGNALLED + (present_stop().signal or signal.SIGINT)


def told(tell: Callable[[], object]) -> None:
    """Print an answer by calling ``tell``; a reader that stops reading does not change the exit code."""
    try:
        tell()
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Drop what stdout still buffers, which Python would write at exit and report a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
