import json
import re
from dataclasses import replace
from html import escape

import numpy as np
import pytest
from scripted_policy import ScriptedPolicy

from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import StaticPolicy
from training.closed_loop import closed_loop_run, compare
from training.comparison import FIGURES, headline
from training.decisions import decision_log
from training.report import report_html, write_report
from training.report_figures import MAX_POINTS, plotly_script, shared_limits, timeline_figure
from training.timeline import forecast_band, timeline

HOSTILE = "</script><script>alert('x')</script> & <img src=http://evil.example/x>"


def make_policy(name, config):
    return StaticPolicy(3) if name == "static:3" else ScriptedPolicy(message=f"because {HOSTILE}")


@pytest.fixture(scope="module")
def run():
    requests = RequestTable.from_columns(
        np.arange(800) / 20, np.full(800, 900), np.full(800, 60), priority=np.arange(800) % 3
    )
    return closed_loop_run(
        HOSTILE, requests, profile=profile_named(DEFAULT_PROFILE), policies=("scripted", "static:3"), initial=2
    )


@pytest.fixture(scope="module")
def played(run):
    return compare(run, make_policy=make_policy)


@pytest.fixture(scope="module")
def page(run, played):
    return report_html(run, played)


@pytest.fixture(scope="module")
def own(page):
    """The page without the source of plotly.js, which is not ours and names addresses that it never loads by itself."""
    return page.replace(plotly_script(), "")


class TestReport:
    def test_holds_every_figure_of_every_scorecard(self, own, played):
        for part in played:
            row = re.search(rf"<tr><th scope=row>{part.scorecard.policy}</th>.*?</tr>", own).group()
            cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
            assert cells[0] == f"{part.scorecard.num_requests:,}"
            assert cells[1:] == [figure.show(figure.value(part.scorecard)) for figure in FIGURES]

    def test_says_the_comparison_in_words(self, own, played):
        sentence = headline(tuple(part.scorecard for part in played))
        assert escape(sentence).replace(" %", "&nbsp;%") in own

    def test_holds_every_decision_with_its_time_code_and_sentence(self, own, played):
        decisions = decision_log(played[0].result.plans).decisions
        assert [decision.num_plans for decision in decisions] == [5, 15, 5]
        for decision in decisions:
            assert escape(decision.message) in own
        assert own.count('<tr data-code="sized_serving"') == 2
        assert "<td>2 → 4</td>" in own

    def test_holds_every_change_of_target(self, own, played):
        changes = decision_log(played[0].result.plans, initial_replicas=2).changes
        assert [(change.at, change.before, change.after) for change in changes] == [
            (10.0, "2+0", "4+1"),
            (10.0, "admits all", "sheds"),
            (20.0, "sheds", "admits all"),
        ]
        for change in changes:
            assert f"<td>{change.before} → {change.after}</td>" in own

    def test_says_so_where_a_policy_decided_nothing(self, own):
        assert "None: this policy never moved its targets." in own

    def test_gives_the_parameters_that_the_figures_depend_on(self, own, run):
        for text in (run.profile.name, "0.3 of an active one", "30 s, 4 s", "least_outstanding_tokens", "800 requests"):
            assert text in own

    def test_defines_every_figure(self, own):
        for figure in FIGURES:
            assert f"<dt>{escape(figure.name)}</dt><dd>{escape(figure.meaning)}</dd>" in own

    def test_loads_nothing(self, own):
        tags = _tags(own).replace('href="data:,"', "")
        assert not re.findall(r"\b(?:src|srcset|href|action|poster)\s*=|url\(|@import", tags)
        assert "://" not in own.replace(escape(HOSTILE), "")
        assert 'modeBarButtonsToRemove: ["sendChartToCloud"]' in own
        assert own.count("<script></script>") == 1  # where plotly.js stands, once

    def test_escapes_names_and_sentences(self, own):
        assert "alert('x')" not in own
        assert "<img" not in own
        assert own.count("<script") == own.count("</script>") == 4  # plotly.js, two plots, the page's own

    def test_is_the_same_for_the_same_run(self, page, run):
        assert report_html(run, compare(run, make_policy=make_policy)) == page

    def test_is_written_to_a_folder_that_is_not_there_yet(self, tmp_path, run, played, page):
        path = write_report(tmp_path / "new" / "report.html", run, played)
        assert path.read_text(encoding="utf-8") == page


def _tags(own: str) -> str:
    """Return every tag, with its attributes, and every style of the page."""
    return "".join(re.findall(r"<[a-z][^>]*>", own) + re.findall(r"<style>.*?</style>", own, re.DOTALL))


class TestPlots:
    def figures(self, own):
        return [json.loads(text) for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', own)]

    def test_every_policy_has_one_with_all_its_curves(self, own):
        scripted, static = self.figures(own)
        names = [trace["name"] for trace in scripted["data"]]
        for name in ("requests/s", "held", "offered", "forecast 0.5-0.95", "p95", "SLO 0.8 s", "warm", "demand D"):
            assert name in names
        assert "forecast 0.5-0.95" not in [trace["name"] for trace in static["data"]]

    def test_policies_share_their_vertical_axes(self, own):
        scripted, static = self.figures(own)
        for axis in ("yaxis3", "yaxis4", "yaxis5"):
            assert scripted["layout"][axis]["range"] == static["layout"][axis]["range"]

    def test_a_long_run_is_drawn_in_few_points_that_keep_its_peaks(self, run, played):
        curves = timeline(played[0].result.telemetry, run.profile.capacity)
        seconds = 5 * MAX_POINTS
        long = {name: np.resize(getattr(curves, name), seconds) for name in curves.__slots__}
        long["at"] = np.arange(1.0, seconds + 1)
        stretched = replace(curves, **long)
        band = forecast_band(played[0].result.plans)
        figure = timeline_figure(stretched, band, target_seconds=0.8, limits=shared_limits(((stretched, band),)))
        assert max(len(trace.x) for trace in figure.data) <= MAX_POINTS
        held = next(trace for trace in figure.data if trace.name == "held")
        assert held.y.max() == np.nanmax(curves.kv_blocks_used)

    def test_a_run_that_saw_nothing_is_drawn_empty(self, run, played):
        curves = timeline(played[0].result.telemetry.since(1e9), run.profile.capacity)
        band = forecast_band(())
        figure = timeline_figure(curves, band, target_seconds=0.8, limits=shared_limits(((curves, band),)))
        assert all(len(trace.x) == 0 for trace in figure.data)
