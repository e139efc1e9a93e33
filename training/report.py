"""The HTML report of a closed-loop run: one file that needs no network, readable in a light and in a dark room."""

from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from forecaster.plan import ReasonCode
from simulator.lead_times import lead_time
from training.closed_loop import ClosedLoopRun, PlayedPolicy
from training.comparison import FIGURES, headline, is_best
from training.decisions import Change, Decision, decision_log
from training.policies import initial_replicas
from training.report_figures import plotly_script, shared_limits, timeline_figure
from training.report_page import PAGE_SCRIPT, PAGE_STYLE
from training.scorecard import SLO_PROMPT_TOKENS, Scorecard
from training.timeline import BAND_HORIZON_SECONDS, ForecastBand, Timeline, forecast_band, timeline

CURVES = (
    ("Offered load", "what arrives, whether it is admitted or not"),
    ("KV blocks held", "blocks of the paged key/value cache that running requests hold"),
    ("KV blocks offered", "what would be held if nothing queued and nothing were refused"),
    (
        "Forecast band",
        f"quantiles of the largest number of offered KV blocks within {BAND_HORIZON_SECONDS:g} s, forecast that long "
        "before the moment at which they are drawn",
    ),
    (
        "TTFT",
        "mean and 0.95 quantile of the first tokens of each second; while there is none and somebody waits, the age of "
        "the oldest waiting request",
    ),
    ("Demand D", "replicas that the offered load needs: the largest of its KV blocks, prefill and decode rate"),
)


def write_report(path: Path, run: ClosedLoopRun, played: tuple[PlayedPolicy, ...]) -> Path:
    """Return `path` after writing the report of `played` there; missing folders are made.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report_html(run, played), encoding="utf-8")
    return path


def report_html(run: ClosedLoopRun, played: tuple[PlayedPolicy, ...]) -> str:
    """Return the page: equal for equal runs, byte for byte."""
    cards = tuple(part.scorecard for part in played)
    runs = tuple(
        (timeline(part.result.telemetry, run.profile.capacity), forecast_band(part.result.plans)) for part in played
    )
    sections = "\n".join(_policy_section(i, part, run, runs) for i, part in enumerate(played))
    title = f"Foreshock: {run.name}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{PAGE_STYLE}</style>
<script>{plotly_script()}</script>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="headline">{escape(headline(cards)).replace(" %", "&nbsp;%")}</p>
</header>
<main>
<section>
<h2>Comparison</h2>
{_comparison_table(cards)}
</section>
{sections}
<section>
<h2>The run</h2>
{_parameters(run)}
<h2>What the figures mean</h2>
{_definitions(run)}
</section>
</main>
<script>{PAGE_SCRIPT}</script>
</body>
</html>
"""


def _comparison_table(cards: tuple[Scorecard, ...]) -> str:
    heads = "".join(f"<th>{escape(figure.name)}</th>" for figure in FIGURES)
    rows = []
    for card in cards:
        cells = "".join(
            f"<td{' class=best' if is_best(figure, card, cards) else ''}>{escape(figure.show(figure.value(card)))}</td>"
            for figure in FIGURES
        )
        rows.append(f"<tr><th scope=row>{escape(card.policy)}</th><td>{card.num_requests:,}</td>{cells}</tr>")
    return (
        '<div class="wide"><table class="figures"><thead><tr><th>policy</th><th>requests</th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _policy_section(
    index: int, part: PlayedPolicy, run: ClosedLoopRun, runs: tuple[tuple[Timeline, ForecastBand], ...]
) -> str:
    curves, band = runs[index]
    figure = timeline_figure(curves, band, target_seconds=run.config.slo.ttft_seconds, limits=shared_limits(runs))
    initial = initial_replicas(part.scorecard.policy, run.limits.initial_replicas)
    log = decision_log(part.result.plans, initial_replicas=initial)
    # "<" is escaped so that no text in the data can end the script element
    data = str(figure.to_json()).replace("<", "\\u003c")
    return f"""<section>
<h2>{escape(part.scorecard.policy)}</h2>
<div class="plot" id="plot-{index}"></div>
<script type="application/json" id="plot-{index}-data">{data}</script>
{_change_table(tuple(log.changes))}
{_decision_table(tuple(log.decisions))}
</section>"""


