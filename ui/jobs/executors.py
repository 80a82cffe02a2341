"""Executors for a task's heavy part: in this process, on this machine's cores, or on a cluster.

The code uses only `concurrent.futures.Executor`. The submitted work contains keys, so a cluster must be trusted with
them and reached over TLS.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from irwm.errors import CancelledError, IrwmError, printable
from ui.services.work import Pool

# Number of noise coordinates from which more processes save time: they take seconds to start, and each core does about
# sixty million in a second.
WORTH_A_POOL = 600_000_000
CONNECT_SECONDS = 10
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class SchedulerError(IrwmError):
    """The cluster that IRWM_SCHEDULER names cannot be used."""


@contextlib.contextmanager
def executor_for(work: int, scheduler: str, cancelled: Callable[[], bool]) -> Iterator[Executor | None]:
    """The executor for this amount of work, closed at the end of the block; None if this process should do it.

    Args:
        work: noise coordinates that will be looked up, over all recipients and rows.
        scheduler: address of a Dask scheduler, "" for none. A cluster that is set is used even for little work.
        cancelled: tells whether Stop was pressed when a worker ends.

    Raises:
        SchedulerError: dask is not installed, no scheduler answers at the address, or it has no workers.
        IrwmError: a worker process ended, usually because memory ran out.
        CancelledError: a worker ended because Stop was pressed.
    """
    if scheduler:
        with _cluster(scheduler) as client, client.get_executor() as executor:
            yield executor
        return
    workers = cores()
    if workers < 2 or work < WORTH_A_POOL:
        yield None
        return
    with pool_of(_nothing, (), workers) as pool:
        try:
            yield pool.executor
        except BrokenProcessPool as error:
            if cancelled():
                raise CancelledError("stopped on request") from None
            raise IrwmError(
                "a process that was scoring recipients ended without a result",
                advice="The usual cause is too little memory. Close other programs, then start the task again",
            ) from error


@contextlib.contextmanager
def pool_of(
    prepare: Callable[..., None],
    args: tuple[object, ...],
    workers: int,
    scheduler: str = "",
    forget: Callable[[], None] | None = None,
) -> Iterator[Pool]:
    """Processes with one thread each, at most one for each core, whose end is not waited for; or all workers of a
    cluster.

    Args:
        prepare: called with `args` first in each process; both must be picklable. A worker that joins a cluster later
            calls it too.
        scheduler: address of a Dask scheduler, "" for none.
        forget: called in the workers of a cluster at the end, since their processes stay.

    Raises:
        SchedulerError: see `executor_for`; or a worker could not be prepared.
    """
    if scheduler:
        with _cluster(scheduler) as client, _prepared(client, prepare, args, forget):
            from distributed import KilledWorker

            with client.get_executor(pure=False) as executor:
                yield Pool(executor, max(1, sum(client.nthreads().values())), KilledWorker)
        return
    workers = max(1, min(workers, cores()))
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(prepare, args),
        )
        try:
            yield Pool(pool, workers, BrokenProcessPool)
        finally:
            # No waiting: after Stop the task must end at once, and running workers end with its process group.
            pool.shutdown(wait=False, cancel_futures=True)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """A client of the cluster."""
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
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _prepared(
    client: Any, prepare: Callable[..., None], args: tuple[object, ...], forget: Callable[[], None] | None
) -> Iterator[None]:
    """Prepares all workers of a cluster, and those that join it within the block."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class Prepares(WorkerPlugin):
        name = f"irwm {secrets.token_hex(8)}"

        def setup(self, worker: Any) -> None:
            prepare(*args)

        def teardown(self, worker: Any) -> None:
            if forget is not None:
                forget()

    try:
        client.register_plugin(Prepares())
    except Exception as error:  # raised by a worker, perhaps on another computer
        raise SchedulerError(
            "a worker of the cluster in IRWM_SCHEDULER could not be prepared",
            found=printable(f"{type(error).__name__}: {error}", 300),
            advice="Its workers need this program, and the same models at the same paths",
        ) from error
    try:
        yield
    finally:
        client.unregister_worker_plugin(Prepares.name)


def _unreachable(address: str, error: Exception) -> SchedulerError:
    return SchedulerError(
        "the cluster in IRWM_SCHEDULER does not respond or has no workers",
        expected="a Dask scheduler with at least one worker, at tls://host:port or tcp://host:port",
        found=f"{address}: {printable(str(error), 200)}",
        advice="Start the scheduler and its workers, correct the address, or unset IRWM_SCHEDULER to use this computer",
    )


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Limits every worker's libraries to one thread; they read these variables when they are loaded."""
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
    """Ends this worker when the process that started it has ended for any reason.

    A pool's workers wait forever for a killed parent, with keys in their memory.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start_worker(prepare: Callable[..., None], args: tuple[object, ...]) -> None:
    import torch

    end_with_parent()
    torch.set_num_threads(1)
    prepare(*args)


def _nothing() -> None:
    """For workers that need no preparation."""
