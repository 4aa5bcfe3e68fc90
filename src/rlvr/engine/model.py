"""Any Hugging Face causal language model as three functions: hidden states, logits, and log-probs that never hold
tokens x vocabulary.

Nothing here knows an architecture. What differs between models (head bias, logit scale, soft-capping, names of
arguments) is read from the model and its config, and then checked by numbers when the wrapper is built: a model whose
logits we cannot reproduce is refused.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlvr.batch import Chains
from rlvr.engine.fused import Fused, Layout, unfit
from rlvr.engine.protocol import Unsupported

CHUNK_BYTES = (
    64 * 2**20
)  # our choice: one chunk of logits stays inside a GPU's or CPU's fast memory and is still one efficient GEMM
# Config attributes by which models scale their logits: Cohere and Falcon-H1 multiply, Granite divides, HyperCLOVA X
# multiplies.
_FACTORS = ("logit_scale", "lm_head_multiplier", "logits_scaling")
# Largest allowed difference between two ways to the same numbers, as a share of the largest number. Hugging Face
# computes norms and some softmaxes in float32 for float64 models too.
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Dropout and its like off inside; the mode of each of these modules is put back after. Give all of a model."""
    training = [m for m in modules if m.training]
    for m in training:
        m.training = False
    try:
        yield
    finally:
        for m in training:
            m.training = True


