"""Where a task's heavy part runs: in this process, on this machine's cores, or on a cluster.

Everything is written against `concurrent.futures.Executor`. What is handed out holds recipients' noise keys, so a
cluster must be trusted with them and spoken to over TLS.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from irwm.errors import CancelledError, IrwmError, printable
from ui.jobs.reporter import JobReporter

# Noise coordinates to look up from which further processes pay: they take seconds to start, and each core does some
# sixty million in a second.
WORTH_A_POOL = 600_000_000
CONNECT_SECONDS = 10
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class SchedulerError(IrwmError):
    """The cluster that IRWM_SCHEDULER names cannot be used."""


@contextlib.contextmanager
def executor_for(work: int, scheduler: str, report: JobReporter) -> Iterator[Executor | None]:
    """The executor for so much work, closed at the end of the block; None where this process is the place for it.

    Args:
        work: noise coordinates that will be looked up, over all recipients and rows.
        scheduler: address of a Dask scheduler, "" for none. A cluster that was set is used, however small the work.
        report: asked whether Stop was pressed when a worker ends.

    Raises:
        SchedulerError: dask is not installed, nobody answers at the address, or it has no workers.
        IrwmError: a worker process ended, as a rule for want of memory.
        CancelledError: it ended because Stop was pressed.
    """
    if scheduler:
        with _cluster(scheduler) as executor:
            yield executor
        return
    workers = cores()
    if workers < 2 or work < WORTH_A_POOL:
        yield None
        return
    with _one_thread_each():
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker)
        try:
            yield pool
        except BrokenProcessPool as error:
            if report.cancelled():
                raise CancelledError("stopped on request") from None
            raise IrwmError(
                "a process that scored recipients ended without saying how",
                advice="As a rule the computer ran out of memory: close other programs, then start it again",
            ) from error
        finally:
            # Not to wait: after Stop the task must be gone at once, and what still runs ends with its process group.
            pool.shutdown(wait=False, cancel_futures=True)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise SchedulerError(
            "IRWM_SCHEDULER is set, but the cluster's client is not installed",
            found=address,
            advice="Run pip install -r requirements-cluster.txt -c constraints.txt, or unset IRWM_SCHEDULER",
        ) from error
    try:
        client: Any = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise _unreachable(address, error) from error
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, RuntimeError) as error:
            raise _unreachable(address, error) from error
        with client.get_executor() as executor:
            yield executor
    finally:
        client.close()


def _unreachable(address: str, error: Exception) -> SchedulerError:
    return SchedulerError(
        "the cluster that IRWM_SCHEDULER names does not answer, or has no workers",
        expected="a Dask scheduler with at least one worker, at tls://host:port or tcp://host:port",
        found=f"{address}: {printable(str(error), 200)}",
        advice="Start the scheduler and its workers, correct the address, or unset IRWM_SCHEDULER to compute here",
    )


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """One thread for every worker's libraries, which read these variables when they are loaded."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_with_parent() -> None:
    """Have this worker end once the process that started it is gone, however that one ended.

    A pool's workers wait for ever for one that was killed, with the keys that they were given in their memory.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start_worker() -> None:
    import torch

    end_with_parent()
    torch.set_num_threads(1)
