import signal

import pytest

from cli.interruption import Interruption


class TestInterruption:
    def test_the_first_ctrl_c_is_a_wish(self):
        with Interruption() as interruption:
            assert not interruption.requested
            signal.raise_signal(signal.SIGINT)
            assert interruption.requested

    def test_the_second_ctrl_c_interrupts(self):
        with Interruption():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def test_afterwards_ctrl_c_is_what_it_was(self):
        before = signal.getsignal(signal.SIGINT)
        with Interruption():
            pass
        assert signal.getsignal(signal.SIGINT) is before
