"""Scenario files: the shipped ones are what the benchmark defines, any other is played or refused in a line."""

import hashlib
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import TraceFormatError
from simulator.requests import NO_REQUEST
from training.playable_scenario import AnnouncedEvent
from training.scenario_files import load_scenario, scenario_names, scenario_schema
from training.scenario_traffic import rate_factor
from training.scenario_yaml import ScenarioFileError
from training.traces import read_trace

BENCHMARK = ("conv8", "code2", "mooncake", "seckill3", "seckill5", "sale", "ramp", "day", "storm", "flat")
GENERATED = ("surge", "steady", "seckill", "rise", "diurnal", "flat")
CONV, CODE, MOONCAKE = 19_366, 8_819, 12_031  # requests of the traces, by the README of the public data


def digest(requests):
    columns = [getattr(requests, c.name) for c in fields(requests) if c.name != "prefixes"]
    columns += [requests.prefixes.starts, requests.prefixes.ids]
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()


def built(name, shared, seed=0, **keywords):
    return load_scenario(name).build(seed, shared=shared, **keywords)


def factor_of(name):
    return rate_factor(load_scenario(name).content, np.random.default_rng(0))


@pytest.fixture
def written(tmp_path):
    """A function from changes of a small scenario's top-level keys to its path."""

    def write(text="", **parts):
        lines = {"description": "d", "duration_seconds": "100", "traffic": "{kind: generated, rate_per_second: 5.0}"}
        lines |= parts
        path = tmp_path / "mine.yaml"
        path.write_text(text or "".join(f"{key}: {value}\n" for key, value in lines.items() if value is not None))
        return path

    return write


class TestShipped:
    def test_every_scenario_of_the_benchmark_is_there(self):
        assert set(BENCHMARK) <= set(scenario_names())
        assert set(scenario_names()) == {*BENCHMARK, *GENERATED}

    @pytest.mark.parametrize("name", scenario_names())
    def test_builds_the_same_bytes_for_a_seed_and_others_for_another(self, name, shared):
        first, again, other = (built(name, shared, seed) for seed in (0, 0, 1))
        assert digest(first.requests) == digest(again.requests) != digest(other.requests)
        assert first.requests.arrival_seconds[-1] < first.duration_seconds
        assert first.name == name

    @pytest.mark.parametrize("name", sorted(set(BENCHMARK) - {"flat", "storm"}))
    def test_the_benchmark_is_played_on_the_reference_fleet(self, name, shared):
        playable = built(name, shared)
        limits = playable.limits
        assert (limits.initial_replicas, limits.max_replicas) == (8, 48)
        assert (limits.cold_start_seconds, limits.promotion_seconds) == (30.0, 4.0)
        assert playable.profile.name == "llama-3.1-70b-h100-tp4"

    @pytest.mark.parametrize(
        ("seed", "sha256"),
        [
            (0, "877cf7e8799575d60e5e125a064b784e54814d1376c6e64b4e5575adc1f347d6"),
            (7, "b9133941e748f449db2d1ef9ec7f5a9b937cd8ac3d4d3e7688fffd13b1fb72d6"),
        ],
    )
    def test_surge_is_byte_for_byte_what_it_has_been(self, seed, sha256, tmp_path):
        assert digest(built("surge", tmp_path, seed).requests) == sha256

    @pytest.mark.parametrize("name", GENERATED)
    def test_generated_arrivals_follow_their_rate(self, name, tmp_path):
        scenario = load_scenario(name)
        streams = np.random.SeedSequence(5).spawn(1)
        factor = rate_factor(scenario.content, np.random.default_rng(streams[0]))
        rate = scenario.content.traffic.rate_per_second * factor
        minutes = np.arange(0, scenario.duration_seconds + 1, 60)
        counts = np.histogram(scenario.build(5, shared=tmp_path).requests.arrival_seconds, minutes)[0]
        expected = np.add.reduceat(rate, minutes[:-1])
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()

    def test_priorities_have_their_shares(self, shared):
        priority = built("storm", shared).requests.priority
        np.testing.assert_allclose(np.bincount(priority) / priority.size, [0.2, 0.6, 0.2], atol=0.01)


