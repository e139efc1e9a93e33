import json
from dataclasses import fields

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cli.main import foreshock
from forecaster.config import PlannerConfig
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.profiles import DEFAULT_PROFILE, profile_named
from training.scorecard import Scorecard


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{t},800,40\n" for t in np.arange(200) / 10]
    path.write_text("arrival_seconds,prompt_tokens,output_tokens\n" + "".join(rows))
    return path


def simulate(*arguments):
    return CliRunner().invoke(foreshock, ["simulate", *(str(argument) for argument in arguments)])


def figures(*arguments):
    result = simulate(*arguments, "--json", "--no-report")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class TestTable:
    def test_has_a_row_for_each_policy_and_the_path_of_the_report(self, trace, tmp_path):
        report = tmp_path / "deep" / "report.html"
        result = simulate("--trace", trace, "--compare", "static:2,static:4", "--report", report)
        assert result.exit_code == 0, result.output
        starts = [line.split()[0] for line in result.stdout.splitlines() if line.strip()]
        assert starts.count("static:2") == 2  # its row, and the sentence that begins with it
        assert "static:4" in starts
        assert result.stdout.splitlines()[-1] == f"report: {report}"
        assert "static:4" in report.read_text(encoding="utf-8")

    def test_plays_foreshock_unless_told(self, trace):
        result = simulate("--trace", trace, "--no-report")
        assert result.exit_code == 0, result.output
        assert "foreshock served" in result.stdout
        assert "report:" not in result.stdout

    def test_is_the_same_for_the_same_seed(self):
        arguments = ("--scenario", "surge", "--duration", 20, "--policy", "static:3", "--no-report", "--seed", 4)
        assert simulate(*arguments).stdout == simulate(*arguments).stdout


class TestJson:
    def test_has_the_names_of_the_scorecard(self, trace):
        found = figures("--trace", trace, "--compare", "static:2,hpa")
        assert [list(card) for card in found["scorecards"]] == [[field.name for field in fields(Scorecard)]] * 2
        assert [card["policy"] for card in found["scorecards"]] == ["static:2", "hpa"]

    def test_keeps_stdout_for_itself(self, trace, tmp_path):
        report = tmp_path / "report.html"
        result = simulate("--trace", trace, "--policy", "static:2", "--json", "--report", report)
        json.loads(result.stdout)
        assert f"report: {report}" in result.stderr

    def test_tells_what_was_played(self, trace):
        run = figures(
            *("--trace", trace, "--policy", "static:2", "--profile", "llama-3.1-8b-h100-tp1", "--cold-start", 180),
            *("--warm-cost", 1, "--initial", 3, "--max-replicas", 9, "--duration", 10, "--router", "round_robin"),
        )["run"]
        assert run == {
            "name": "trace.csv",
            "duration_seconds": 10.0,
            "profile": "llama-3.1-8b-h100-tp1",
            "seed": 0,
            "initial_replicas": 3,
            "max_replicas": 9,
            "cold_start_seconds": 180.0,
            "promotion_seconds": FleetLimits().promotion_seconds,
            "warm_cost_ratio": 1.0,
            "router": "round_robin",
            "slo": {"ttft_seconds": 0.8, "tpot_seconds": 0.1},
        }

    def test_counts_only_what_arrives_within_the_duration(self, trace):
        (card,) = figures("--trace", trace, "--policy", "static:2", "--duration", 5)["scorecards"]
        assert card["num_requests"] == 51


class TestOut:
    def test_writes_a_folder_of_parquet_for_each_policy_and_names_it(self, trace, tmp_path):
        out = tmp_path / "deep" / "runs"
        result = simulate("--trace", trace, "--compare", "static:2,hpa", "--no-report", "--out", out)
        assert result.exit_code == 0, result.output
        for name in ("static-2", "hpa"):
            assert f"run: {out / name} (requests, telemetry, plans, replicas, events, decisions)" in result.stdout
            assert pq.read_metadata(out / name / "requests.parquet").num_rows == 200

    def test_a_folder_that_cannot_be_made_fails_in_a_line_after_the_table(self, trace):
        result = simulate("--trace", trace, "--policy", "static:2", "--no-report", "--out", trace / "below-a-file")
        assert result.exit_code == 1
        assert "static:2 served" in result.stdout
        assert "cannot write the run to" in result.output


