"""The replay of three real vLLM logs: step time fitted to the first half's requests, scored on the second half's."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.progress import Progress

from benchmarks.figure import Figure, number
from training.calibration import MAX_REPLAYS, Calibration, calibrate
from training.engine_logs import EngineLog, read_engine_log
from training.log_replay import replayed

QUANTILE_PERCENT = 9.0  # what Vidur claims for its own
SERIES_PERCENT = 10.0
NAMES = {"ttft": "TTFT", "e2e": "end-to-end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The settings of an engine, which its log does not state.

    Sequences and blocks: the README beside the logs says how many ran at once, and "about 44 thousand tokens" (2,750
    blocks) of the first; of the others 40,000 blocks are more than any moment needs. Tokens: vLLM's defaults, 2,048
    below 70 GB of GPU memory and 8,192 from there.
    """

    file: str
    name: str
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: tuple[int, ...]

    def calibrated(self, log: EngineLog, progress: Progress, **given) -> Calibration:
        """Return the fit of one form, with as many KV blocks, where that is unknown, as fit the fitted rows best."""
        task = progress.add_task(f"{self.name}, {given['form']}", total=MAX_REPLAYS * len(self.kv_blocks))
        fits = []
        for i, blocks in enumerate(self.kv_blocks):
            fits.append(
                calibrate(
                    log,
                    name=self.name,
                    kv_blocks=blocks,
                    max_num_seqs=self.max_num_seqs,
                    max_num_batched_tokens=self.max_num_batched_tokens,
                    on_replay=lambda num, i=i: progress.update(task, completed=i * MAX_REPLAYS + num),
                    **given,
                )
            )
        progress.remove_task(task)
        return min(fits, key=lambda fit: fit.cost)


ENGINES = (
    Engine(
        file="RTX4090_Llama-3.1-8B",
        name="RTX 4090, Llama 3.1 8B",
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        kv_blocks=tuple(range(2500, 2801, 50)),
    ),
    Engine(
        file="RTXPRO6000_Llama-3.1-8B",
        name="RTX PRO 6000, Llama 3.1 8B",
        max_num_seqs=128,
        max_num_batched_tokens=8192,
        kv_blocks=(40_000,),
    ),
    Engine(
        file="RTXPRO6000_Qwen3-30B-A3B-Instruct-2507",
        name="RTX PRO 6000, Qwen3 30B A3B",
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        kv_blocks=(40_000,),
    ),
)


def engine_log_figures(shared: Path, progress: Progress, *, quick: bool) -> list[Figure]:
    """Return the errors of each log under each form; quick: of the tables of step times alone."""
    figures = []
    for engine in ENGINES:
        log = read_engine_log(shared / "calibration" / f"llmservingsim_vllm_{engine.file}_requests.jsonl.gz")
        series = pd.read_csv(shared / "calibration" / f"llmservingsim_vllm_{engine.file}_timeseries.csv.gz")
        for form in ("points",) if quick else ("points", "closed"):
            found = engine.calibrated(log, progress, form=form)
            group = f"vLLM 0.19 log: {engine.name}, {form}, {number(found.profile.kv_blocks)} KV blocks"
            of_form = [*_quantile_figures(group, found), *_series_figures(group, log, found, series)]
            if not quick and any(figure.missed_by > 0 for figure in of_form):
                every = np.arange(log.requests.num_requests)
                best = engine.calibrated(log, progress, form=form, rows=every)
                of_form = _noted(of_form, [*_quantile_figures(group, best), *_series_figures(group, log, best, series)])
            figures += of_form
    return figures


def _quantile_figures(group: str, found: Calibration) -> list[Figure]:
    return [
        Figure(
            group=group,
            name=f"{NAMES[error.measure]} p{100 * error.level:.0f}, error",
            value=100 * error.error_ratio,
            unit="%",
            low=-QUANTILE_PERCENT,
            high=QUANTILE_PERCENT,
            beside=f"{error.replayed_seconds:.3f} s, measured {error.measured_seconds:.3f} s",
        )
        for error in found.score
    ]


def _series_figures(group: str, log: EngineLog, found: Calibration, measured: pd.DataFrame) -> list[Figure]:
    """Return the mean absolute error of running, waiting and, if they were recorded, KV blocks used, over the mean."""
    replay = replayed(log, found.profile, overhead_seconds=0.0).telemetry
    kv_blocks = measured.kv_cache_pct / 100 * found.profile.kv_blocks
    pairs = {
        "running_requests": ("running requests", measured.running),
        "waiting_requests": ("waiting requests", measured.waiting),
        "kv_blocks_used": ("KV blocks used", kv_blocks),
    }
    figures = []
    for column, (name, theirs) in pairs.items():
        ours = np.interp(measured.t, replay.row_at, np.nan_to_num(replay.column(column)))
        if theirs.any():
            error = 100 * float(np.abs(ours - theirs).mean() / theirs.mean())
            beside = f"mean {number(float(ours.mean()))}, measured {number(float(theirs.mean()))}"
            figures.append(
                Figure(
                    group=group,
                    name=f"{name}, mean absolute error",
                    value=error,
                    unit="%",
                    high=SERIES_PERCENT,
                    beside=beside,
                )
            )
    return figures


def _noted(figures: list[Figure], of_all: list[Figure]) -> list[Figure]:
    """Return the figures, each miss with what a fit to all requests, the scored ones among them, makes of it."""
    return [
        replace(figure, note=f"{number(best.value)} % if fitted on all requests") if figure.missed_by > 0 else figure
        for figure, best in zip(figures, of_all, strict=True)
    ]
