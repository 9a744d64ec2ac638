"""Measured servers of language models, as `silicon_error.py` predicts them: what they ran, and how they were set.

The rows of InferenceX do not tell the settings of their servers. Its launch scripts do (SemiAnalysisAI/InferenceX,
``benchmarks/``, Apache-2.0), and what they say is taken here: the precision of KV caches, the kernels of gpt-oss's
experts, the tokens of an iteration, how many iterations TensorRT-LLM waits for further prompts, and that vLLM schedules
asynchronously (``async-scheduling: true``), as it does by default from version 0.14 on. Of the other rows, measured
behind Dynamo by aiconfigurator's authors (vLLM 0.12), no settings are published.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from provision.instances.importers.tokens.guidellm import read_guidellm
from provision.models.base.arrays import Ints
from provision.models.fitting.operators.laws import FOLDERS
from provision.models.performance.operators.compose import MEMORY_PART
from provision.models.performance.tokens.loads import TokenCounts, TokenLoad
from provision.models.performance.tokens.records import Engine

NAMES = {"Qwen/Qwen3-32B": "qwen3-32b", "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
         "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b", "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
         "openai/gpt-oss-120b": "gpt-oss-120b"}
SYSTEMS = {folder: gpu for gpu, folder in FOLDERS.items()} | {"gb200": "b200-180gb"}
"""GPU types of the tables by system; a GB200's GPU is taken for a B200."""
BUDGET, SEQUENCES, BLOCK = 8192, 1024, 16
TRT_TOKENS = {"gpt-oss-120b": 20000, "llama-3.1-70b": 16384}
"""Tokens of an iteration that InferenceX gave TensorRT-LLM, except with nvfp4: the longest request and MARGIN."""
MARGIN = 200
WAIT = 20
"""Iterations that TensorRT-LLM waited for further prompts with Llama-3.1-70B, 1,024 tokens each way, on up to 4 GPUs
(``batch_wait_timeout_iters``)."""
ONE_WAITS = ("trtllm", "llama-3.1-8b")
"""Behind Dynamo this server ran one request less than there were clients, whatever their number: first tokens of its
117 rows are later by the time of a whole answer over the number of clients. Inferred from these rows."""
WAVES = 10
"""Requests of a run, as multiples of its concurrency, as InferenceX sends them."""
WARM_UP = 2
"""The multiples before them that Dynamo's benchmarks send and do not count; taken where all clients go in step."""
LENGTHS = {True: (0.8, 1.0), False: (0.9, 1.1)}
"""Parts of the nominal lengths between which InferenceX draws them, and between which those of others are taken to lie.
Others send equal lengths; the front end of a server that mixes prompts and tokens shakes its clients out of step, as
unequal lengths do here. A server that computes prompts alone keeps them in step: there lengths are equal."""
PARTS = {"sglang": 0.83}
"""The part of the memory that a server takes, where that is not vLLM's: Qwen3-32B in 16 bits on one H100 ran 2 to 5 of
16 requests at a time under SGLang, by TTFT and TPOT, which is what this part holds (about 7,000 tokens)."""
PROMPTS_ALONE = ("sglang",)
"""Servers whose iterations compute either prompts or tokens of answers."""
AHEAD = ("vllm",)
"""Servers that schedule ahead where InferenceX measured them; GuideLLM's sweeps of vLLM are from October 2025, when it
did not."""
IDLE_MS = 13.2
"""What GuideLLM's clients add after a pause (performance data guidellm-h100-80gb); no part of what ships for others."""
DYNAMO = "dynamo-"
"""How names of software begin that stands behind Dynamo's front end."""
SEED = 1
EVERY = 3
"""One run in so many of a sweep is fitted to; neighbours tell the same."""


