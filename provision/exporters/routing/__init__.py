"""How the requests of a workload reach its replicas: ports, Services, weights and routes."""