class TestBenchmarkDefinitions:
    def test_conv8_holds_eight_whole_copies_within_the_hour(self, shared):
        playable = built("conv8", shared)
        trace = read_trace(shared / "traces" / "azure_llm_2023_conv.csv.gz").requests
        assert (playable.duration_seconds, playable.requests.num_requests) == (3600.0, 8 * CONV)
        assert playable.requests.prompt_tokens.sum() == 8 * trace.prompt_tokens.sum()

    def test_code2_shifts_differ_from_seed_to_seed(self, shared):
        first, second = (built("code2", shared, seed).requests for seed in (0, 1))
        assert first.num_requests == second.num_requests == 2 * CODE
        rates = [np.histogram(requests.arrival_seconds, 360, (0, 3600))[0] for requests in (first, second)]
        turned = [np.abs(np.roll(rates[0], step) - rates[1]).sum() for step in range(360)]
        assert min(turned) > 0.1 * 2 * CODE  # no mere rotation

    def test_mooncake_is_spread_over_its_grid_and_cached(self, shared):
        playable = built("mooncake", shared)
        assert playable.requests.num_requests == MOONCAKE
        assert playable.engine.enable_prefix_caching
        assert np.unique(playable.requests.arrival_seconds).size > 0.99 * MOONCAKE

    @pytest.mark.parametrize(
        ("name", "height", "starts", "ramp", "length"),
        [
            ("seckill3", 3, (500, 1100, 1700, 2300, 2900), 5, 120),
            ("seckill5", 5, (500, 1500, 2500), 1, 60),
            ("ramp", 4, (900,), 300, 600),
            ("storm", 4.68, (1500,), 5, 300),
        ],
    )
    def test_traffic_is_raised_as_high_and_long_as_told(self, name, height, starts, ramp, length, shared):
        factor = factor_of(name)
        raised = np.zeros(3600, dtype=bool)
        for start in starts:
            begin, end = start + ramp, start + ramp + length
            np.testing.assert_allclose(factor[begin : end + 1], height)
            assert factor[start] == factor[end + ramp] == 1
            raised[begin:end] = True
        assert (factor < height)[~raised].mean() > 0.99
        found = np.bincount(built(name, shared).requests.arrival_seconds.astype(int), minlength=3600)
        usual = np.bincount(built("conv8", shared).requests.arrival_seconds.astype(int), minlength=3600)
        assert found[raised].sum() / usual[raised].sum() == pytest.approx(height, rel=0.12)
        # further copies begin at drawn places of a trace whose rate varies: one seed's total has some 2 % of deviation
        totals = [built(name, shared, seed).requests.num_requests for seed in range(8)]
        assert np.mean(totals) == pytest.approx(8 * CONV * factor.mean(), rel=0.03)

    def test_sale_is_seckill5_announced(self, shared):
        sale, seckill5 = built("sale", shared), built("seckill5", shared)
        assert digest(sale.requests) == digest(seckill5.requests)
        assert [event.start_seconds for event in sale.events] == [500.0, 1500.0, 2500.0]
        assert {event.height for event in sale.events} == {5.0}
        assert seckill5.events == ()

    def test_day_is_the_rate_curve_of_24_hours_in_four(self, shared):
        playable = built("day", shared)
        assert playable.duration_seconds == 4 * 3600
        assert playable.requests.num_requests / 14_400 == pytest.approx(16.0, rel=0.03)
        per_window = np.histogram(playable.requests.arrival_seconds, 144, (0, 14_400))[0] / 100
        assert per_window.max() / per_window.mean() == pytest.approx(2.66, rel=0.15)
        assert playable.requests.output_tokens.mean() > 1000

    def test_storm_is_twice_what_ten_replicas_serve_and_clients_retry_three_times(self, shared):
        playable = built("storm", shared)
        conv8 = built("conv8", shared).requests
        tokens_per_second = conv8.prompt_tokens.sum() / 3600
        capacity = 10 * playable.profile.capacity.usable_prefill_tokens_per_second
        assert factor_of("storm").max() * tokens_per_second == pytest.approx(2 * capacity, rel=0.05)
        assert playable.limits.max_replicas == 10
        assert (playable.clients.timeout_seconds, playable.clients.max_attempts) == (10.0, 4)

    def test_flat_demand_crosses_one_boundary_by_noise_alone(self, tmp_path):
        playable = built("flat", tmp_path)
        requests, capacity = playable.requests, playable.profile.capacity
        tokens = np.histogram(requests.arrival_seconds, 360, (0, 3600), weights=requests.prompt_tokens)[0] / 10
        demand = tokens / capacity.usable_prefill_tokens_per_second
        assert demand.mean() == pytest.approx(2.0, rel=0.03)
        assert 0.3 < (demand > 2.0).mean() < 0.7
        assert 1 < demand.min() < demand.max() < 3
        assert playable.limits.initial_replicas == 3


class TestPast:
    def test_is_of_the_same_kind_with_as_many_bursts_at_other_times(self, shared):
        plain, primed = built("seckill5", shared), built("seckill5", shared, primed=True)
        assert plain.past_requests is None
        assert digest(plain.requests) == digest(primed.requests)
        assert primed.past_seconds == 3600
        now, past = (
            np.bincount(requests.arrival_seconds.astype(int), minlength=3600)
            for requests in (primed.requests, primed.past_requests)
        )
        assert past.sum() == pytest.approx(now.sum(), rel=0.02)
        high_now, high_past = now > 3 * np.median(now), past > 3 * np.median(past)
        assert high_past.sum() == pytest.approx(high_now.sum(), rel=0.15)
        assert (high_now & high_past).sum() < high_now.sum() / 2

    def test_is_as_long_as_the_file_says(self, written):
        playable = load_scenario(written(primed="50")).build(0, shared=written().parent)
        assert playable.past_seconds == 50
        assert playable.past_requests.arrival_seconds[-1] < 50


