"""A forward pass of our own for the Llama and Qwen families: the model's weights and numbers, none of its padding.

Tokens of all rows lie end to end in one [M, d] tensor; only attention, which needs a rectangle, pads. A prompt that
several rows share is a *root* and computed once, its rows are *branches* that look back at it. Linear layers are called
as the modules that they are, so adapters inside them work. A model that does anything which this file does not know is
told by `unfit` and keeps Hugging Face's own path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlvr.batch import Chains

FAMILY = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# Rotary frequencies that do not depend on how long the longest row of a batch is.
ROPE = ("default", "linear", "llama3", "yarn", "proportional")


def unfit(model: Any) -> str:
    """Why this file cannot stand in for the model's own forward pass; "" if it can (to be checked by numbers still)."""
    config, name = model.config, type(model).__name__
    if name not in FAMILY or not type(model).__module__.startswith("transformers."):
        return f"{name} is not one of {', '.join(FAMILY)}"
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"} or (
        getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    ):
        return "it has layers with a sliding window"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in ROPE:
        return f"its rotary frequencies ({rope}) change with the length of the batch"
    body = model.model
    norms = [body.norm]
    for layer in body.layers:
        if "DecoderLayer" not in type(layer).__name__:
            return f"one of its layers is a {type(layer).__name__}"
        norms += [layer.input_layernorm, layer.post_attention_layernorm]
        norms += [n for n in (getattr(layer.self_attn, f"{x}_norm", None) for x in "qk") if n is not None]
    if odd := next((n for n in norms if not hasattr(n, "variance_epsilon")), None):
        return f"one of its norms is a {type(odd).__name__}"
    if any(m._forward_hooks or m._forward_pre_hooks for m in body.modules()):
        return "somebody has hooked into its modules"
    return ""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Rows whose attention is computed together. Indices point into the layout's tokens; those of padding anywhere."""

    asks: Tensor  # [B, S] the tokens that look
    seen: Tensor  # [B, T] what they look at
    mask: Tensor | None  # [B, 1, S, T] True where they may; None if the tokens before each and itself


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the M tokens of some chains lie when laid end to end, roots first."""

    source: Tensor  # [M] index into the chains' ids
    position: Tensor  # [M] place in its own row
    rectangles: list[Rectangle]
    back: Tensor  # [M] where each token is in the rectangles' `asks`, laid end to end
    wanted: Tensor  # [n] the token before each trained one

    def to(self, device: torch.device) -> Layout:
        move = lambda x: x.to(device)  # noqa: E731
        seen = [
            Rectangle(move(r.asks), move(r.seen), None if r.mask is None else move(r.mask)) for r in self.rectangles
        ]
        return Layout(move(self.source), move(self.position), seen, move(self.back), move(self.wanted))

    @staticmethod
    def of(chains: Chains, length: Tensor) -> Layout:
        """For chains with `length` [R] trained tokens each. What comes after a row's last wanted token is left out."""
        device, rows = length.device, (length > 0).nonzero()[:, 0]
        count = length[rows]
        first, last = chains.first(length)[rows], chains.at[count.cumsum(0) - 1]
        roots, root_of = torch.unique(chains.prefixes(rows, first), return_inverse=True)
        if len(roots) == len(rows):  # nothing is shared: whole rows are roots
            roots = root_of = torch.arange(len(rows), device=device)
            first = last
        size = torch.cat([first[roots], last - first])  # of roots, then of branches
        begin = size.cumsum(0) - size
        part = torch.repeat_interleave(torch.arange(len(size), device=device), size)
        inside = torch.arange(len(part), device=device) - begin[part]
        offset = torch.cat([torch.zeros_like(roots), first])
        position = inside + offset[part]
        starts = chains.starts[rows]
        source = torch.cat([starts[roots], starts])[part] + position
        back = torch.empty_like(part)
        rectangles, done = [], 0
        for are_roots, which in _of_like_size(size, len(roots)):
            s = int(size[which].max())
            column = torch.arange(s, device=device)
            within = column < size[which][:, None]
            asks = torch.where(within, begin[which][:, None] + column, 0)
            flat = done + torch.arange(asks.numel(), device=device).view_as(asks)
            back[asks[within]] = flat[within]
            done += asks.numel()
            if are_roots:
                rectangles.append(Rectangle(asks, asks, None))
                continue
            root = root_of[which - len(roots)]
            before = torch.arange(int(size[root].max()), device=device)
            there = before < size[root][:, None]
            behind = torch.where(there, begin[root][:, None] + before, 0)
            causal = (column <= column[:, None]).expand(len(which), -1, -1)
            mask = torch.cat([there[:, None].expand(-1, s, -1), causal], 2)[:, None]
            rectangles.append(Rectangle(asks, torch.cat([behind, asks], 1), mask))
        row = torch.repeat_interleave(torch.arange(len(rows), device=device), count)
        before = chains.at - 1
        branch = begin[len(roots) :][row] + before - first[row]
        wanted = torch.where(before < first[row], begin[root_of[row]] + before, branch)
        return Layout(source, position, rectangles, back, wanted)


def _of_like_size(size: Tensor, roots: int) -> list[tuple[bool, Tensor]]:
    """Parts by powers of two of their size, so that padding is less than half of any rectangle: (roots?, parts)."""
    power = (size.clamp(min=1) - 1).float().log2().floor().long().clamp(min=1)  # up to 4 tokens, 8, 16, ...
    power[roots:] += 64
    power[size == 0] = -1
    return [(int(p) < 64, (power == p).nonzero()[:, 0]) for p in power.unique().tolist() if p >= 0]


