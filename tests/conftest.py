"""Tests hear signals, also where a background shell had them ignored: the processes that tests start would inherit it.
No test that draws examples fails because the machine is slow.
"""

import signal

from hypothesis import settings

for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, heard)

settings.register_profile("any machine", deadline=None)  # timings are for benchmarks
settings.load_profile("any machine")