class TestGeneratedFiles:
    @settings(max_examples=15, deadline=None)
    @given(
        st.sampled_from(
            [
                "{kind: poisson}",
                "{kind: gamma, cv: 2.0}",
                "{kind: weibull, cv: 2.0}",
                "{kind: mmpp, levels: [1, 4], dwell_seconds: [20, 5]}",
                "{kind: hawkes, branching_ratio: 0.5, decay_seconds: 2}",
            ]
        ),
        st.integers(0, 2**32),
    )
    def test_every_process_has_the_mean_of_the_rate(self, tmp_path_factory, process, seed):
        path = tmp_path_factory.mktemp("scenario") / "mine.yaml"
        traffic = f"{{kind: generated, rate_per_second: 40.0, process: {process}}}"
        path.write_text(f"description: d\nduration_seconds: 2000\ntraffic: {traffic}\n")
        requests = load_scenario(path).build(seed, shared=path.parent).requests
        # the most dispersed of them has some 8 times a Poisson count's variance
        assert abs(requests.num_requests - 80_000) < 5 * np.sqrt(40 * 80_000)

    @pytest.mark.parametrize("structure", ["sessions: {mean_turns: 4, think_seconds: 5}", "agents: {mean_children: 3}"])
    def test_sessions_and_agents_have_the_mean_of_the_rate_and_one_priority(self, structure, written):
        path = written(
            duration_seconds="4000",
            traffic=f"{{kind: generated, rate_per_second: 20.0, {structure}}}",
            priority_shares="{batch: 0.5, core: 0.5}",
        )
        requests = load_scenario(path).build(0, shared=path.parent).requests
        assert requests.num_requests == pytest.approx(80_000, rel=0.03)
        follows = np.flatnonzero(requests.follows != NO_REQUEST)
        assert follows.size > 40_000
        assert (requests.priority[follows] == requests.priority[requests.follows[follows]]).all()
        assert requests.prefixes.ids.size > 0

    def test_users_ask_within_the_run(self, written):
        path = written(traffic="{kind: users, num_users: 10, think_seconds: 5.0}")
        requests = load_scenario(path).build(0, shared=path.parent).requests
        assert (requests.follows == NO_REQUEST).sum() == 10

    def test_impulses_recur_or_are_drawn(self, written):
        shape = "kind: impulse, height: 2.0, ramp_seconds: 0, length_seconds: 10"
        recurring = load_scenario(written(changes=f"[{{{shape}, every_seconds: 40}}]"))
        factor = rate_factor(recurring.content, np.random.default_rng(0))
        assert np.flatnonzero(np.diff(factor) > 0).tolist() == [39, 79]
        drawn = load_scenario(written(changes=f"[{{{shape}, num_drawn: 2}}]"))
        first, second = (rate_factor(drawn.content, np.random.default_rng(seed)) for seed in (0, 1))
        assert (first == 2).sum() == pytest.approx(20, abs=2)
        assert first.tolist() != second.tolist()

    def test_a_trace_beside_the_file_is_played(self, written, tmp_path):
        rows = "".join(f"{second},100,10\n" for second in range(50))
        (tmp_path / "own.csv").write_text("arrival_seconds,prompt_tokens,output_tokens\n" + rows)
        traffic = "{kind: trace, file: own.csv, first_requests: 20, rate_ratio: 2.0}"
        requests = load_scenario(written(traffic=traffic)).build(0, shared=tmp_path / "nowhere").requests
        assert requests.num_requests == 40

    def test_events_are_announced(self, written):
        events = "[{name: sale, start_seconds: 20, height: 3, note: newsletter}]"
        playable = load_scenario(written(events=events)).build(0, shared=written().parent)
        assert playable.events == (AnnouncedEvent(name="sale", start_seconds=20.0, height=3.0, note="newsletter"),)


