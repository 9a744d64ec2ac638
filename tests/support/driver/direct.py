"""Calls of NVML on the thread that makes them: without the deadline of the real ones, and faster."""

import pynvml

from provision.applier.driver.calls import DriverError


class DirectCalls:
    """Stands for ``provision.applier.driver.calls.Calls`` where no call hangs."""

    hung, waiting = None, False

    def __call__(self, function, *arguments):
        try:
            return getattr(pynvml, function)(*arguments)
        except pynvml.NVMLError as error:
            raise DriverError(function, error.value) from None

    def end(self):
        """Nothing is to be let go."""
