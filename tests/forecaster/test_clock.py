from forecaster.clock import Clock, ManualClock


class TestManualClock:
    def test_sleeping_moves_it_and_nothing_else_does(self):
        clock: Clock = ManualClock(now_seconds=50.0)
        clock.sleep(1.5)
        assert (clock.now(), clock.monotonic()) == (51.5, 51.5)

    def test_a_sleep_that_is_over_already_does_not_move_it_back(self):
        clock = ManualClock(now_seconds=50.0)
        clock.sleep(-3.0)
        assert clock.now() == 50.0