class TestBadFiles:
    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ({"description": None}, "description: missing"),
            ({"durations": "3"}, "durations: unknown key; remove it"),
            ({"duration_seconds": "soon"}, "duration_seconds: should be a valid integer, got 'soon'"),
            ({"duration_seconds": "0"}, "duration_seconds: should be greater than or equal to 1, got 0"),
            ({"traffic": "{kind: rain}"}, "traffic: .*'rain'.*'trace', 'generated'"),
            ({"traffic": "{kind: generated, rate_per_second: .nan}"}, "traffic.rate_per_second: should be a finite"),
            ({"traffic": "{kind: generated, rate_per_second: true}"}, "traffic.rate_per_second: should be a valid nu"),
            (
                {"traffic": "{kind: generated, rate_per_second: 1, process: {kind: gamma, cv: -1}}"},
                "traffic.process: cv must be finite and > 0, got -1",
            ),
            (
                {"traffic": "{kind: generated, rate_per_second: 1, sessions: {turns: 3}}"},
                "traffic.sessions.turns: unknown key",
            ),
            (
                {"traffic": "{kind: generated, rate_per_second: 1, sessions: {mean_turns: 0}}"},
                "mean_turns must be in .*got 0",
            ),
            ({"traffic": "{kind: trace, file: x.csv, num_copies: 2}"}, "traffic: num_copies=2 without shifts"),
            ({"traffic": "{kind: servegen, data_set: m_large}"}, "traffic: m_large has no lengths"),
            (
                {"changes": "[{kind: impulse, height: 2, ramp_seconds: 1, length_seconds: 5}]"},
                "changes.0: say when by one of at_seconds",
            ),
            (
                {"changes": "[{kind: ramp, height: -2}]"},
                "changes.0.height: should be greater than or equal to 0, got -2; changes.0.start_seconds: missing",
            ),
            ({"priority_shares": "{core: 0.5}"}, "priority_shares: batch, normal and core must sum to 1, got 0.5"),
            ({"clients": "{max_attempts: 99}"}, r"clients: max_attempts must be in \[1, 20\], got 99"),
            ({"engine": "{prefix: true}"}, "engine.prefix: unknown key"),
            ({"fleet": "{profile: gpt}"}, "fleet.profile: no engine profile is called 'gpt'; known"),
            (
                {"fleet": "{initial_replicas: 9, max_replicas: 4}"},
                "fleet: initial_replicas=9 is more than max_replicas",
            ),
            ({"events": "[{name: sale, start_seconds: 100}]"}, "events sale begin after the end"),
            ({"primed": "often"}, "primed: should be a valid"),
            (
                {
                    "traffic": "{kind: users, num_users: 1, think_seconds: 1}",
                    "changes": "[{kind: noise, spread_ratio: 0.1, every_seconds: 5}]",
                },
                "changes multiply a rate",
            ),
        ],
        ids=lambda value: None if isinstance(value, dict) else value[:30],
    )
    def test_are_refused_in_a_line_that_names_file_field_value_and_fix(self, parts, message, written):
        path = written(**parts)
        with pytest.raises(ScenarioFileError, match=message) as caught:
            load_scenario(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a: [1", "is no YAML"),
            ("- 1\n", "expected keys such as description"),
            ("a: &x 1\nb: *x\n", "aliases"),
            ("a: 1\nb: 2\na: 3\n", "line 3: a is given twice"),
            ("x: !!python/object/apply:os.system [ls]\n", "is no YAML: could not determine a constructor"),
            ("[" * 5000, "nested more than 32 levels"),
            ("# " + "x" * 300_000, "larger than 256 kB"),
        ],
        ids=["yaml", "list", "alias", "twice", "python", "deep", "large"],
    )
    def test_that_are_no_scenario_at_all_are_refused(self, text, message, written):
        with pytest.raises(ScenarioFileError, match=message) as caught:
            load_scenario(written(text))
        assert "\n" not in str(caught.value)

    def test_a_missing_file_and_an_unknown_name_say_so(self, tmp_path):
        with pytest.raises(ScenarioFileError, match="no such scenario file"):
            load_scenario(tmp_path / "x.yaml")
        with pytest.raises(ScenarioFileError, match="no scenario is called 'rush'; known: code2, conv8"):
            load_scenario("rush")

    def test_a_missing_public_trace_says_where_it_can_be_downloaded(self, tmp_path):
        with pytest.raises(TraceFormatError, match=r"conv\.csv\.gz: .*download https://.*SHA-256.*2f1e5b666d4e"):
            built("conv8", tmp_path)

    def test_parts_that_contradict_each_other_only_when_drawn_name_the_file(self, written):
        shape = "kind: impulse, height: 2.0, ramp_seconds: 0, length_seconds: 60, num_drawn: 2"
        path = written(changes=f"[{{{shape}}}]")
        with pytest.raises(ScenarioFileError, match=r"mine\.yaml: 2 impulses of 60 s do not fit into 100 s"):
            load_scenario(path).build(0, shared=path.parent)


def test_the_schema_names_every_top_level_key():
    keys = {"description", "duration_seconds", "traffic", "changes", "priority_shares", "engine", "clients", "fleet"}
    assert set(scenario_schema()["properties"]) == keys | {"events", "faults", "primed"}
