"""Tracing gives the same numbers wherever it runs: this process, a process pool, a Dask cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import irwm
from irwm.errors import CancelledError, IrwmError
from irwm.tracing import Tracing, trace_each
from storage import Jobs
from storage.job_keys import JobsKeys
from tests.jobs.conftest import quiet
from tests.jobs.recipients import averaged, make_keys, put_in_vault, request, run_job, succeeded
from tools.small_models import write_llama
from tools.waiting import until
from ui.jobs import executors
from ui.jobs.executors import SchedulerError
from ui.jobs.reporter import JobReporter


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("executors")
    path = write_llama(root / "original", vocab_size=9000)  # more than one task of rows
    model = irwm.open_checkpoint(path)
    keys = make_keys(model, [f"Customer {n}" for n in range(8)])
    copies = [Path(irwm.insert(model, key, root / key.recipient).path) for key in keys[:2]]
    return {"path": path, "model": model, "keys": keys, "mean": averaged(copies, root / "mean")}


@pytest.fixture(scope="module")
def here(world: dict[str, Any]) -> Tracing:
    """The tracing in this process."""
    return traced(world, None)


@pytest.fixture
def report(tmp_path: Path) -> JobReporter:
    jobs = Jobs(tmp_path / "home").opened(JobsKeys({"0" * 16: b"\x07" * 32}, "0" * 16))
    return JobReporter(jobs, jobs.create("investigate", "Investigate", {}).id)


def traced(world: dict[str, Any], executor: Any) -> Tracing:
    return trace_each(
        irwm.Examination(irwm.open_checkpoint(world["mean"]), world["model"]),
        world["keys"],
        executor=executor,
        decoys=20,
    )


def assert_the_same(one: Tracing, other: Tracing) -> None:
    assert one.traces == other.traces
    np.testing.assert_array_equal(one.decoys, other.decoys)
    assert len(one.named) == 2


def test_a_small_job_stays_in_this_process(report) -> None:
    with report.executor(1000, "") as executor:
        assert executor is None


@pytest.mark.slow
def test_a_process_pool_gives_exactly_the_same_numbers(world, here, report, monkeypatch) -> None:
    monkeypatch.setattr(executors, "cores", lambda: 2)
    with report.executor(executors.WORTH_A_POOL, "") as executor:
        assert executor is not None
        assert executor.submit(torch.get_num_threads).result() == 1
        assert executor.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
        assert_the_same(here, traced(world, executor))


@pytest.mark.slow
def test_a_cluster_of_two_workers_gives_exactly_the_same_numbers(world, here, report, cluster) -> None:
    with quiet(), report.executor(0, cluster.scheduler_address) as executor:
        assert_the_same(here, traced(world, executor))


@pytest.mark.slow
def test_an_investigation_runs_on_the_cluster(world, here, cluster, vault, jobs) -> None:
    put_in_vault(vault, world["keys"])
    asked = request(world["path"], None, suspect=str(world["mean"]), scheduler=cluster.scheduler_address)
    job = succeeded(run_job("investigate", asked, vault, jobs))
    by_name = {row["recipient"]: row["z"] for row in job.result["rows"]}
    assert by_name == {trace.recipient: trace.z for trace in here.traces}


@pytest.mark.slow
@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:{port}", "tls://127.0.0.1:{port}", "tcp://no.such.host.invalid:1"]
)
def test_wrong_scheduler_address_is_reported(report, monkeypatch, address: str) -> None:
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with quiet(), pytest.raises(SchedulerError) as error, report.executor(0, address.format(port=port)):
        raise AssertionError("nobody answers there")
    assert "unset IRWM_SCHEDULER" in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(("stopped", "error"), [(False, IrwmError), (True, CancelledError)])
def test_killed_worker_is_an_error_or_a_stop(report, monkeypatch, stopped: bool, error: type[IrwmError]) -> None:
    monkeypatch.setattr(executors, "cores", lambda: 2)
    with pytest.raises(IrwmError) as caught, report.executor(10**12, "") as executor:
        end_worker(report, executor, stopped)
    assert type(caught.value) is error


def end_worker(report: JobReporter, executor: Any, stopped: bool) -> None:
    if stopped:
        report.cancel()
    executor.submit(os._exit, 9).result()


POOL = """
import os, sys
from ui.jobs import executors
if __name__ == "__main__":
    executors.cores = lambda: 2
    with executors.executor_for(10**12, "", lambda: False) as pool:
        print(*{pool.submit(os.getpid).result() for _ in range(4)}, flush=True)
        sys.stdin.read()  # until it is killed
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_workers_end_with_a_killed_task(tmp_path: Path) -> None:
    """They received recipients' noise keys, and a process pool alone would keep them forever."""
    script = tmp_path / "pool.py"
    script.write_text(POOL, encoding="ascii")
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": root},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        workers = [int(word) for word in process.stdout.readline().split()]
        assert workers
        process.kill()
    until(lambda: not [pid for pid in workers if is_running(pid)], f"the end of the workers {workers}")


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False
