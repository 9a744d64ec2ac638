"""Putting a plan on a Kubernetes cluster: the objects of its export, applied, waited for, asserted, taken back."""
