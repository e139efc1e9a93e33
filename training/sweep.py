"""Plays the runs of a sweep on many cores, a process each; what is finished is handed over as it comes."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from threading import Thread

from forecaster.errors import ForecasterError
from simulator.fleet import Fleet
from training.closed_loop import compare
from training.sweep_tasks import SweepRun, SweepTask

POLL_SECONDS = 0.2
"""How often progress is told and a wish to stop is noticed."""

# Each process has a core to itself; a second thread of a numerical library would take it from another.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class _Stopped(Exception):
    """The sweep is to stop: the run under way is given up."""


class _Worker:
    """What a worker process shares with the sweep; filled in when it starts."""

    played_seconds: "Synchronized[float]"
    stop: Event


def play_tasks(
    tasks: Sequence[SweepTask],
    *,
    num_jobs: int,
    on_played: Callable[[float], None] = lambda seconds: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[SweepRun]:
    """Yield each task's run as it is finished, in no certain order.

    Parameters
    ----------
    tasks : sequence of SweepTask
    num_jobs : int
        Processes at a time.
    on_played : callable, optional
        Told of the simulated seconds that all runs together have been played, every `POLL_SECONDS`.
    is_stopped : callable, optional
        Asked as often; once it is true, runs under way are given up within a tick.

    Raises
    ------
    ForecasterError
        If a process died.
    """
    context = multiprocessing.get_context("spawn")  # a fork would copy threads and locks of numerical libraries
    played, stop = context.Value("d", 0.0), context.Event()
    pool = ProcessPoolExecutor(
        max_workers=max(min(num_jobs, len(tasks)), 1),
        mp_context=context,
        initializer=_start_worker,
        initargs=(played, stop),
    )
    try:
        with _as_workers_start():
            # the longest first, so that no core waits long for the last one
            longest_first = sorted(tasks, key=lambda task: -task.duration_seconds)
            pending: set[Future[SweepRun | None]] = {pool.submit(_play, task, task.key) for task in longest_first}
        while pending and not is_stopped():
            done, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            on_played(played.value)
            yield from _finished(done)
        stop.set()
        pool.shutdown(cancel_futures=True)
        yield from _finished(future for future in pending if not future.cancelled())
    except BrokenProcessPool as error:
        raise ForecasterError(
            "a process of the sweep was killed, perhaps because memory ran out; runs that were finished are kept: "
            "run the same command again, with fewer --jobs"
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _finished(futures: Iterable[Future[SweepRun | None]]) -> Iterator[SweepRun]:
    for future in futures:
        run = future.result()
        if run is not None:
            yield run


@contextmanager
def _as_workers_start() -> Iterator[None]:
    """Give the processes that start now one thread each, and no ear for Ctrl-C, which is the sweep's to hear."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker(played_seconds: "Synchronized[float]", stop: Event) -> None:
    _Worker.played_seconds, _Worker.stop = played_seconds, stop
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is killed, which can tell it nothing any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Progress:
    """Tells the sweep how far a run is, and gives it up if the sweep is to stop."""

    def __init__(self) -> None:
        self.reached_seconds = 0.0

    def reach(self, seconds: float) -> None:
        with _Worker.played_seconds.get_lock():
            _Worker.played_seconds.value += seconds - self.reached_seconds
        self.reached_seconds = seconds
        if _Worker.stop.is_set():
            raise _Stopped

    def on_tick(self, policy: str, fleet: Fleet) -> None:
        self.reach(fleet.now)


def _play(task: SweepTask, key: str) -> SweepRun | None:
    """Return a task's run, in a worker; None if the sweep is to stop."""
    progress = _Progress()
    run_of_task = partial(SweepRun, key=key, scenario=task.scenario.name, policy=task.policy, seed=task.seed)
    try:
        progress.reach(0.0)
        loop, num_left_out = task.closed_loop()
        (played,) = compare(loop, on_tick=progress.on_tick)
        run = run_of_task(num_left_out=num_left_out, scorecard=played.scorecard)
    except _Stopped:
        return None
    except Exception as error:  # whatever is wrong with one run, the others go on
        run = run_of_task(error=" ".join(f"{type(error).__name__}: {error}".split()))
    with suppress(_Stopped):  # it is finished, so it is kept
        progress.reach(task.duration_seconds)
    return run