def recompute_layers(model: nn.Module) -> None:
    """From now on a layer keeps only its input for the backward pass, and is computed again there: a third more work
    for a fraction of the memory.

    Hugging Face's own switch works in training mode alone, which turns dropout on; this one knows no mode. Raises
    Unsupported where the model does not say which of its modules are layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise Unsupported(
            f"gradient_checkpointing: {type(model).__name__} does not say which of its modules could be computed again;"
            " leave it out, and lower token_budget where memory is short"
        )
    for layer in layers:
        if "forward" not in vars(layer):  # it does so already
            layer.forward = functools.partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


class LanguageModel:
    """A causal LM with its parts found and verified.

    model: the Hugging Face model, with its adapter in it where PEFT wraps it; vocab: rows of its output head (V);
    context: the most tokens it can read, None if the config sets no limit. Raises `Unsupported` if hidden state and
    head do not reproduce the model's own logits, or if padding changes real tokens. On the meta device, where there
    are no numbers, nothing is verified.
    """

    __slots__ = (
        "_arguments",
        "_body",
        "_cache_name",
        "_cap",
        "_fused",
        "_head",
        "_inside",
        "_scale",
        "context",
        "model",
        "vocab",
    )

    def __init__(self, model: Any) -> None:
        outer, model = model, model.get_base_model() if hasattr(model, "get_base_model") else model
        name, config = type(model).__name__, model.config.get_text_config()
        head, body = model.get_output_embeddings(), model.base_model
        if body is model:  # its name for the body is not the one that its class announces
            body = getattr(model, "model", model)
        if head is None or body is model or config.is_encoder_decoder:
            raise Unsupported(
                f"{name} is not a causal language model: it needs a decoder body and an output head over it"
            )
        self.model, self._head, self._body = model, head, body
        self._arguments = frozenset(inspect.signature(body.forward).parameters)
        # transformers renamed the argument in 5.24
        self._cache_name = next((n for n in ("cache", "past_key_values") if n in self._arguments), None)
        limit = getattr(config, "max_position_embeddings", None)
        self.context: int | None = limit if limit and limit > 0 else None
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        self._scale = 1.0
        self._inside: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._fused: Fused | None = None
        if self.device.type == "meta":
            self.vocab: int = head.weight.shape[0]
            self._fused = None if unfit(model) else Fused(model)
            return
        with evaluating(model.modules()), torch.no_grad():
            self._verify(name, config, outer)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def packs(self) -> bool:
        """Whether `predicting` pads nothing and computes a prompt that rows share once."""
        return self._fused is not None

    def inside(self, context: Callable[[], AbstractContextManager[Any]]) -> LanguageModel:
        """The same weights, run inside a context: with the adapter off, for instance. For looks that are not learned
        from, for a backward pass would run outside of it."""
        twin = copy.copy(self)
        twin._inside = context
        return twin

    def body(self, ids: Tensor, positions: Tensor, mask: Tensor | None = None, cache: Any = None) -> Tensor:
        """[B, L, d] last hidden states of ids [B, L] at these positions [B, L].

        mask [B, columns of the cache + L] is 1 for real tokens; None if causality alone decides who sees what. Raises
        `Unsupported` if a cache is given and the model takes none.
        """
        arguments = {"input_ids": ids, "use_cache": cache is not None}
        for key, value in (("attention_mask", mask), ("position_ids", positions)):
            if key in self._arguments:
                arguments[key] = value
        if self._fused is not None:
            with self._inside():
                return self._fused.body(ids, positions, mask, cache)
        if cache is not None:
            if self._cache_name is None:
                raise Unsupported(f"{type(self.model).__name__} takes no cache of keys and values")
            arguments[self._cache_name] = cache
        with self._inside():
            states = getattr(self._body(**arguments), "last_hidden_state", None)
        if states is None:
            raise Unsupported(f"{type(self._body).__name__}, the body of the model, gives no last_hidden_state")
        return states

    def hidden(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """[B, L, d] last hidden states of right-padded rows ids [B, L], lengths [B] of at least 1. Autograd is on.

        Real tokens are what they would be alone, states of padding mean nothing. No mask is needed for that: padding
        comes last, and a causal model's tokens see only what comes before them (checked when the wrapper is built). So
        attention keeps its fast causal kernels, and no query of padding is left without any key, which can give nan.
        """
        if ids.shape[0] != len(lengths):
            raise ValueError(f"{len(lengths)} lengths for {ids.shape[0]} rows of ids")
        return self.body(ids, torch.arange(ids.shape[1], device=ids.device).expand_as(ids))

    def predicting(self, chains: Chains, length: Tensor) -> Tensor:
        """[n, d] last hidden states before each trained token of these chains, `length` [R] tokens a row. Autograd is
        on."""
        if self._fused is not None:
            with self._inside():
                ids, layout = chains.ids.to(self.device), Layout.of(chains, length).to(self.device)
                return self._fused.predicting(ids, layout)
        rows = torch.arange(len(length), device=length.device)
        ids, lengths = chains.padded(rows)
        row, before = torch.repeat_interleave(rows, length), chains.at - 1
        return self.hidden(ids.to(self.device), lengths)[row.to(self.device), before.to(self.device)]

    def logits(self, h: Tensor) -> Tensor:
        """[n, V] of hidden states [n, d]: the model's own head with bias, scale and soft-cap, in the model's dtype."""
        with self._inside():
            z = self._head(h)
        if self._scale != 1:
            z = z * self._scale
        return z if self._cap is None else torch.tanh(z / self._cap) * self._cap

    def pull_back(self, h: Tensor, gradient: Tensor) -> Tensor:
        """[n, d] gradient with respect to hidden states h [n, d], at least float32, of one with respect to their logits
        [n, V]. No weight gets one."""
        if type(self._head) is nn.Linear and self._cap is None:
            weight, out = self._head.weight.detach(), h.new_zeros(h.shape, dtype=gradient.dtype)
            step = len(weight) if weight.dtype == gradient.dtype else chunk_rows(weight.shape[1], gradient.dtype)
            for i in range(0, len(weight), step):  # a head in half precision is widened part by part
                out += gradient[:, i : i + step] @ weight[i : i + step].to(gradient.dtype)
            return out if self._scale == 1 else out * self._scale
        with torch.enable_grad():
            leaf = h.detach().requires_grad_()
            z = self.logits(leaf)
        return torch.autograd.grad(z, leaf, gradient.to(z.dtype))[0].to(gradient.dtype)

    def logp_entropy(
        self,
        h: Tensor,
        y: Tensor,
        temperature: float | Tensor = 1.0,
        chunk: int | None = None,
        at: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-prob [n] of tokens y [n], entropy [n] in nats, and log-probs [n, K] of tokens `at` [n, K] if given.

        All under softmax(logits / temperature) with full support, in float32 (float64 for a float64 model), for
        hidden states h [n, d]; temperature is one number or [n]. Gradients reach h and the head for all three. Only
        `chunk` rows of logits (by default 64 MiB of them) exist at any time, in the forward pass and in the backward
        pass.
        """
        exact = torch.float64 if h.dtype == torch.float64 else torch.float32
        if not (bool((temperature > 0).all()) if isinstance(temperature, Tensor) else temperature > 0):
            raise ValueError(f"log-probs need a temperature above 0, got {temperature}")
        heat = torch.as_tensor(temperature, dtype=exact, device=h.device)
        n, size = len(h), chunk or chunk_rows(self.vocab, exact)

        def score(h: Tensor, y: Tensor, heat: Tensor, at: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
            return _TokenScores.apply(self.logits(h), y, heat, at)

        parts = []
        for i in range(0, max(n, 1), size):
            rows = slice(i, i + size)
            inputs = (h[rows], y[rows], heat[rows] if heat.ndim else heat, None if at is None else at[rows])
            if n > size and torch.is_grad_enabled():
                parts.append(checkpoint(score, *inputs, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(score(*inputs))
        if len(parts) == 1:
            return parts[0]
        logp, entropy, logp_at = zip(*parts)
        return torch.cat(logp), torch.cat(entropy), None if at is None else torch.cat(logp_at)

    def _verify(self, name: str, config: Any, outer: Any) -> None:
        """Finds the logit scale that reproduces the model's own logits, and checks that padding is invisible.

        outer: the model as it was given; a PEFT method that works outside the base model shows here.
        """
        length = min(7, self.context or 7)
        ids = (torch.arange(2 * length, device=self.device).view(2, -1) * 7919 + 3) % config.vocab_size
        short = max(1, length // 2)
        want = outer(input_ids=ids, use_cache=False).logits[0]
        states = self.hidden(ids, torch.tensor([length, short]))
        alone = self.hidden(ids[1:, :short], torch.tensor([short]))
        self.vocab = want.shape[-1]
        named = [getattr(config, f, None) for f in _FACTORS]
        for self._scale in [s for f in named if f for s in (f, 1 / f)] + [1.0]:
            if close(self.logits(states[0]), want):
                break
        else:
            raise Unsupported(
                f"{name}: its output head on its last hidden state does not give the logits of its own forward pass; "
                "it does something more that no config attribute we know of announces"
            )
        if not close(states[1, :short], alone[0]):
            raise Unsupported(
                f"{name}: padding on the right changes its hidden states of real tokens, so rows cannot share a batch"
            )
        self._fuse(self.model, ids, short)

    def _fuse(self, model: Any, ids: Tensor, short: int) -> None:
        """Takes the fused path where it gives the model's own states: of a rectangle, of rows, behind a shared prompt.

        ids [2, length]: what they are does not matter, they are made to share their first `short`.
        """
        if unfit(model):
            return
        rows, n = torch.cat([ids[:1].expand(2, -1)[:, :short], ids[:, short:]], 1), ids.shape[1]
        here = functools.partial(torch.tensor, device=self.device)
        want, at, fused = self.hidden(rows, here([n, n])), torch.arange(1, n, device=self.device), Fused(model)
        faithful = close(fused.body(rows, torch.arange(n, device=self.device).expand(2, -1)), want)
        for k in (0, short - 1):  # all is trained, then only what differs
            chains = Chains(rows.flatten(), here([n, n]), at[k:].repeat(2), here([0, n]))
            states = fused.predicting(chains.ids, Layout.of(chains, here([n - 1 - k] * 2)))
            faithful &= close(states, want[:, k:-1].flatten(0, 1))
        if faithful:
            self._fused = fused


def close(a: Tensor, b: Tensor) -> bool:
    """Whether a reproduces b up to the rounding of b's dtype: the largest difference against the largest value."""
    tolerance = _TOLERANCE.get(b.dtype, 5e-2)
    return a.shape == b.shape and bool((a - b).abs().max() <= tolerance * b.abs().max())


def chunk_rows(vocab: int, dtype: torch.dtype) -> int:
    """How many rows of logits of this dtype fit into one chunk."""
    return max(1, CHUNK_BYTES // (vocab * dtype.itemsize))


class _TokenScores(torch.autograd.Function):
    """Logits z [n, V] -> log-prob of y, entropy, log-prob of at. Keeps z alone; the gradients have closed forms:

    d logp(y) / dx = onehot(y) - p,  d entropy / dx = -p (log p + entropy),  x = z / temperature.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, heat: Tensor, at: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        logp = _log_softmax(z, heat)
        of_y = logp.gather(1, y[:, None])[:, 0]
        of_at = None if at is None else logp.gather(1, at)
        logp.clamp_(min=_NEVER)
        entropy = -torch.einsum("nv,nv->n", logp.exp(), logp)
        ctx.save_for_backward(z, y, heat, at, entropy)
        ctx.set_materialize_grads(False)
        return of_y, entropy, of_at

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, g_y: Tensor | None, g_entropy: Tensor | None, g_at: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        z, y, heat, at, entropy = ctx.saved_tensors
        logp = _log_softmax(z, heat).clamp_(min=_NEVER)
        p = logp.exp()
        total = torch.zeros_like(entropy)
        if g_y is not None:
            total = total + g_y
        if g_at is not None:
            total = total + g_at.sum(1)
        if g_entropy is None:
            g = p.mul_(-total[:, None])
        else:
            g = logp.add_(entropy[:, None]).mul_(g_entropy[:, None]).add_(total[:, None]).mul_(p).neg_()
        if g_y is not None:
            g.scatter_add_(1, y[:, None], g_y[:, None])
        if g_at is not None:
            g.scatter_add_(1, at, g_at)
        return g.div_(heat[..., None]).to(z.dtype), None, None, None


_NEVER = -1e4  # exp of it is exactly 0, and 0 times it is 0 where 0 times the -inf of a forbidden token would be nan


def _log_softmax(z: Tensor, heat: Tensor) -> Tensor:
    return torch.log_softmax(z.to(heat.dtype) / heat[..., None], -1)
