"""Executors: where the tasks of a search run, in this process, in others here, or on a Dask cluster.

A task is a pure function of small arguments, so that its result does not depend on where it runs. What many tasks need,
such as an instance, is shared once. A task whose worker dies is tried once more; after that it is left out.
"""

from __future__ import annotations

import pickle
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from provision.models.base.clock import present_stop
from provision.models.base.errors import InputError

Result = TypeVar("Result")
AGAIN = 2
"""How often a task is begun at most, where workers die."""
CONNECT_S = 10
"""Seconds to wait for the scheduler of a cluster."""
LOOK_S = 0.1
"""The seconds between two looks, while tasks run, at whether the work should stop."""


class Executor(ABC):
    """Runs tasks; a context manager, which ends its workers.

    Attributes
    ----------
    workers
        How many tasks run at once.
    """

    workers: int = 1

    @abstractmethod
    def share(self, value: Any) -> Any:
        """A small argument that stands for a large one; the function of a task gets the value by ``shared``."""

    @abstractmethod
    def results(self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]
                ) -> Iterator[tuple[int, Result]]:
        """Call a function with the arguments of every task.

        Yields
        ------
        tuple of int and object
            The number of a task and its result, in the order in which they end. Tasks whose workers died twice are left
            out, and all that have not ended when a Stop is asked for. An exception in a task is raised here.
        """

    def map(self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]) -> list[Result | None]:
        """The results in the order of the tasks; None for those that are left out."""
        found: list[Result | None] = [None] * len(tasks)
        for number, result in self.results(function, tasks):
            found[number] = result
        return found

    @abstractmethod
    def close(self) -> None:
        """End the workers, whatever they do."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()


def shared(argument: Any) -> Any:
    """The value of an argument that an executor shared; in a task."""
    return _loaded(argument) if isinstance(argument, Path) else argument


@lru_cache(maxsize=8)
def _loaded(path: Path) -> Any:
    """The value in a file, read once by each process."""
    return pickle.loads(path.read_bytes())


class InProcess(Executor):
    """Runs tasks one after the other in this process."""

    def share(self, value: Any) -> Any:
        """The value itself."""
        return value

    def results(self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]
                ) -> Iterator[tuple[int, Result]]:
        """See ``Executor.results``; in order. One task is run at least."""
        stop = present_stop()
        for number, task in enumerate(tasks):
            if number and stop.asked:
                return
            yield number, function(*task)

    def close(self) -> None:
        """Nothing is to end."""


class Processes(Executor):
    """Runs tasks in processes on this machine.

    Parameters
    ----------
    workers
        How many.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._folder = tempfile.TemporaryDirectory(prefix="provision-")
        self._pool: Any = None
        self._many = 0

    def share(self, value: Any) -> Any:
        """A file with the value."""
        self._many += 1
        path = Path(self._folder.name, f"{self._many}.pickle")
        path.write_bytes(pickle.dumps(value))
        return path

    def results(self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]
                ) -> Iterator[tuple[int, Result]]:
        """See ``Executor.results``. When a worker dies all are started anew, with the tasks that have no result."""
        from joblib.externals.loky.process_executor import BrokenProcessPool

        left, stop = dict(enumerate(tasks)), present_stop()
        for _ in range(AGAIN):
            futures = {self._started().submit(function, *task): number for number, task in left.items()}
            waiting = set(futures)
            try:
                while waiting and not stop.asked:
                    done, waiting = wait(waiting, LOOK_S, FIRST_COMPLETED)
                    for future in done:
                        yield futures[future], future.result()
                        del left[futures[future]]
                return
            except BrokenProcessPool:
                continue
            finally:
                if left:  # workers died, the work should stop, or the caller wants no more results
                    self._end()

    def close(self) -> None:
        """See ``Executor.close``."""
        self._end()
        self._folder.cleanup()

    def _started(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, initializer=_leave_interrupts)
        return self._pool

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, kill_workers=True)
            self._pool = None


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that began the tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Dask(Executor):
    """Runs tasks on a Dask cluster, whose workers have this package installed.

    Parameters
    ----------
    address
        Of its scheduler, such as ``tcp://host:8786``.

    Raises
    ------
    InputError
        If Dask is not installed, the address is not one, or no scheduler answers.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
            from distributed.comm import get_address_host_port
        except ImportError:
            raise InputError("dask: not installed; pip install 'gpu-provision[dask]'") from None
        try:
            get_address_host_port(address, strict=True)
        except ValueError:
            raise InputError(f"dask: {address!r} is not the address of a scheduler; write tcp://HOST:PORT") from None
        try:
            self._client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"dask: no scheduler answers at {address} ({type(error).__name__}); start one with `dask "
                             "scheduler`, or correct the address") from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            self._client.close()
            raise InputError(f"dask: the cluster at {address} has no workers; start some with `dask worker`") from None
        self.workers = sum(self._client.nthreads().values())

    def share(self, value: Any) -> Any:
        """The value in the memory of the workers."""
        return self._client.scatter(value, broadcast=True)

    def results(self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]
                ) -> Iterator[tuple[int, Result]]:
        """See ``Executor.results``."""
        from distributed import CancelledError, KilledWorker
        from distributed import as_completed as completed

        futures: dict[Future[Result], int] = {
            self._client.submit(function, *task, pure=False): number for number, task in enumerate(tasks)}
        stop = present_stop()
        try:
            for future in completed(list(futures), loop=self._client.loop):
                if stop.asked:
                    return
                try:
                    yield futures[future], future.result()
                except (KilledWorker, CancelledError):
                    continue
        finally:
            self._client.cancel(list(futures))

    def close(self) -> None:
        """See ``Executor.close``; the cluster stays."""
        self._client.close()


IN_PROCESS = InProcess()
"""The executor of searches that are given no other."""


def executor_of(workers: int | None = None, dask: str | None = None) -> Executor:
    """The executor that options ask for.

    Parameters
    ----------
    workers
        Processes on this machine; None or 1 for this process.
    dask
        The address of a Dask scheduler; None for none.

    Raises
    ------
    InputError
        When both are given, for less than one worker, or when the cluster cannot be reached.
    """
    if workers is not None and dask is not None:
        raise InputError("--workers and --dask: use one of them; a cluster has its own workers")
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: should be at least 1")
    if dask is not None:
        return Dask(dask)
    return InProcess() if workers in (None, 1) else Processes(workers)
