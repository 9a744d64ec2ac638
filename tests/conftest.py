"""Tests hear signals, also where a background shell had them ignored: the processes that tests start would inherit it.
"""

import signal

for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, heard)
