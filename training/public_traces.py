"""The public traces that shipped scenarios play: where each comes from, and what a missing one says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from forecaster.errors import TraceFormatError

_AZURE = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/b469a113cedca53ddc3bdea71a143dc4b7d8700c/data"
_MOONCAKE = "https://raw.githubusercontent.com/kvcache-ai/Mooncake/3b5a594133958449a1feaf1c9e0fc1b553e34a28"
_SERVEGEN = "https://github.com/alibaba/ServeGen/tree/f891d1189eb32b3868dfc443800c4150548c282a/data"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTrace:
    """Where a file comes from.

    Attributes
    ----------
    address : str
        Of the file, or of the folder that it is made from.
    sha256 : str
        Of the uncompressed content.
    making : str
        What is to be done with the download.
    """

    address: str
    sha256: str
    making: str


def _servegen(kind: str, sha256: str) -> PublicTrace:
    column = "trace.csv with a client column" if kind == "rates" else "dataset.json, a client a line"
    return PublicTrace(address=_SERVEGEN, sha256=sha256, making=f"join its chunk-*-{column}, and compress it with gzip")


PUBLIC_TRACES: Mapping[str, PublicTrace] = MappingProxyType(
    {
        "azure_llm_2023_code.csv.gz": PublicTrace(
            address=f"{_AZURE}/AzureLLMInferenceTrace_code.csv",
            sha256="54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
            making="compress it with gzip",
        ),
        "azure_llm_2023_conv.csv.gz": PublicTrace(
            address=f"{_AZURE}/AzureLLMInferenceTrace_conv.csv",
            sha256="2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
            making="compress it with gzip",
        ),
        "mooncake_conversation.jsonl.gz": PublicTrace(
            address=f"{_MOONCAKE}/FAST25-release/traces/conversation_trace.jsonl",
            sha256="b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
            making="compress it with gzip",
        ),
        "servegen_deepseek_r1_rates.csv.gz": _servegen(
            "rates", "d367408f0b58654b45c78ebe8e1812fdab857364c9276f3719d997f515ede835"
        ),
        "servegen_deepseek_r1_lengths.jsonl.gz": _servegen(
            "lengths", "1fe81a7e71d6285b9ad106e4b7d90bb9cb4b426259fac681996e594c7791af01"
        ),
        "servegen_m_small_rates.csv.gz": _servegen(
            "rates", "1547e760498b84ae02d4e447f589de0645a66aa0e81722a82e0ea21e648dfd86"
        ),
        "servegen_m_small_lengths.jsonl.gz": _servegen(
            "lengths", "495d1919196c5a754dc751eb59bf9caf5c1d954f73cf57c5006e0acccf3301f5"
        ),
        "servegen_m_large_rates.csv.gz": _servegen(
            "rates", "03c0c163ff1f9ffc5a59ed229fdd34962325c1d9dfc1a2298813da99b11edcb4"
        ),
        "servegen_mm_image_rates.csv.gz": _servegen(
            "rates", "aa83c80acd71257692e740a8541d1e9a2621ee3776862f3fecdaf932b622e438"
        ),
        "servegen_mm_image_lengths.jsonl.gz": _servegen(
            "lengths", "2bc6c654a09908673883c29b5d704b70106de77038377371946c463fbaebb316"
        ),
    }
)
"""File name in the folder of public traces to its source, as that folder's README.md gives it."""


def public_trace_path(name: str, shared: Path) -> Path:
    """Return where a public trace lies.

    Raises
    ------
    TraceFormatError
        If it is not there; the message says where it can be downloaded.
    """
    path = shared / "traces" / name
    refuse_missing_trace(path)
    return path


def refuse_missing_trace(path: Path) -> None:
    """Raise `TraceFormatError` if a trace is not there; the message says where a public one can be downloaded."""
    if path.is_file():
        return
    source = PUBLIC_TRACES.get(path.name)
    if source is None:
        raise TraceFormatError(
            f"{path}: no such file; set FORESHOCK_SHARED to the folder that holds traces/{path.name}"
        )
    raise TraceFormatError(
        f"{path}: this public trace is missing; download {source.address} (SHA-256 of the content {source.sha256}), "
        f"{source.making}, and put it there, or set FORESHOCK_SHARED to the folder that holds traces/"
    )
