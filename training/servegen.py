"""ServeGen's public client rates and lengths as clients that can be composed.

Fitted per client and 10-minute window: rate and length levels are real, every arrival inside a window is a resample. So
they serve for planning over hours and days, never for a claim on what can be foreseen within seconds.

Reference: Xiang et al., ServeGen, 2025, https://arxiv.org/abs/2505.09999; data: github.com/alibaba/ServeGen.
"""

import gzip
import json
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from forecaster.errors import TraceFormatError
from simulator.workload.composition import Client, ClientWindow
from simulator.workload.lengths import DrawsLengths, MeasuredLengths, SummedLengths
from training.public_traces import public_trace_path

WINDOW_SECONDS = 600
DataSet = Literal["deepseek_r1", "m_small", "m_large", "mm_image"]
WITHOUT_LENGTHS = frozenset({"m_large"})
_PROMPT_PARTS = ("input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPair:
    """Prompts and answers of one client."""

    prompt: DrawsLengths
    output: DrawsLengths


def servegen_clients(
    data_set: DataSet, *, shared: Path, start_seconds: int, num_windows: int, lengths: LengthPair | None = None
) -> tuple[Client, ...]:
    """Return the clients of a data set over some of its windows, those with any traffic there.

    Parameters
    ----------
    data_set : DataSet
    start_seconds : int
        Where the first window begins in the data, a multiple of `WINDOW_SECONDS`.
    num_windows : int
    lengths : LengthPair, optional
        In place of the data set's own.

    Raises
    ------
    TraceFormatError
        If a file is missing or cannot be read, or holds nothing in those windows.
    """
    path = public_trace_path(f"servegen_{data_set}_rates.csv.gz", shared)
    rates = _read_rates(path)
    rates["number"] = (rates["t_start_s"] - start_seconds) // WINDOW_SECONDS
    played = rates[(rates["number"] >= 0) & (rates["number"] < num_windows)]
    if played.empty:
        raise TraceFormatError(
            f"{path}: no traffic from {start_seconds} s on for {num_windows} windows; the data ends at "
            f"{rates['t_start_s'].max() + WINDOW_SECONDS} s"
        )
    found = None if lengths else _Lengths(public_trace_path(f"servegen_{data_set}_lengths.jsonl.gz", shared))
    clients = []
    for name, windows in played.groupby("client", sort=True):
        clients.append(
            tuple(
                _window(row, lengths if found is None else found.at(str(name), int(row.t_start_s)))
                for row in windows.itertuples()
            )
        )
    return tuple(clients)


def _read_rates(path: Path) -> pd.DataFrame:
    try:
        rates = pd.read_csv(path, dtype={"client": str})
        numbers = rates[["t_start_s", "rate_rps", "p1"]].to_numpy(dtype=np.float64)
        shapes = rates["dist"].isin(["Gamma", "Weibull"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError) as error:
        raise TraceFormatError(f"{path}: cannot be read as ServeGen rates: {' '.join(str(error).split())}") from error
    bad = ~(np.isfinite(numbers).all(axis=1) & (numbers[:, 1:] > 0).all(axis=1) & shapes.to_numpy())
    if bad.any():
        raise TraceFormatError(
            f"{path}: line {int(np.argmax(bad)) + 2}: rate_rps and p1 must be > 0 and dist Gamma or Weibull, got "
            f"{rates.iloc[int(np.argmax(bad))].to_dict()}"
        )
    return rates


def _window(row: object, lengths: LengthPair) -> ClientWindow:
    return ClientWindow(
        number=int(row.number),
        rate_per_second=float(row.rate_rps),
        gaps=str(row.dist).lower(),
        shape=float(row.p1),
        prompt=lengths.prompt,
        output=lengths.output,
    )


class _Lengths:
    """The lengths of a data set's clients, parsed when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            self._windows = {str(line["client"]): {int(s): w for s, w in line["windows"].items()} for line in lines}
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceFormatError(f"{path}: cannot be read as ServeGen lengths: {error}") from error
        self._parsed: dict[tuple[str, int], LengthPair] = {}

    def at(self, client: str, start_seconds: int) -> LengthPair:
        """Return a client's lengths at a time: of the window before it, else of its first.

        A client without any (5 of m_small's 43) has those of the first client that has some.
        """
        if not self._windows.get(client):
            client = next(name for name, windows in self._windows.items() if windows)
        starts = sorted(self._windows[client])
        start = starts[max(bisect_right(starts, start_seconds) - 1, 0)]
        key = (client, start)
        if key not in self._parsed:
            self._parsed[key] = self._parse(client, start)
        return self._parsed[key]

    def _parse(self, client: str, start: int) -> LengthPair:
        window = self._windows[client][start]
        try:
            parts = tuple(_distribution(window[name]) for name in _PROMPT_PARTS if name in window)
            output = _distribution(window["output_tokens"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceFormatError(f"{self._path}: client {client}, window {start}: no lengths: {error}") from error
        prompt = parts[0] if len(parts) == 1 else SummedLengths(parts=parts)
        return LengthPair(prompt=prompt, output=output)


def _distribution(text: str) -> MeasuredLengths:
    """Return the lengths of a PDF that is written as `{tokens: probability, ...}`.

    Examples
    --------
    >>> _distribution("{3: 0.25, 7: 0.75}").mean
    6.0
    """
    pairs = np.array(text.strip("{} ").replace(":", ",").split(","), dtype=np.float64).reshape(-1, 2)
    return MeasuredLengths(tokens=pairs[:, 0].astype(np.int64), probabilities=pairs[:, 1])
