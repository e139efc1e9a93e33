import json
import signal

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cli.main import foreshock
from cli.sweep import _seeds
from training.sweep_log import FILE_NAME, SweepLog

SMALL = ("--scenario", "surge,steady", "--policy", "hpa", "--policy", "static:2", "--seeds", 2, "--duration", 10)
NUM_RUNS = 8


def foreshock_command(*arguments, **options):
    return CliRunner().invoke(foreshock, [str(argument) for argument in arguments], **options)


def sweep(folder, *arguments, **options):
    return foreshock_command("sweep", *arguments, "--out", folder, **options)


def tables(result):
    """Return what is printed but for the place of the file."""
    assert result.exit_code == 0, result.output
    return result.stdout.rpartition("runs: ")[0]


def num_played(folder):
    return len((folder / FILE_NAME).read_text().splitlines())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, sweep(folder, *SMALL)


def interrupt_after(monkeypatch, num_runs):
    """Press Ctrl-C when so many runs have been written down."""
    add = SweepLog.add
    seen = []

    def add_and_interrupt(log, run):
        add(log, run)
        seen.append(run)
        if len(seen) == num_runs:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SweepLog, "add", add_and_interrupt)


class TestTables:
    def test_one_a_scenario_with_a_column_for_each_policy(self, undisturbed):
        folder, result = undisturbed
        lines = tables(result).splitlines()
        headings = [line for line in lines if "over 2 seeds" in line]
        assert [line.split(":")[0] for line in headings] == ["surge", "steady"]
        assert sum(line.split() == ["hpa", "static:2"] for line in lines) == 2
        assert sum(line.startswith("within SLO") for line in lines) == 2
        assert f"runs: {folder / 'runs.parquet'}" in result.stdout

    def test_the_file_has_the_runs_in_the_order_of_the_question(self, undisturbed):
        rows = pq.read_table(undisturbed[0] / "runs.parquet").to_pylist()
        assert [(row["scenario"], row["policy"], row["seed"]) for row in rows] == [
            (s, p, n) for s in ("surge", "steady") for p in ("hpa", "static:2") for n in (0, 1)
        ]

    def test_scores_are_those_of_simulate(self, undisturbed):
        found = json.loads(sweep(undisturbed[0], *SMALL, "--json").stdout)
        (run,) = (
            run for run in found["runs"] if (run["scenario"], run["policy"], run["seed"]) == ("steady", "static:2", 1)
        )
        alone = foreshock_command(
            *("simulate", "--scenario", "steady", "--policy", "static:2", "--seed", 1, "--duration", 10),
            *("--json", "--no-report"),
        )
        assert [run["scorecard"]] == json.loads(alone.stdout)["scorecards"]


class TestResuming:
    def test_finished_runs_are_skipped_and_counted(self, undisturbed):
        folder, result = undisturbed
        again = sweep(folder, *SMALL, "--jobs", 1)
        assert tables(again) == tables(result)
        assert f"{NUM_RUNS} of {NUM_RUNS} runs are finished already and are skipped" in again.stderr
        assert num_played(folder) == NUM_RUNS

    @pytest.mark.parametrize("num_runs", [1, 5])
    def test_after_an_interruption_ends_as_if_there_had_been_none(self, undisturbed, tmp_path, monkeypatch, num_runs):
        with monkeypatch.context() as patch:
            interrupt_after(patch, num_runs)
            stopped = sweep(tmp_path, *SMALL, standalone_mode=False)
        num_kept = num_played(tmp_path)
        assert num_runs <= num_kept
        if num_kept < NUM_RUNS:  # else all were finished before it was noticed
            assert stopped.return_value == 130
            assert f"interrupted: {num_kept} of {NUM_RUNS} runs are finished and kept in {tmp_path}" in stopped.stderr
            assert f"plays the other {NUM_RUNS - num_kept}" in stopped.stderr
        assert tables(sweep(tmp_path, *SMALL)) == tables(undisturbed[1])
        assert num_played(tmp_path) == NUM_RUNS
        assert (tmp_path / "runs.parquet").read_bytes() == (undisturbed[0] / "runs.parquet").read_bytes()

    def test_a_half_written_line_costs_one_run(self, undisturbed, tmp_path):
        whole = (undisturbed[0] / FILE_NAME).read_bytes()
        (tmp_path / FILE_NAME).write_bytes(whole[:-40])
        result = sweep(tmp_path, *SMALL)
        assert tables(result) == tables(undisturbed[1])
        stderr = " ".join(result.stderr.split())
        assert "cannot be read and count for nothing" in stderr
        assert f"{NUM_RUNS - 1} of {NUM_RUNS} runs are finished already" in stderr

    def test_another_question_plays_what_it_needs_and_fresh_plays_all(self, undisturbed, tmp_path):
        (tmp_path / FILE_NAME).write_bytes((undisturbed[0] / FILE_NAME).read_bytes())
        other = ("--scenario", "steady", "--policy", "static:2", "--duration", 10)
        result = sweep(tmp_path, *other, "--seeds", "1,2")
        assert "1 of 2 runs are finished already" in result.stderr
        assert num_played(tmp_path) == NUM_RUNS + 1
        assert "skipped" not in sweep(tmp_path, *other, "--seeds", "1,", "--fresh").stderr
        assert num_played(tmp_path) == 1


class TestFailures:
    @pytest.fixture
    def arguments(self):
        return ("--scenario", "steady", "--policy", "static:2", "--seeds", 12, "--duration", 0.05)

    def test_are_told_each_in_a_line_after_the_table_of_the_others(self, tmp_path, arguments):
        result = sweep(tmp_path, *arguments, standalone_mode=False)
        assert result.return_value == 1
        failed = [line for line in result.stderr.splitlines() if line.startswith("failed: steady, static:2, seed")]
        num_failed = len(failed)
        assert 0 < num_failed < 12
        assert f"{12 - num_failed} of 12" in result.stdout
        rows = pq.read_table(tmp_path / "runs.parquet").to_pylist()
        assert sum(bool(row["error"]) for row in rows) == num_failed
        found = json.loads(sweep(tmp_path, *arguments, "--json").stdout)
        assert found["summary"][0]["num_failed_runs"] == num_failed


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "--scenario"),
            (["--scenario", "nope"], "known: code2, conv8"),
            (["--scenario", "surge,surge"], "name each once"),
            (["--scenario", "surge", "--policy", "nope"], "known: foreshock, hpa, static:N"),
            (["--scenario", "surge", "--policy", "hpa,"], "an empty name"),
            (["--scenario", "surge", "--policy", "hpa", "--policy", "hpa"], "name each once"),
            (["--scenario", "surge", "--seeds", "0"], "at least one seed"),
            (["--scenario", "surge", "--seeds", "1,1"], "each once"),
            (["--scenario", "surge", "--seeds", "some"], "a list of numbers"),
            (["--scenario", "surge", "--seeds", "-3"], "a list of numbers"),
            (["--scenario", "surge", "--profile", "nope"], "known: llama"),
            (["--scenario", "surge", "--initial", "99"], "max_replicas=48"),
            (["--scenario", "surge", "--jobs", "0"], "--jobs"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else None,
    )
    def test_is_told_before_anything_is_played(self, tmp_path, arguments, words):
        result = sweep(tmp_path / "out", *arguments)
        assert result.exit_code == 2
        assert words in result.output
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("7,", (7,)), ("3,1", (3, 1)), (" 5, 6 ", (5, 6))], ids=repr
)
def test_seeds_are_a_number_of_them_or_a_list(text, seeds):
    assert _seeds(text) == seeds
