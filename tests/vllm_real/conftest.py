"""Servers and polls come from `engines.vllm_fixtures`."""

from engines.vllm_fixtures import server, tiny_hf_model, watch

__all__ = ["server", "tiny_hf_model", "watch"]
