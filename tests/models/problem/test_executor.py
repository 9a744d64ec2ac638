"""Executors: the same results wherever tasks run, lost workers, and what cannot be reached."""

from time import perf_counter

import numpy as np
import pytest
from distributed import LocalCluster
from executor_tasks import dies, fails, process, times

import provision
from provision.cli import main
from provision.models.problem.executor import IN_PROCESS, Processes, executor_of


@pytest.fixture(scope="module")
def processes():
    with Processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as here, \
            executor_of(None, here.scheduler_address) as executor:
        yield executor


@pytest.fixture(params=["here", "processes", "cluster"])
def executor(request):
    return IN_PROCESS if request.param == "here" else request.getfixturevalue(request.param)


def test_results_are_the_same_everywhere(executor):
    given = executor.share(np.arange(3))
    found = executor.map(times, [(given, factor) for factor in range(7)])
    assert [one.tolist() for one in found] == [[0, factor, 2 * factor] for factor in range(7)]


def test_errors_of_tasks_are_raised(executor):
    with pytest.raises(ValueError, match="task 0"):
        executor.map(fails, [(0,)])


def test_several_work_at_once(processes, cluster):
    for executor in (processes, cluster):
        assert executor.workers == 2
        assert len(set(executor.map(process, [(0.3,)] * 4))) == 2


def test_a_worker_that_dies_costs_its_task(tmp_path, processes):
    assert processes.map(dies, [(str(tmp_path), number) for number in (0, 1)]) == [0, 1]
    assert processes.map(dies, [(str(tmp_path), 2)]) == [None]


def test_workers_end_when_nobody_wants_results(processes):
    begun = perf_counter()
    assert next(processes.results(process, [(0.0,), (600.0,)]))[0] == 0
    assert len(processes.map(process, [(0.0,)])) == 1 and perf_counter() - begun < 300


def test_plans_and_bounds_are_those_of_one_process(executor):
    instance = provision.read("igniter-motivation")
    here = provision.solve(instance, time_limit_s=60, replay=True)
    there = provision.solve(instance, time_limit_s=60, replay=True, executor=executor)
    assert there.report.ok and there.replay is not None
    assert (here.objective, here.bound, here.status) == (there.objective, there.bound, there.status)


@pytest.mark.parametrize("flags, problem", [
    (["--workers", "2", "--dask", "tcp://127.0.0.1:9"], "use one of them"),
    (["--workers", "0"], "at least 1"),
    (["--dask", "tcp://127.0.0.1:9"], "no scheduler answers"),
])
def test_options_that_do_not_work_get_one_line(capsys, monkeypatch, flags, problem):
    monkeypatch.setattr("provision.models.problem.executor.CONNECT_S", 1)
    assert main(["solve", "parvagpu-s1", *flags]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and problem in told.err


def test_a_cluster_without_workers_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("provision.models.problem.executor.CONNECT_S", 1)
    with LocalCluster(n_workers=0, dashboard_address=None) as empty:
        assert main(["solve", "parvagpu-s1", "--dask", empty.scheduler_address]) == 2
    assert "has no workers" in capsys.readouterr().err
