"""A critic: a language model's body with a head of one number a token."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rlvr.batch import Chains
from rlvr.engine.model import LanguageModel


class Critic:
    """Starts as a copy of `lm`'s body. Its head starts at 0 (our choice): the first values are 0 rather than noise.

    Weights that do not learn, such as those below an adapter, are shared with `lm` and not copied.
    """

    def __init__(self, lm: LanguageModel):
        shared = {id(p): p for p in lm.model.parameters() if not p.requires_grad}
        twin = LanguageModel(copy.deepcopy(lm.model, shared))
        head = nn.Linear(twin.model.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self._lm, self._head = twin, head.to(device=lm.device, dtype=lm.dtype)
        self.model = nn.ModuleDict({"body": twin.model.base_model, "head": self._head})

    @property
    def device(self) -> torch.device:
        return self._lm.device

    @property
    def packs(self) -> bool:
        return self._lm.packs

    def predicting(self, chains: Chains, length: Tensor) -> Tensor:
        """[n, d] as LanguageModel.predicting."""
        return self._lm.predicting(chains, length)

    def value(self, hidden: Tensor) -> Tensor:
        """[n] of hidden states [n, d], at least float32. The state before a token tells the value of writing it."""
        value = self._head(hidden)[:, 0]
        return value if value.dtype == torch.float64 else value.float()
