import numpy as np
from hand_driven import CONFIG, hand_driven_tracks, play_until

from training.scorecard import replica_hours
from training.timeline import forecast_band, seconds_over_target, timeline


class TestPolicyTrack:
    def test_has_seen_in_the_end_what_the_result_shows(self):
        (track,) = hand_driven_tracks("foreshock")
        play_until((track,), 60.0)
        result = track.fleet.result()
        whole = timeline(result.telemetry, CONFIG.capacity)
        seen = track.curves
        assert seen.at.tolist() == whole.at[:-1].tolist()  # the last row is seen one second after the end
        np.testing.assert_array_equal(seen.kv_blocks_used, whole.kv_blocks_used[:-1])
        assert track.seconds_over_target == seconds_over_target(seen, CONFIG.slo.ttft_seconds)
        assert track.shed_requests == int(np.nansum(seen.shed_per_second)) > 0
        assert track.gpu_hours == 4 * replica_hours(result, CONFIG.warm_cost_ratio)

    def test_collects_forecasts_and_decisions(self):
        (track,) = hand_driven_tracks("foreshock")
        play_until((track,), 60.0)
        np.testing.assert_array_equal(track.band.at, forecast_band(tuple(track.fleet.plans)).at)
        assert [decision.after for decision in track.log.decisions] == [2, 5, 0.5]

    def test_lets_old_rows_go_but_not_what_they_summed_up_to(self):
        short, long = (hand_driven_tracks("a", keep_seconds=keep)[0] for keep in (15.0, 900.0))
        play_until((short,), 60.0)
        play_until((long,), 60.0)
        assert short.curves.at.min() >= 45.0
        assert short.seconds_over_target == long.seconds_over_target

    def test_looking_twice_counts_nothing_twice(self):
        (track,) = hand_driven_tracks("foreshock")
        play_until((track,), 40.0)
        shed = track.shed_requests
        assert track.update() == ()
        assert track.shed_requests == shed