class Fused:
    """The body of a model that `unfit` has nothing against."""

    def __init__(self, model: Any) -> None:
        self._body, config = model.model, model.config
        attention = self._body.layers[0].self_attn
        self._size, self._scaling = attention.head_dim, attention.scaling
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads

    def predicting(self, ids: Tensor, at: Layout) -> Tensor:
        """[n, d] last hidden states before each trained token of the chains whose ids and layout these are. Autograd is
        on."""
        # the kernel wants numbers, and would make them from booleans in every layer
        masks = [None if r.mask is None else self._bias(r.mask) for r in at.rectangles]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            outs = [
                self._attention(_rows(q, r.asks), _rows(k, r.seen), _rows(v, r.seen), mask, causal=mask is None)
                for r, mask in zip(at.rectangles, masks)
            ]
            return F.embedding(at.back, torch.cat([x.reshape(-1, self._heads * self._size) for x in outs]))

        h = self._run(ids[at.source], at.position, [attend] * len(self._body.layers))
        return h[at.wanted]

    def body(self, ids: Tensor, positions: Tensor, mask: Tensor | None = None, cache: Any = None) -> Tensor:
        """As LanguageModel.body."""
        b, n = ids.shape
        bias = None
        if mask is not None:
            past = mask.shape[1] - n
            column = torch.arange(mask.shape[1], device=ids.device)
            sees = mask.bool()[:, None, None] & (column <= past + torch.arange(n, device=ids.device)[:, None])
            bias = self._bias(sees)

        def attend(layer: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
            def look(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                q, k, v = (x.view(b, n, -1, self._size).transpose(1, 2) for x in (q, k, v))
                if cache is not None:
                    k, v = cache.update(k, v, layer)
                return self._attention(q, k, v, bias, causal=bias is None).reshape(b * n, -1)

            return look

        attends = [attend(i) for i in range(len(self._body.layers))]
        return self._run(ids.reshape(-1), positions.reshape(-1), attends).view(b, n, -1)

    def _bias(self, sees: Tensor) -> Tensor:
        return torch.zeros(sees.shape, dtype=self._dtype, device=sees.device).masked_fill_(~sees, -torch.inf)

    @property
    def _dtype(self) -> torch.dtype:
        return self._body.norm.weight.dtype

    def _run(self, ids: Tensor, positions: Tensor, attends: list[Callable[[Tensor, Tensor, Tensor], Tensor]]) -> Tensor:
        h = self._body.embed_tokens(ids)
        cos, sin = (x[0, :, None] for x in self._body.rotary_emb(h, positions[None]))
        half = self._size // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # with the sign of the half that it turns
        for layer, attend in zip(self._body.layers, attends):
            if "forward" in vars(layer) and torch.is_grad_enabled():  # see model.recompute_layers
                h = checkpoint(self._layer, layer, h, cos, sin, attend, use_reentrant=False, preserve_rng_state=False)
            else:
                h = self._layer(layer, h, cos, sin, attend)
        return _norm(self._body.norm, h)

    def _layer(
        self, layer: nn.Module, h: Tensor, cos: Tensor, sin: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        mixer: Any = layer.self_attn
        mlp: Any = layer.mlp
        x = _norm(layer.input_layernorm, h)
        q, k, v = (f(x).view(len(h), -1, self._size) for f in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
        if hasattr(mixer, "q_norm"):
            q, k = _norm(mixer.q_norm, q), _norm(mixer.k_norm, k)
        h = h + mixer.o_proj(attend(_rotate(q, cos, sin), _rotate(k, cos, sin), v))
        x = _norm(layer.post_attention_layernorm, h)
        return h + mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
        """[B, S, H, size] of q [B, H, S, size], k and v [B, KV, T, size]."""
        if self._heads != self._kv_heads:
            k, v = (x.repeat_interleave(self._heads // self._kv_heads, 1) for x in (k, v))
        causal = causal and q.shape[2] > 1
        if q.is_meta:  # there torch has the slow formula alone, which keeps all scores
            kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
            return kernel(q, k, v, 0.0, causal, attn_mask=mask, scale=self._scaling)[0].transpose(1, 2)
        if (
            q.shape[2] == 1 and mask is not None and q.device.type == "cpu"
        ):  # a third cheaper than the kernel for one query
            scores = torch.matmul(q, k.transpose(2, 3)).mul_(self._scaling).add_(mask)
            return torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=self._scaling)
        return out.transpose(1, 2)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """[B, heads, columns, size] of tokens x [M, heads, size] at index [B, columns]."""
    # an embedding is a gather whose backward pass is one addition a row; index_select's is a tensor a row
    return F.embedding(index, x.reshape(len(x), -1)).view(*index.shape, *x.shape[1:]).transpose(1, 2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return (x * cos).addcmul_(torch.cat([x[..., half:], x[..., :half]], -1), sin)


def _norm(norm: Any, x: Tensor) -> Tensor:
    if x.dtype == torch.float64:  # whoever takes float64 wants the model's numbers to the last bit, not speed
        return norm(x)
    return _RMSNorm.apply(x, norm.weight, norm.variance_epsilon)


class _RMSNorm(torch.autograd.Function):
    """x / sqrt(mean x^2 + eps) * weight, the statistic in float32; keeps x and one number a token."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype).mul_(weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        unit = x.float() * scale
        both = g.float() * unit
        inner = (both @ weight.float()).div_(x.shape[-1])[..., None]
        to_weight = both.flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        return (g * weight).float().sub_(unit.mul_(inner)).mul_(scale).to(x.dtype), to_weight, None
