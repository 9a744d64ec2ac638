"""``provision profile``, ``profile-layers``, ``fit-layers``: measure models on GPUs, layers on CPUs, and fit these."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from provision import InputError, write
from provision.commands.verb import Writing
from provision.draw.output import Rows, rows_of
from provision.draw.progress import counting
from provision.heuristics.veltair.profile import CONSTANTS, by_network, compared, fit_cpu
from provision.instances.files.csv_cells import csv_text
from provision.instances.files.files import validate, write_text
from provision.models.base.arguments import local, operand, written
from provision.models.base.fields import Positive, PositiveCount
from provision.models.cpu.layers import MEASURED_TOKENS, networks
from provision.models.cpu.times import LayerTimes, by_level, fit_proxy
from provision.profiling.measure import COLUMNS, Point, measure, row, segments
from provision.profiling.work import Device, device_of_environment
from provision.studies.layers import jobs, measured_cpu, read_layer_times, settings, usable_cores
from provision.studies.layers import measure as measure_layers
from provision.sweeps.table import as_csv


class FitLayers(Writing):
    times: str = operand("F", "a file of profile-layers, or a shipped name")
    out: str | None = written("write measured and predicted times of all layers here (.csv)")

    def run(self) -> int:
        times = read_layer_times(self.times)
        found = fitted(times)
        if self.out:
            write_text(self.out, as_csv(found["layers"]), self.force)
        return self.answer({"machine": times.machine.model_dump()} | found | {"file": self.out},
                           [*told_fit(times, found), *self.files_told])


def fitted(times: LayerTimes) -> dict[str, Any]:
    """The results of a fit: the CPU's constants, networks, layers, background levels, interference proxy or None."""
    cpu, proxy = fit_cpu(times), fit_proxy(times)
    layers = compared(times, cpu)
    return {
        "cpu": {name: getattr(cpu, name) for name in CONSTANTS}, "networks": by_network(layers), "layers": layers,
        "levels": by_level(times), "proxy": proxy and proxy._asdict(),
    }


def told_fit(times: LayerTimes, found: Mapping[str, Any]) -> Iterator[str | Rows]:
    """Yield the results of ``fitted`` as people read them."""
    machine, cpu, networks, levels = times.machine, found["cpu"], found["networks"], found["levels"]
    yield f"measured on {machine.cpu}, {machine.cores} cores, L3 {machine.l3_mib or '?'} MiB, PyTorch {machine.torch}"
    yield (f"a core does {cpu['core_flops'] / 1e9:.4g} GFLOP/s and reads {cpu['core_l3_bps'] / 1e9:.3g} GB/s, "
           f"a layer starts in {cpu['fork_s'] * 1e6:.3g} us")
    yield "\nVersions fastest alone, beside the analytical model"
    yield rows_of(networks)
    yield "\nBeside a load that streams memory"
    yield rows_of([row | {"fastest": ", ".join(f"{version} {count}" for version, count in row["fastest"].items())}
                   for row in levels])
    if found["proxy"]:
        yield ("proxy (known load instead of hardware counters): slowdown = 1 + B ({:.3g} + {:.3g} a), B and a in "
               "GB/s; R2 {:.2f} on rows left out".format(*found["proxy"]["weights"], found["proxy"]["r_squared"]))


MEASURED = networks(MEASURED_TOKENS)
"""The networks that can be measured, by name."""