class TestScenarios:
    @pytest.fixture
    def scenario(self, tmp_path):
        path = tmp_path / "mine.yaml"
        path.write_text(
            """
description: a minute with clients that give up at once
duration_seconds: 60
traffic: {kind: generated, rate_per_second: 5.0}
clients: {timeout_seconds: 0.001}
fleet: {profile: llama-3.1-8b-h100-tp1, initial_replicas: 3, max_replicas: 5, cold_start_seconds: 60}
primed: true
"""
        )
        return path

    def test_a_file_brings_its_fleet_and_clients(self, scenario):
        found = figures("--scenario", scenario, "--policy", "static:3")
        run = found["run"]
        assert (run["name"], run["profile"], run["duration_seconds"]) == ("mine", "llama-3.1-8b-h100-tp1", 60.0)
        assert (run["initial_replicas"], run["max_replicas"], run["cold_start_seconds"]) == (3, 5, 60.0)
        assert found["scorecards"][0]["attainment_ratio"] == 0.0

    def test_options_say_otherwise(self, scenario):
        options = ("--profile", DEFAULT_PROFILE, "--cold-start", 7, "--duration", 20)
        run = figures("--scenario", scenario, "--policy", "static:1", *options, "--max-replicas", 2)["run"]
        assert (run["profile"], run["cold_start_seconds"], run["duration_seconds"]) == (DEFAULT_PROFILE, 7.0, 20.0)
        assert (run["initial_replicas"], run["max_replicas"]) == (2, 2)  # the file's three would be more than all
        assert figures("--scenario", scenario, "--policy", "static:1", "--initial", 4)["run"]["initial_replicas"] == 4

    def test_what_is_not_played_is_said(self, scenario):
        result = simulate("--scenario", scenario, "--policy", "static:3", "--no-report")
        assert "warning: mine is primed with 3600 s of the past" in result.stderr

    def test_a_missing_public_trace_is_named_with_its_address(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FORESHOCK_SHARED", str(tmp_path))
        result = simulate("--scenario", "conv8", "--no-report")
        assert result.exit_code != 0
        assert "azure_llm_2023_conv.csv.gz: this public trace is missing; download https://" in str(result.exception)


class TestTraces:
    def test_requests_that_no_replica_can_hold_are_left_out_and_counted(self, trace):
        profile = profile_named(DEFAULT_PROFILE)
        room = profile.kv_blocks * profile.block_size_tokens
        with trace.open("a") as file:
            file.write(f"20,{room},1\n21,{room},1\n")
        result = simulate("--trace", trace, "--policy", "static:2", "--json", "--no-report")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["scorecards"][0]["num_requests"] == 200
        assert "warning: 2 of 202 requests of trace.csv are longer than" in result.stderr

    def test_a_file_that_is_no_trace_fails_in_a_line(self, tmp_path):
        path = tmp_path / "x.csv"
        path.write_text("a,b\n1,2\n")
        result = simulate("--trace", path)
        assert result.exit_code != 0
        assert "no known format" in str(result.exception)


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "give --trace FILE or --scenario NAME_OR_FILE"),
            (["--scenario", "nope"], "known: code2, conv8"),
            (["--scenario", "surge", "--policy", "nope"], "known: foreshock, hpa, static:N"),
            (["--scenario", "surge", "--policy", "static:0"], "N from 1 to"),
            (["--scenario", "surge", "--compare", "hpa,hpa"], "name each once"),
            (["--scenario", "surge", "--compare", "hpa,,"], "an empty name"),
            (["--scenario", "surge", "--compare", "hpa", "--policy", "hpa"], "put hpa into --compare"),
            (["--scenario", "surge", "--profile", "nope"], "known: llama"),
            (["--scenario", "surge", "--router", "nope"], "known: least_outstanding_tokens"),
            (["--scenario", "surge", "--initial", "99"], "max_replicas=48"),
            (["--scenario", "surge", "--warm-cost", "2"], "--warm-cost"),
            (["--scenario", "surge", "--duration", "0"], "--duration"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else None,
    )
    def test_is_told_in_a_line_that_names_the_fix(self, arguments, words):
        result = simulate(*arguments)
        assert result.exit_code == 2
        assert words in result.output

    def test_a_report_that_cannot_be_written_fails_after_the_table(self, trace, tmp_path):
        result = simulate("--trace", trace, "--policy", "static:2", "--report", trace / "below-a-file.html")
        assert result.exit_code == 1
        assert "static:2 served" in result.stdout
        assert "cannot write the report" in result.output


class TestHelp:
    @pytest.mark.parametrize("command", ["run", "simulate"])
    def test_shows_examples_a_line_each_without_stray_control_characters(self, command):
        text = CliRunner().invoke(foreshock, [command, "--help"]).output
        assert any(line.startswith(f"    foreshock {command} --trace requests.csv.gz") for line in text.splitlines())
        assert all(character.isprintable() or character == "\n" for character in text)

    @pytest.fixture
    def text(self):
        return " ".join(simulate("--help").output.split())

    def test_names_every_router_and_where_the_scenarios_are_listed(self, text):
        for name in (*ROUTERS, "foreshock scenarios list"):
            assert name in text

    def test_states_the_defaults_that_hold(self, text):
        limits = FleetLimits()
        warm_cost = PlannerConfig(capacity=profile_named(DEFAULT_PROFILE).capacity).warm_cost_ratio
        defaults = (DEFAULT_PROFILE, f"{limits.cold_start_seconds:g}", f"{warm_cost:g}", f"{limits.max_replicas}")
        for default in defaults:
            assert f"[default: {default}" in text
        assert f"{ROUTERS[0]} (default)" in text
