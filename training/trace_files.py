"""Trace files as tables of raw values: CSV, JSON lines or Parquet, plain or compressed, whatever they mean."""

import csv
import gzip
import io
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import zstandard
from numpy.typing import NDArray

from forecaster.errors import TraceFormatError

JSON_SUFFIXES = frozenset({".jsonl", ".ndjson", ".json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTable:
    """The rows of a file as they are written.

    Attributes
    ----------
    rows : DataFrame
        One row for each line after the header; what a line lacks is missing.
    first_line : int
        Line number of the first row in the uncompressed file (Parquet: 1).
    has_extra_fields : ndarray of bool, shape (len(rows),)
        Rows with more fields than the header names.
    """

    rows: pd.DataFrame
    first_line: int
    has_extra_fields: NDArray[np.bool_]


def read_table(path: Path, *, list_columns: frozenset[str] = frozenset()) -> RawTable:
    """Return the rows of a file.

    Of JSON lines, `list_columns` are the columns kept although they hold lists: each costs time and memory.

    Raises
    ------
    TraceFormatError
        If the file is missing, empty, cut short or unreadable; in one line.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    try:
        return _parsed(_decompressed(path, suffixes), suffixes, list_columns)
    except FileNotFoundError as error:
        raise TraceFormatError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise TraceFormatError(f"{path}: is a folder, expected a trace file") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise TraceFormatError(f"{path}: cannot be read: {_in_one_line(error)}") from error
    except (ValueError, csv.Error) as error:
        raise TraceFormatError(f"{path}: cannot be parsed: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _decompressed(path: Path, suffixes: list[str]) -> bytes:
    if suffixes and suffixes[-1] == ".gz":
        with gzip.open(path) as file:
            return file.read()
    content = path.read_bytes()
    return _unzstd(content) if suffixes and suffixes[-1] == ".zst" else content


def _unzstd(content: bytes) -> bytes:
    """Return all frames of a zstd file; its stream reader would end a file that was cut short without a word."""
    parts, rest = [], content
    while rest:
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(rest))
        if not frame.eof:
            raise EOFError("Compressed file ended before the end-of-stream marker was reached")
        rest = frame.unused_data
    return b"".join(parts)


def _parsed(content: bytes, suffixes: list[str], list_columns: frozenset[str]) -> RawTable:
    if not content.strip():
        raise ValueError("the file is empty")
    if ".parquet" in suffixes:
        rows = pd.read_parquet(io.BytesIO(content))
        return RawTable(rows=rows, first_line=1, has_extra_fields=np.zeros(len(rows), dtype=bool))
    if JSON_SUFFIXES & set(suffixes) or content.lstrip()[:1] == b"{":
        return _parsed_json_lines(content, list_columns)
    return _parsed_csv(content)


def _parsed_csv(content: bytes) -> RawTable:
    """Return the rows as strings.

    A header of our own, one field wider, stands in for the file's: pandas takes a field that the header does not name
    for an index and shifts every column by one, or else refuses the whole file for one long row.
    """
    end = content.find(b"\n") + 1 or len(content)
    header = content[:end].decode("utf-8-sig", "replace")
    names = [name.strip() for name in next(csv.reader([header], skipinitialspace=True), [])]
    fields = range(len(names) + 1)
    rows = pd.read_csv(
        io.BytesIO(",".join(map(str, fields)).encode() + b"\n" + content[end:]),
        dtype=str,
        usecols=fields,  # without it a row of still more fields is an error
        index_col=False,
        skip_blank_lines=False,
        skipinitialspace=True,
        encoding_errors="replace",
    )
    extra = rows.pop(str(len(names))).notna().to_numpy()
    rows.columns = pd.Index(names)
    return RawTable(rows=rows.loc[:, ~rows.columns.duplicated()], first_line=2, has_extra_fields=extra)


def _parsed_json_lines(content: bytes, list_columns: frozenset[str]) -> RawTable:
    """Return one row a line; a line that is no JSON object is a row of unknown values."""
    decode = json.JSONDecoder(parse_int=_whole_number).decode
    parsed = []
    for line in content.decode("utf-8-sig", "replace").removesuffix("\n").split("\n"):
        try:
            row = decode(line)
        except (ValueError, RecursionError):
            row = {}
        fields = row.items() if isinstance(row, dict) else ()
        parsed.append({name: v for name, v in fields if name in list_columns or not isinstance(v, list | dict)})
    rows = pd.DataFrame(parsed)
    return RawTable(rows=rows, first_line=1, has_extra_fields=np.zeros(len(rows), dtype=bool))


def _whole_number(digits: str) -> int | float:
    """Return a hash of 64 bits exactly; a longer integer as a float or infinite, for as int it may not be parsed."""
    value = float(digits)
    return int(digits) if abs(value) < 2.0**64 else value
