"""`foreshock calibrate`: a replica profile from the request log of a real engine."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from training.calibration import Calibration
    from training.engine_logs import EngineLog

EPILOG = """
\b
Examples:
  # KV blocks are in vLLM's start-up log: "GPU KV cache size: 427,040 tokens" / 16
  foreshock calibrate requests.csv --kv-blocks 26690 --out profile.yaml

\b
  # an engine with other limits; then plan with it
  foreshock calibrate vllm.jsonl.gz --kv-blocks 2750 --max-num-seqs 128 --max-num-batched-tokens 8192
  foreshock simulate --scenario surge --profile out/profile.yaml

\b
LOGS: JSON lines or CSV, plain, .gz or .zst, one request of one replica a row, in seconds on one clock and tokens:
queued_at (or arrival, queued_ts), first_token_at (or first_token_ts), finished_at (or last_token_ts), prompt_tokens
(or input_toks), output_tokens (or output_toks).
"""


@click.command(epilog=EPILOG)
@click.argument("logs", type=click.Path(path_type=Path))
@click.option("--kv-blocks", type=click.IntRange(min=1), metavar="N", required=True, help="KV-cache blocks it had.")
@click.option(
    "--form",
    type=click.Choice(["points", "closed"]),
    default="points",
    show_default=True,
    help="Tables of step times, or a closed form of five coefficients.",
)
@click.option("--block-size", type=click.IntRange(min=1), metavar="N", default=16, show_default=True, help="In tokens.")
@click.option(
    "--max-num-seqs", type=click.IntRange(min=1), metavar="N", default=256, show_default=True, help="vLLM's limit."
)
@click.option(
    "--max-num-batched-tokens",
    type=click.IntRange(min=2),
    metavar="N",
    default=2048,
    show_default=True,
    help="vLLM's limit: 8192 by default on GPUs of 70 GB and more.",
)
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", default=1, show_default=True, help="GPUs it ran on.")
@click.option("--name", metavar="NAME", help="The profile's name.  [default: that of the log]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("out/profile.yaml"),
    show_default=True,
    help="Where to write the profile; what is there is replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the errors as JSON instead of a table.")
def calibrate(
    logs: Path,
    kv_blocks: int,
    form: str,
    block_size: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    gpus: int,
    name: str | None,
    out: Path,
    as_json: bool,
) -> None:
    """Fit a replica's step time to the log of a real engine.

    Replays the log on one simulated replica until TTFT and end-to-end times agree on the first half of the requests,
    prints how far they agree on the second half, and writes a profile that `simulate --profile` reads.
    """
    from dataclasses import replace

    from rich.console import Console

    from training.engine_logs import read_engine_log
    from training.profile_files import write_profile

    log = read_engine_log(logs)
    found = _fit(
        log,
        Console(stderr=True),
        name=name or logs.name.split(".")[0],
        form=form,
        kv_blocks=kv_blocks,
        block_size_tokens=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    write_profile(out, replace(found.profile, gpus_per_replica=gpus))
    if as_json:
        click.echo(json.dumps(_page(log, found, form, out), indent=2, allow_nan=False))
        return
    _print_errors(log, found)
    click.echo(f"profile: {out}")


def _fit(log: "EngineLog", messages: "Console", **settings: "str | int") -> "Calibration":
    """Return the calibration, after a progress bar with the time left on a terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from training.calibration import MAX_REPLAYS
    from training.calibration import calibrate as fit

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as progress:
        bar = progress.add_task("replays, at most (the first compiles the simulator: some 20 s)", total=MAX_REPLAYS)
        return fit(log, on_replay=lambda num: progress.update(bar, completed=num), **settings)  # type: ignore[arg-type]


def _page(log: "EngineLog", found: "Calibration", form: str, out: Path) -> dict[str, object]:
    errors = {
        part: [{**asdict(error), "error_ratio": error.error_ratio} for error in of_part]
        for part, of_part in (("fit", found.fit), ("score", found.score))
    }
    return {
        "log": log.name,
        "num_requests": log.requests.num_requests,
        "form": form,
        "profile": str(out),
        "overhead_seconds": found.overhead_seconds,
        "num_replays": found.num_replays,
        **errors,
    }


def _print_errors(log: "EngineLog", found: "Calibration") -> None:
    """Print measured and replayed quantiles of both halves, side by side."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = f"{log.name}: {log.requests.num_requests} requests, fitted on the first half, scored on the second"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("seconds")
    for part in ("first half", "second half"):
        for heading in (part, "replayed", "error"):
            table.add_column(heading, justify="right")
    for fit, score in zip(found.fit, found.score, strict=True):
        cells = [
            cell
            for error in (fit, score)
            for cell in (
                f"{error.measured_seconds:.3f}",
                f"{error.replayed_seconds:.3f}",
                f"{error.error_ratio:+.1%}",
            )
        ]
        table.add_row(f"{fit.measure.upper() if fit.measure == 'ttft' else fit.measure} p{100 * fit.level:.0f}", *cells)
    console = Console()
    console.print(table)
    console.print(
        f"a constant overhead of {1000 * found.overhead_seconds:.1f} ms a request is in these times but not in the "
        f"profile; {found.num_replays} replays",
        soft_wrap=True,
        highlight=False,
    )
