"""A sweep on a Dask cluster of another process gives the table that it gives here."""

import pytest
from distributed import LocalCluster

import provision
from provision.cli import main
from provision.models.base.errors import InputError
from provision.models.problem.executor import executor_of
from provision.sweeps.parameters import made, points_of
from provision.sweeps.run import run

SETTINGS = {"method": "auto", "time_limit_s": 60.0, "seed": 0}


@pytest.fixture(scope="module")
def address():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def test_a_cluster_gives_the_same_table(address):
    instance = provision.read("parvagpu-s2")
    points, told = points_of(made({"rate": "0.8:1.2:0.02"})), []
    with executor_of(None, address) as executor:
        rows = run(instance, points, SETTINGS, tell=lambda number, rows: told.append(number),
                   executor=executor)
    assert rows == run(instance, points, SETTINGS) and sorted(told) == [0, 1, 2]


def test_the_command_takes_the_address_of_a_scheduler(address, capsys):
    flags = ["--vary", "rate=1,1.2", "--dask"]
    assert main(["what-if", "parvagpu-s1", *flags, address]) == 0
    assert "20 % more traffic" in capsys.readouterr().out


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr("provision.models.problem.executor.CONNECT_S", 1)
    with pytest.raises(InputError, match="no scheduler answers at"):
        executor_of(None, "tcp://127.0.0.1:9")
