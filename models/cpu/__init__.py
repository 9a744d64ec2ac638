"""The model of DNN layers on a shared CPU (VELTAIR): an analytical model of their times, networks, measured times and
slowdowns.
"""
