from hand_driven import hand_driven_tracks, play_until

from cli.plain_lines import PlainLines


class TestPlainLines:
    def test_tells_of_a_change_once_with_its_reason(self):
        tracks = hand_driven_tracks("foreshock", "hpa")
        lines = PlainLines(tracks)
        play_until(tracks, 10.0)
        assert lines.new_lines(10.0) == []
        play_until(tracks, 22.0)
        assert lines.new_lines(22.0) == [
            "   0:20  foreshock  2+0 -> 5+1  demand is expected to reach 4.2 replicas [sized_serving]",
            "   0:20  foreshock  admits all -> sheds  demand outruns what serves [shedding]",
            "   0:20  hpa  2+0 -> 5+1",
        ]
        assert lines.new_lines(24.0) == []

    def test_tells_how_every_fleet_stands_each_half_minute(self):
        tracks = hand_driven_tracks("foreshock", "hpa")
        lines = PlainLines(tracks)
        said = []
        for now in range(0, 61, 2):
            play_until(tracks, float(now))
            said += lines.new_lines(float(now))
        stands = [line for line in said if "over SLO" in line]
        assert [line.split()[:2] for line in stands] == [
            ["0:30", "foreshock"],
            ["0:30", "hpa"],
            ["1:00", "foreshock"],
            ["1:00", "hpa"],
        ]
        assert "5 serving 1 warm 0 starting" in stands[2]
        assert "TTFT p95" in stands[2]

    def test_a_long_step_is_told_of_once(self):
        tracks = hand_driven_tracks("hpa")
        lines = PlainLines(tracks)
        play_until(tracks, 4.0)
        assert len(lines.new_lines(400.0)) == 1
        assert lines.new_lines(402.0) == []
        assert len(lines.new_lines(420.0)) == 1

    def test_is_plain_ascii_so_that_any_log_takes_it(self):
        tracks = hand_driven_tracks("foreshock")
        play_until(tracks, 60.0)
        assert all(line.isascii() for line in PlainLines(tracks).new_lines(60.0))
