"""Large instances under interference: many workloads with rates and SLOs of their own, pooled in classes."""
