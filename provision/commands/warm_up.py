"""``provision warm-up``."""

import os
from typing import Any

from provision.commands.verb import Answering
from provision.models.base.arguments import local
from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag
from provision.starting.warm_up import warm_up


class WarmUp(Answering):
    portable: Flag = local(False, None, "for every x86-64 processor with AVX2, as a wheel needs (`make wheel`)")

    def run(self) -> int:
        if self.portable:
            _for_all_processors()
        watch = Stopwatch()
        kernels = warm_up()
        found: dict[str, Any] = {"kernels_compiled": kernels, "seconds": round(watch.elapsed_s, 3)}
        return self.answer(
            found, f"{kernels} kernels compiled in {found['seconds']:.1f} s; they are kept for later starts")


def _for_all_processors() -> None:
    """Make processes that are started from now on compile for the least processor that wheels support."""
    from provision.models.base.kernel_cache import PORTABLE, runs_portable

    if not runs_portable():
        raise InputError("--portable: this is no x86-64 processor with AVX2; build there, or leave it out")
    os.environ |= PORTABLE
