"""What if traffic grows: a sweep, as a table and as a pandas frame where pandas is installed.

Run as ``python examples/what_if.py``.
"""

import provision

rows = provision.what_if(provision.read("parvagpu-s1"), {"rate": "0.8:1.6:0.4"}, method="greedy", time_limit_s=5)
for row in rows:
    print(f"{row['rate']} times the traffic: {row['gpus']} GPUs, {row['objective']} per hour")
try:
    print(rows.to_frame()[["rate", "objective", "gpus"]])
except provision.InputError as error:
    print(error)
