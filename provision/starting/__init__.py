"""What a first use needs: the first instance, from nothing, from measured tables or from options; compiled kernels."""
