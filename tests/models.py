"""Tiny models with random weights, shared by tests."""

from __future__ import annotations

from typing import Any

import torch

from rlvr.batch import Chains
from rlvr.engine.model import LanguageModel


def tiny_llama(seed: int = 0, vocab: int = 17, dtype: torch.dtype = torch.float64, **more: Any) -> LanguageModel:
    """Two layers, grouped-query attention, weights large enough that distributions are far from uniform."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **{
            "vocab_size": vocab,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "initializer_range": 0.4,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            **more,
        }
    )
    torch.manual_seed(seed)
    return LanguageModel(LlamaForCausalLM(config).to(dtype).eval())


def every_token(ids: torch.Tensor) -> tuple[Chains, torch.Tensor]:
    """Chains of rows ids [B, L], all tokens but the first of each trained, and their trained lengths."""
    rows, n = ids.shape
    at = torch.arange(1, n).repeat(rows)
    return Chains(ids.flatten(), torch.full((rows,), n), at, torch.arange(rows) * n), torch.full((rows,), n - 1)
