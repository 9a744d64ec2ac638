"""Imports benchmarks of language model servers, to which performance data is fitted."""

from typing import Annotated, ClassVar

from pydantic import Field

from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.tokens.server import OfServer
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import PositiveCount
from provision.models.hardware.gpu import SIZES, UNIT, split


class Benchmarks(OfServer):
    """Base of the tools; all files are of one model on one GPU type and slice, and are fitted together."""

    tool: ClassVar[str]
    path: tuple[str, ...] = operand("FILE", "the files to read", nargs="+")
    tensor_parallel: tuple[Annotated[int, Field(ge=1, le=max(SIZES))], ...] = local(
        (), "N,...", "GPUs of each file's server: a file and one of --kv-tokens for each; the data is then for nodes "
        "of these GPUs")
    concurrency: PositiveCount | None = local(
        None, "N", "clients that sent when they were answered, for files that do not tell how requests came")

    def read(self) -> Imported:
        """Fit the files."""
        from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks

        if self.tensor_parallel:
            return self._degrees()
        found, misfit = fitted_performance(read_benchmarks(self.tool, self.path, self.concurrency), self.measured())
        return Imported(found, (misfit,))

    def _degrees(self) -> Imported:
        """Fit one model on groups of GPUs of a node; each size of group has one file and one number of KV tokens."""
        from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks

        degrees = self.tensor_parallel
        if not len(degrees) == len(self.path) == len(self.kv_tokens):
            raise InputError(
                f"--tensor-parallel {','.join(map(str, degrees))}: {len(degrees)} degrees, {len(self.path)} files and "
                f"{len(self.kv_tokens)} --kv-tokens; give one file and one number for each degree"
            )
        node = self.gpu if split(self.gpu)[0] > 1 else f"{max(*degrees, min(SIZES))}x{self.gpu}"
        models, lines = [], []
        for degree, path, tokens in zip(degrees, self.path, self.kv_tokens, strict=True):
            runs = read_benchmarks(self.tool, [path], self.concurrency)
            found, misfit = fitted_performance(runs, self.measured(node, f"{degree}{UNIT}", tokens))
            models.append(found)
            lines.append(f"{degree} GPUs: {misfit}")
        slices = {name: one for found in models for name, one in found.models[self.model].slices.items()}
        whole = models[0].models[self.model].model_copy(update={"slices": slices})
        return Imported(models[0].model_copy(update={"models": {self.model: whole}}), tuple(lines))


def _importer(name: str, files: str) -> Importer:
    """The Importer of a tool's files."""
    summary = f"benchmarks of a language model ({files}), as performance data fitted to them"
    return Importer(summary, type(name, (Benchmarks,), {"tool": name, "__module__": __name__}))


GUIDELLM = _importer("guidellm", "GuideLLM's JSON or CSV")
VLLM = _importer("vllm", "what vllm bench serve saves")
AIPERF = _importer("aiperf", "AIPerf's profile_export.jsonl")
