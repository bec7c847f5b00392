"""Inference Inspector: a read-only inspector daemon for LLM inference servers."""

__version__ = "0.1.0"
