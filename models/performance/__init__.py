"""Performance models: how a model behaves on a slice, alone and beside others."""
