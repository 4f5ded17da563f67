"""Tests of signals need processes that hear them, however the suite was started (`nohup`, `&`, a service)."""

import signal

for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, default)
