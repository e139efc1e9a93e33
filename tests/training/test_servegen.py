"""ServeGen's clients: their rates and lengths are the file's."""

import gzip

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import TraceFormatError
from simulator.workload.arrivals import weibull_cv
from simulator.workload.composition import composed_requests
from training.servegen import WINDOW_SECONDS, servegen_clients

RATES = "client,t_start_s,rate_rps,cv,dist,p1,p2\n"


def rates_of(shared, data_set):
    return pd.read_csv(shared / "traces" / f"servegen_{data_set}_rates.csv.gz", dtype={"client": str})


def write(
    folder,
    rates,
    lengths='{"client": "0", "windows": {"0": {"input_tokens": "{5: 1.0}", "output_tokens": "{7: 1.0}"}}}',
):
    (folder / "traces").mkdir(exist_ok=True)
    for name, text in (("rates.csv.gz", rates), ("lengths.jsonl.gz", lengths)):
        with gzip.open(folder / "traces" / f"servegen_m_small_{name}", "wt") as file:
            file.write(text)
    return folder


def clients_of(folder, **changes):
    return servegen_clients("m_small", shared=folder, **({"start_seconds": 0, "num_windows": 2} | changes))


@pytest.mark.parametrize(("data_set", "mean_rate"), [("deepseek_r1", 16.0), ("mm_image", 9.5)])
def test_rates_and_totals_are_those_of_the_file(shared, data_set, mean_rate):
    clients = servegen_clients(data_set, shared=shared, start_seconds=0, num_windows=144)
    rates = rates_of(shared, data_set)
    assert len(clients) == rates["client"].nunique()
    played = sum(window.rate_per_second for client in clients for window in client)
    assert played == pytest.approx(rates["rate_rps"].sum())
    assert played / 144 == pytest.approx(mean_rate, abs=0.05)

    requests = composed_requests(
        clients, np.ones(144 * WINDOW_SECONDS), window_seconds=WINDOW_SECONDS, rng=np.random.default_rng(0)
    )
    # a renewal's count varies by its gaps' cv^2 times the mean
    cv = np.where(rates["dist"] == "Gamma", rates["p1"] ** -0.5, [weibull_cv(max(shape, 0.1)) for shape in rates["p1"]])
    spread = np.sqrt((rates["rate_rps"] * WINDOW_SECONDS * cv**2).sum())
    assert abs(requests.num_requests - WINDOW_SECONDS * played) < 5 * spread
    assert requests.num_requests == pytest.approx(WINDOW_SECONDS * played, rel=0.05)


def test_a_part_of_two_weeks_is_played(shared):
    clients = servegen_clients("m_small", shared=shared, start_seconds=600_000, num_windows=3)
    rates = rates_of(shared, "m_small")
    part = rates[(rates["t_start_s"] >= 600_000) & (rates["t_start_s"] < 601_800)]
    found = sum(window.rate_per_second for client in clients for window in client)
    assert found == pytest.approx(part["rate_rps"].sum())
    assert {window.number for client in clients for window in client} == {0, 1, 2}


class TestLengths:
    def test_are_those_of_the_window_before_else_the_first(self, tmp_path):
        pdf = '{{"input_tokens": "{{{0}: 1.0}}", "output_tokens": "{{{0}: 0.5, {0}: 0.5}}"}}'
        lengths = f'{{"client": "0", "windows": {{"600": {pdf.format(10)}, "1800": {pdf.format(20)}}}}}'
        rows = "".join(f"0,{start},1.0,1,Gamma,1.0,1\n" for start in (0, 600, 1200, 1800, 2400))
        (client,) = clients_of(write(tmp_path, RATES + rows, lengths), num_windows=5)
        drawn = [int(window.prompt.draw(1, np.random.default_rng(0))[0]) for window in client]
        assert drawn == [10, 10, 10, 20, 20]

    def test_a_client_without_any_has_those_of_another(self, tmp_path):
        folder = write(tmp_path, RATES + "0,0,1.0,1,Gamma,1.0,1\n9,0,1.0,1,Weibull,0.7,1\n")
        for (window,) in clients_of(folder):
            assert window.output.draw(3, np.random.default_rng(0)).tolist() == [7, 7, 7]

    def test_parts_of_a_prompt_are_summed(self, shared):
        clients = servegen_clients("mm_image", shared=shared, start_seconds=0, num_windows=1)
        prompt = clients[0][0].prompt.draw(1000, np.random.default_rng(0))
        assert prompt.min() >= 136 + 525  # the shortest text and the shortest image of client 0
        assert prompt.max() <= 372 + 1230


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ("nonsense", "cannot be read as ServeGen rates"),
        (RATES + "0,0,-1.0,1,Gamma,1.0,1\n", "line 2: rate_rps and p1 must be > 0"),
        (RATES + "0,0,1.0,1,Gamma,1.0,1\n0,600,1.0,1,Cauchy,1.0,1\n", "line 3: .*dist Gamma or Weibull"),
        (RATES + "0,6000,1.0,1,Gamma,1.0,1\n", "no traffic from 0 s on for 2 windows; the data ends at 6600 s"),
    ],
)
def test_bad_rates_are_refused(tmp_path, rates, message):
    with pytest.raises(TraceFormatError, match=message):
        clients_of(write(tmp_path, rates))


@pytest.mark.parametrize("lengths", ["nonsense", '{"client": "0", "windows": {"0": {"input_tokens": "{a: 1}"}}}'])
def test_bad_lengths_are_refused(tmp_path, lengths):
    with pytest.raises(TraceFormatError, match="lengths"):
        clients_of(write(tmp_path, RATES + "0,0,1.0,1,Gamma,1.0,1\n", lengths))


def test_a_missing_file_says_where_the_data_are(tmp_path):
    with pytest.raises(TraceFormatError, match=r"m_small_rates.csv.gz: .*github.com/alibaba/ServeGen.*SHA-256"):
        clients_of(tmp_path)