class Row(NamedTuple):
    """A measured server: what it runs, the load, and logarithms of the measured TTFT and TPOT in ms.

    Those of InferenceX answer clients themselves, the others stand behind the front end of Dynamo.
    """

    model: str
    gpu: str
    gpus: int
    precision: str
    kv_precision: str
    server: str
    inferencex: bool
    isl: int
    osl: int
    concurrency: int
    measured: tuple[float, float]
    load: TokenLoad | None = None
    """How requests were sent, where that was not a closed loop; such rows are fitted to, not judged."""

    @property
    def software(self) -> str:
        """The name of what serves it."""
        return self.server if self.inferencex else f"{DYNAMO}{self.server}"

    @property
    def alone(self) -> bool:
        """Whether an iteration computes either prompts or tokens of answers, never both."""
        return self.server in PROMPTS_ALONE

    @property
    def ahead(self) -> bool:
        """Whether the requests of an iteration are chosen when the one before it begins."""
        return self.server in AHEAD and self.inferencex and self.load is None

    @property
    def memory_part(self) -> float:
        """The part of the memory that the server takes."""
        return PARTS.get(self.server, MEMORY_PART)

    @property
    def warm_up(self) -> int:
        """The number of requests that are sent first and not counted; 0 if iterations mix prompts and tokens."""
        return WARM_UP * self.concurrency if self.alone else 0

    def engine(self, kv_tokens: int) -> Engine:
        """The limits of its engine, with memory for so many tokens."""
        budget = BUDGET
        if self.inferencex and self.server == "trtllm":
            budget = TRT_TOKENS.get(self.model, BUDGET)
            if self.precision == "nvfp4":
                budget = self.isl + self.osl + MARGIN
        waits = not self.inferencex and (self.server, self.model) == ONE_WAITS
        sequences = self.concurrency - 1 if waits else SEQUENCES
        return Engine(budget, sequences, BLOCK, kv_tokens // BLOCK, self.alone, self.ahead)

    def lengths(self) -> tuple[Ints, Ints]:
        """(requests,) tokens of the prompts and of the answers, those of the warm-up first."""
        count, (low, high) = self.concurrency * WAVES + self.warm_up, LENGTHS[self.inferencex]
        if self.alone:
            low = high = 1.0
        prompt, output = (TokenCounts.uniform(low * nominal, high * nominal).sample(count, SEED + at)
                          for at, nominal in enumerate((self.isl, self.osl)))
        return prompt, output

    def waited(self) -> float:
        """The mean number of iterations that a prompt waits until more prompts have come; 0 if the server does not
        wait. The first prompt waits WAIT iterations, and those that come while it waits wait less.
        """
        waits = (self.inferencex and self.server == "trtllm" and self.model == "llama-3.1-70b"
                 and self.isl == self.osl == 1024 and self.gpus < 8)
        gathered = 1 + WAIT * self.concurrency / self.osl
        return WAIT * (gathered + 1) / (2 * gathered) if waits else 0.0


def read_rows(path: Path) -> Iterator[Row]:
    """The rows that count, each measurement once; prints how many do not, and why."""
    with path.open() as file:
        given = list(csv.DictReader(file))
    skipped: Counter[str] = Counter()
    for one in given:
        reason = ("listed twice" if one["same_as"] else "no concurrency" if not one["concurrency"]
                  else "no dimensions" if one["model"] not in NAMES else "no operator times"
                  if one["system"] not in SYSTEMS else "")
        if reason:
            skipped[reason] += 1
            continue
        model, gpu, server = NAMES[one["model"]], SYSTEMS[one["system"]], one["backend"]
        inferencex = one["source"].startswith("inferencex")
        precision, kv_precision = _precisions(model, gpu, server, inferencex, one["gemm_quant_mode"] or "bfloat16")
        measured = tuple(np.log([float(one["ttft_ms"]), float(one["tpot_ms"])]).tolist())
        yield Row(model, gpu, int(float(one["gpus"])), precision, kv_precision, server, inferencex, int(one["isl"]),
                  int(one["osl"]), int(float(one["concurrency"])), (measured[0], measured[1]))
    print(f"{len(given)} rows; left out: " + (", ".join(f"{many} {why}" for why, many in skipped.items()) or "none"))


def _precisions(model: str, gpu: str, server: str, inferencex: bool, given: str) -> tuple[str, str]:
    """The precision of the weights and of the KV cache.

    gpt-oss's experts have 4 bits. InferenceX multiplies them with activations of 8 bits on B200. On older GPUs it has
    vLLM take the kernels that the tables know from int4 weights (Marlin). It keeps KV caches in fp8, but for gpt-oss on
    older GPUs. TensorRT-LLM keeps them in fp8 where NVIDIA's quantised checkpoints say so.
    """
    small = gpu.startswith("b200")
    if not model.startswith("gpt-oss"):
        return given, "fp8" if inferencex or small or (server == "trtllm" and given != "bfloat16") else "bfloat16"
    if small:
        return "mxfp4_mxfp8", "fp8"
    return "int4" if inferencex and server == "vllm" else "mxfp4", "bfloat16"


def read_sweeps(folder: Path) -> Iterator[Row]:
    """The runs of GuideLLM's sweeps in a folder (``sweep-i1024-o256.json``) whose means are sound."""
    for path in sorted(folder.glob("*.json")):
        isl, osl = (int(part[1:]) for part in path.stem.split("-")[1:])
        for run in read_guidellm(path)[::EVERY]:
            ttft_ms, itl_ms = run.ttft.mean or 0.0, run.itl.mean or 0.0
            steady = run.load is not None and (run.load.rate_rps is not None or run.load.concurrency == 1)
            if steady and min(ttft_ms, itl_ms) > 0:
                yield Row("llama-3.1-8b", "h100-80gb", 1, "bfloat16", "bfloat16", "vllm", True, isl, osl, 1,
                          (float(np.log(ttft_ms)), float(np.log(itl_ms))), run.load)
