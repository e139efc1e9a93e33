"""The live view for no terminal: a line every half minute of simulated time, and one for each change and why."""

from math import isnan

from cli.chart_axis import clock_text, short_number
from cli.policy_track import PolicyTrack
from training.decisions import Change
from training.timeline import Timeline

STATUS_EVERY_SECONDS = 30.0


class PlainLines:
    """Turns the progress of the tracks into lines; it has said everything once."""

    def __init__(self, tracks: tuple[PolicyTrack, ...]) -> None:
        self.tracks = tracks
        self._num_said = [0] * len(tracks)
        self._status_due_at = STATUS_EVERY_SECONDS

    def new_lines(self, now: float) -> list[str]:
        """Return what there is to say at `now` seconds that has not been said."""
        lines = []
        for i, track in enumerate(self.tracks):
            changes = track.log.changes
            lines += [_change_line(track.policy, change) for change in changes[self._num_said[i] :]]
            self._num_said[i] = len(changes)
        if now >= self._status_due_at:
            self._status_due_at += STATUS_EVERY_SECONDS * (1 + (now - self._status_due_at) // STATUS_EVERY_SECONDS)
            lines += [_status_line(now, track) for track in self.tracks]
        return lines


def _change_line(policy: str, change: Change) -> str:
    why = f"  {change.why} [{change.code}]" if change.code else ""
    return f"{clock_text(change.at):>7}  {policy}  {change.before} -> {change.after}{why}"


def _status_line(now: float, track: PolicyTrack) -> str:
    return f"{clock_text(now):>7}  {track.policy}  {state_text(track.curves)}, {sums_text(track)}"


def state_text(curves: Timeline) -> str:
    """Return how a fleet stands at its newest row, in words."""
    if curves.at.size == 0:
        return "nothing seen yet"
    ttft = curves.ttft_p95_seconds[-1]
    return (
        f"{curves.serving_replicas[-1]:.0f} serving {curves.warm_replicas[-1]:.0f} warm "
        f"{curves.starting_replicas[-1]:.0f} starting, KV {short_number(curves.kv_blocks_used[-1])} of "
        f"{short_number(curves.kv_blocks_total[-1])} blocks, TTFT p95 {'-' if isnan(ttft) else f'{ttft:.2f} s'}"
    )


def sums_text(track: PolicyTrack) -> str:
    """Return what has gone wrong so far, in words."""
    return f"over SLO {track.seconds_over_target} s, shed {track.shed_requests:,}"
