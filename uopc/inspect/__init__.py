"""Seeing a kernel without a GPU: what it does to memory, what bounds it, why it looks like that."""
