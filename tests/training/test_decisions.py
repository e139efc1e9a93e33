from forecaster.plan import ADMIT_ALL, Admission, CapacityPlan, Reason, ReasonCode
from training.decisions import decision_log


def reason(code=ReasonCode.SIZED_SERVING, *, before=2.0, after=3.0, message="why") -> Reason:
    return Reason(code=code, message=message, before=before, after=after)


def plan(at: float, *reasons: Reason, serving=1, supply=1, admission=ADMIT_ALL) -> CapacityPlan:
    return CapacityPlan(
        planned_at=at, serving_replicas=serving, supply_replicas=supply, reasons=reasons, admission=admission
    )


def decisions_of(plans):
    return decision_log(plans).decisions


class TestDecisions:
    def test_what_consecutive_plans_repeat_is_one_decision_with_a_count(self):
        (decision,) = decisions_of([plan(at, reason(message=f"at {at}")) for at in (0.0, 2.0, 4.0)])
        assert (decision.first_at, decision.last_at, decision.num_plans) == (0.0, 4.0, 3)
        assert decision.message == "at 0.0"

    def test_a_plan_without_it_ends_a_decision(self):
        decisions = decisions_of([plan(0.0, reason()), plan(2.0), plan(4.0, reason())])
        assert [decision.first_at for decision in decisions] == [0.0, 4.0]

    def test_another_target_is_another_decision(self):
        decisions = decisions_of([plan(0.0, reason(after=3)), plan(2.0, reason(after=4))])
        assert [decision.after for decision in decisions] == [3, 4]

    def test_the_reasons_of_one_plan_run_side_by_side(self):
        both = (reason(), reason(ReasonCode.BOUNDS))
        decisions = decisions_of([plan(0.0, *both), plan(2.0, *both)])
        assert [(decision.code, decision.num_plans) for decision in decisions] == [
            (ReasonCode.SIZED_SERVING, 2),
            (ReasonCode.BOUNDS, 2),
        ]

    def test_knows_which_decisions_moved_a_target(self):
        moved, held = decisions_of([plan(0.0, reason(before=2, after=3), reason(before=3, after=3))])
        assert moved.is_change
        assert not held.is_change

    def test_unknown_amounts_are_repeated_too(self):
        nan = float("nan")
        decisions = decisions_of([plan(at, reason(before=float("nan"), after=nan)) for at in (0.0, 2.0)])
        assert [decision.num_plans for decision in decisions] == [2]
        assert not decisions[0].is_change


class TestChanges:
    def test_a_plan_like_the_last_one_changes_nothing(self):
        assert not decision_log([plan(0.0, reason()), plan(2.0, reason())]).changes

    def test_the_first_plan_is_compared_with_what_was_there(self):
        plans = [plan(0.0, serving=3, supply=4)]
        assert not decision_log(plans).changes
        (change,) = decision_log(plans, initial_replicas=2).changes
        assert (change.before, change.after) == ("2+0", "3+1")

    def test_the_reason_is_the_one_that_had_the_last_word(self):
        chain = (
            reason(ReasonCode.SIZED_SERVING, before=2, after=4, message="sized"),
            reason(ReasonCode.SIZED_SUPPLY, before=2, after=6, message="supply"),
            reason(ReasonCode.TTFT_GRADIENT, before=4, after=6, message="gradient"),
            reason(ReasonCode.REACTIVE_FLOOR, before=6, after=6, message="floor"),
        )
        (change,) = decision_log([plan(0.0, *chain, serving=6, supply=6)], initial_replicas=2).changes
        assert (change.code, change.why) == (ReasonCode.TTFT_GRADIENT, "gradient")

    def test_a_change_of_the_reserve_alone_has_its_reason(self):
        chain = (reason(ReasonCode.SIZED_SUPPLY, before=2, after=5, message="supply"),)
        (change,) = decision_log([plan(0.0, *chain, serving=2, supply=5)], initial_replicas=2).changes
        assert (change.before, change.after, change.why) == ("2+0", "2+3", "supply")

    def test_a_policy_that_gives_no_reason_still_shows_its_changes(self):
        (change,) = decision_log([plan(0.0, serving=2, supply=2)], initial_replicas=1).changes
        assert (change.code, change.why) == (None, "")

    def test_shedding_begins_and_ends_once(self):
        sheds = Admission(prefill_tokens_per_second=100.0)
        why = reason(ReasonCode.SHEDDING, before=1.0, after=0.5, message="too much")
        plans = [plan(0.0), plan(2.0, why, admission=sheds), plan(4.0, why, admission=sheds), plan(6.0)]
        changes = decision_log(plans).changes
        assert [(change.at, change.before, change.after) for change in changes] == [
            (2.0, "admits all", "sheds"),
            (6.0, "sheds", "admits all"),
        ]
        assert changes[0].why == "too much"