def _change_table(changes: tuple[Change, ...]) -> str:
    if not changes:
        return "<h3>Changes</h3><p>None: this policy never moved its targets.</p>"
    rows = "".join(
        f"<tr><td>{_clock(change.at)}</td><td>{change.before} → {change.after}</td>"
        f"<td><code>{change.code or ''}</code></td><td>{escape(change.why)}</td></tr>\n"
        for change in changes
    )
    return f"""<h3>Changes</h3>
<p class="note">Targets as serving + reserve, with the reason that had the last word.</p>
<div class="tall"><table class="changes"><thead><tr><th>at</th><th>before → after</th><th>code</th><th>why</th></tr>
</thead><tbody>{rows}</tbody></table></div>"""


def _decision_table(decisions: tuple[Decision, ...]) -> str:
    if not decisions:
        return ""
    rows = "".join(_decision_row(decision) for decision in decisions)
    codes = {code: sum(decision.code == code for decision in decisions) for code in ReasonCode}
    options = "".join(f'<option value="{code}">{code} ({count})</option>' for code, count in codes.items() if count)
    return f"""<h3>Every reason</h3>
<p class="note">What each rule made of the target that it was given, in the order of the rules; what consecutive plans
repeated is one line.</p>
<p class="filter"><input type="search" placeholder="filter by any word" aria-label="filter decisions">
<select aria-label="filter by code"><option value="">all codes ({len(decisions)})</option>{options}</select>
<label><input type="checkbox"> only changes</label> <span class="count"></span></p>
<div class="tall"><table class="decisions"><thead><tr><th>from</th><th>to</th><th>plans</th><th>code</th>
<th>before → after</th><th>why</th></tr></thead><tbody>{rows}</tbody></table></div>"""


def _decision_row(decision: Decision) -> str:
    change = (
        f"{_amount(decision.before)} → {_amount(decision.after)}" if decision.is_change else _amount(decision.after)
    )
    return (
        f'<tr data-code="{decision.code}"{"" if decision.is_change else " class=held"}>'
        f"<td>{_clock(decision.first_at)}</td><td>{_clock(decision.last_at)}</td><td>{decision.num_plans}</td>"
        f"<td><code>{decision.code}</code></td><td>{change}</td><td>{escape(decision.message)}</td></tr>\n"
    )


def _amount(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _parameters(run: ClosedLoopRun) -> str:
    profile, slo, limits = run.profile, run.config.slo, run.limits
    rows = (
        ("scenario or trace", run.name),
        ("length", f"{run.duration_seconds:g} s, {run.requests.num_requests:,} requests"),
        ("seed", f"{run.seed}"),
        ("SLO", f"TTFT {slo.ttft_seconds:g} s, TPOT {slo.tpot_seconds:g} s"),
        ("profile", f"{profile.name}: {profile.gpus_per_replica} GPUs a replica"),
        ("KV cache", f"{profile.kv_blocks:,} blocks of {profile.block_size_tokens} tokens a replica"),
        ("replicas", f"{limits.initial_replicas} at the start (static:N has its N), at most {limits.max_replicas}"),
        ("cold start, promotion", f"{lead_time(limits.cold_start_seconds)}, {lead_time(limits.promotion_seconds)}"),
        ("c_w, cost of a warm replica", f"{run.config.warm_cost_ratio:g} of an active one"),
        ("plan every", f"{run.settings.plan_interval_seconds:g} s, on rows {_lag(run)} s old"),
        ("router", run.settings.router),
        ("Foreshock", _version()),
    )
    cells = "".join(f"<tr><th scope=row>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="parameters"><tbody>{cells}</tbody></table>'


def _lag(run: ClosedLoopRun) -> str:
    return f"{run.settings.telemetry_lag_seconds:g}"


def _version() -> str:
    try:
        return version("foreshock")
    except PackageNotFoundError:
        return "not installed"


def _definitions(run: ClosedLoopRun) -> str:
    slo = run.config.slo
    targets = (
        f"a request is within the SLO if its TTFT is at most {slo.ttft_seconds:g} s, or {slo.ttft_seconds:g} s x "
        f"prompt / {SLO_PROMPT_TOKENS:,} tokens for a longer prompt, and its TPOT at most {slo.tpot_seconds:g} s"
    )
    terms = [("SLO", targets)]
    terms += [(figure.name, figure.meaning) for figure in FIGURES]
    terms += list(CURVES)
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in terms) + "</dl>"
