"""The problem: workloads, fleet, policy and objective."""
