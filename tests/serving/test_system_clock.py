from forecaster.clock import Clock
from serving.system_clock import SystemClock

JANUARY_2024 = 1_704_067_200


class TestSystemClock:
    def test_tells_posix_seconds(self):
        clock: Clock = SystemClock()
        assert clock.now() > JANUARY_2024

    def test_never_runs_backwards(self):
        clock = SystemClock()
        readings = [clock.monotonic() for _ in range(100)]
        assert readings == sorted(readings)

    def test_a_sleep_that_is_over_already_returns(self):
        SystemClock().sleep(-1.0)