class ProfileLayers(Writing):
    networks: tuple[str, ...] = operand("NETWORK", f"default: all, {', '.join(MEASURED)}", (), nargs="*")
    cores: tuple[PositiveCount, ...] = local((), "N,N", "numbers of cores (default: 1, 2, ... to all that may be used)")
    levels: tuple[Annotated[float, Field(ge=0, le=1)], ...] = local(
        (0.0, 0.5, 1.0), "L,L", "parts of the time that the background streams")
    seconds: Annotated[Positive, Field(le=60)] = local(0.1, "S", "per layer, version and setting")
    out: str = written("write the times here (.json, else YAML)", default=...)

    def run(self) -> int:
        usable, machine = usable_cores(), measured_cpu()
        for unknown in set(self.networks) - set(MEASURED):
            raise InputError(f"network {unknown!r}: none of this name ships; there are {', '.join(MEASURED)}")
        if (most := max(self.cores, default=1)) > len(usable):
            raise InputError(f"--cores {most}: write numbers from 1 to {len(usable)}, with commas between")
        cores, levels = self.cores or range(1, len(usable) + 1), {0.0, *self.levels}  # first without background load
        todo = settings(sorted({*cores}), sorted(levels), len(usable))
        work = jobs([network for name, network in MEASURED.items() if name in (self.networks or MEASURED)])
        rows, background = [], []
        with counting("measuring layers", len(todo) * len(work)) as advance:
            for setting in todo:
                found, streaming = measure_layers(work, setting, usable, machine.l3_mib, self.seconds, advance)
                rows += found
                background += [streaming] if streaming else []
        content = {"version": 1, "kind": "layer-times", "source": "measured by provision profile-layers",
                   "machine": machine, "background": background, "times": rows}
        times = validate(LayerTimes, content, "profile-layers")
        write(times, self.out, self.force)
        given_up = len(todo) * len(work) - len(rows)
        missing = [f"{given_up} of {len(todo) * len(work)} times are missing: other programs had the cores"]
        return self.answer({"times": len(rows), "missing": given_up, "file": self.out},
                           [*told_fit(times, fitted(times)), *missing[:given_up], *self.files_told])


SHOWN = ("model", "batch", "processes", "neighbour", "latency_ms", "gpu_ms", "throughput_rps")
CPU = Device("cpu", "whole")
Sizes = tuple[Annotated[int, Field(ge=1, le=4096)], ...]


class Profile(Writing):
    models: tuple[str, ...] = operand("MODEL", "torchvision:resnet50 or package.module:factory", nargs="+")
    batches: Sizes = local((1, 2, 4, 8, 16, 32, 64), "B,B", "batch sizes")
    processes: Sizes = local((1,), "P,P", "numbers of processes")
    beside: str | None = local(None, "MODEL:BATCH", "with this neighbour in a process of its own")
    seconds: Annotated[Positive, Field(lt=3600)] = local(3.0, "S", "per point")
    device: Literal["cuda", "cpu"] = local("cuda", None, "cpu tries a callable out")
    out: str = written("write the measurements here (.csv)", default=...)
    table: str | None = written("and what ran alone as performance data (.json, else YAML)")

    def run(self) -> int:
        if self.table and self.device == "cpu":
            raise InputError("--table: a CPU is no GPU type; leave it out with --device cpu")
        beside = None
        if self.beside is not None:
            model, _, batch = self.beside.rpartition(":")
            if not (model and batch.isdigit() and int(batch) > 0):
                raise InputError(f"--beside {self.beside}: write MODEL:BATCH, as torchvision:vgg19:8")
            beside = model, int(batch)
        points = [Point(one, size, number, beside)
                  for one, number, size in itertools.product(self.models, self.processes, self.batches)]
        device = device_of_environment() if self.device == "cuda" else CPU
        rows = []
        with counting("profiling", len(points)) as advance:
            for point in points:
                rows.append(row(device, point, measure(point, self.device, self.seconds)))
                write_text(self.out, csv_text(COLUMNS, rows), force=self.force or len(rows) > 1)
                advance(1)
        if self.table:
            source = f"measured by provision profile on {device.gpu} {device.profile}"
            write(segments(rows, f"profiled-{device.gpu}", source), self.table, self.force)
        told = [dict(zip(COLUMNS, one, strict=True)) for one in rows]
        return self.answer({"points": told, "file": self.out, "table_file": self.table},
                           [rows_of(told, SHOWN, lambda value: value or None), *self.files_told])
