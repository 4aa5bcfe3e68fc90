"""A forward pass of our own for the Llama and Qwen families: the model's weights and numbers, none of its padding.

Tokens of all rows lie end to end in one [M, d] tensor; only attention, which needs a rectangle, pads. A prompt that
several rows share is a *root* and computed once, its rows are *branches* that look back at it. Linear layers are called
as the modules that they are, so adapters inside them work. A model that does anything which this file does not know is
told by `unfit` and keeps Hugging Face's own path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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

    def to(self, device: torch.device) -> Rectangle:
        mask = None if self.mask is None else self.mask.to(device)
        return Rectangle(self.asks.to(device), self.seen.to(device), mask)


@dataclass(frozen=True, slots=True)
class Looking:
    """Who looks at whom in a layer."""

    back: Tensor  # where each token that looks is in the rectangles' `asks`, laid end to end
    rectangles: list[Rectangle] = field(default_factory=list)

    def add(self, asks: Tensor, real: Tensor, seen: Tensor, mask: Tensor | None) -> None:
        """Another rectangle, whose `asks` are tokens where `real` and padding elsewhere."""
        flat = torch.arange(asks.numel(), device=asks.device).view_as(asks)
        self.back[asks[real]] = flat[real] + sum(r.asks.numel() for r in self.rectangles)
        self.rectangles.append(Rectangle(asks, seen, mask))

    def to(self, device: torch.device) -> Looking:
        return Looking(self.back.to(device), [r.to(device) for r in self.rectangles])


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the M tokens of some chains lie when laid end to end, roots first."""

    source: Tensor  # [M] index into the chains' ids
    position: Tensor  # [M] place in its own row
    looking: Looking  # of all M
    kept: Tensor  # [m] the tokens that somebody wants of the last layer: of a root that is shared, its last
    last: Looking  # of these, in the last layer
    wanted: Tensor  # [n] the token before each trained one, as an index into `kept`

    def to(self, device: torch.device) -> Layout:
        source, position, kept, wanted = (x.to(device) for x in (self.source, self.position, self.kept, self.wanted))
        return Layout(source, position, self.looking.to(device), kept, self.last.to(device), wanted)

    @staticmethod
    def of(chains: Chains, length: Tensor) -> Layout:
        """For chains with `length` [R] trained tokens each. What comes after a row's last wanted token is left out."""
        device, rows = length.device, (length > 0).nonzero()[:, 0]
        count = length[rows]
        first, last = chains.first(length)[rows], chains.at[count.cumsum(0) - 1]
        roots, root_of = torch.unique(chains.prefixes(rows, first), return_inverse=True)
        shared = len(roots) < len(rows)
        if not shared:  # whole rows are roots
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
        ends = size[: len(roots)].cumsum(0)
        idle = int(ends[-1]) - len(roots) if shared else 0  # tokens of roots before the last of each
        kept = torch.arange(idle, len(part), device=device)
        if shared:
            kept[: len(roots)] = ends - 1
        looking, last_looking = Looking(torch.empty_like(part)), Looking(torch.empty_like(kept))
        for are_roots, which in _of_like_size(size, len(roots)):
            s = int(size[which].max())
            column = torch.arange(s, device=device)
            within = column < size[which][:, None]
            asks = torch.where(within, begin[which][:, None] + column, 0)
            if are_roots:
                looking.add(asks, within, asks, None)
                if shared:
                    last_looking.add(which[:, None], within[:, :1], asks, within[:, None, None])
                continue
            root = root_of[which - len(roots)]
            before = torch.arange(int(size[root].max()), device=device)
            there = before < size[root][:, None]
            behind = torch.where(there, begin[root][:, None] + before, 0)
            causal = (column <= column[:, None]).expand(len(which), -1, -1)
            mask = torch.cat([there[:, None].expand(-1, s, -1), causal], 2)[:, None]
            seen = torch.cat([behind, asks], 1)
            looking.add(asks, within, seen, mask)
            last_looking.add((asks - idle).clamp(min=0), within, seen, mask)
        row = torch.repeat_interleave(torch.arange(len(rows), device=device), count)
        before = chains.at - 1
        branch = begin[len(roots) :][row] + before - first[row]
        if not shared:
            return Layout(source, position, looking, kept, looking, begin[root_of[row]] + before)
        wanted = torch.where(before < first[row], root_of[row], branch - idle)
        return Layout(source, position, looking, kept, last_looking, wanted)


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
        masks = [r.mask for look in (at.looking, at.last) for r in look.rectangles if r.mask is not None]
        bias = {id(mask): self._bias(mask) for mask in masks}

        def attend_as(looking: Looking) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                outs = [
                    self._attention(
                        _rows(q, r.asks), _rows(k, r.seen), _rows(v, r.seen), bias.get(id(r.mask)), r.mask is None
                    )
                    for r in looking.rectangles
                ]
                return F.embedding(looking.back, torch.cat([x.reshape(-1, self._heads * self._size) for x in outs]))

            return attend

        attends = [attend_as(at.looking)] * (len(self._body.layers) - 1) + [attend_as(at.last)]
        kept = at.kept if len(at.kept) < len(at.source) else None
        return self._run(ids[at.source], at.position, attends, kept)[at.wanted]

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

    def _run(
        self,
        ids: Tensor,
        positions: Tensor,
        attends: list[Callable[[Tensor, Tensor, Tensor], Tensor]],
        kept: Tensor | None = None,
    ) -> Tensor:
        """[M, d]; [m, d] where the last layer is asked for these tokens alone."""
        h = self._body.embed_tokens(ids)
        cos, sin = (x[0, :, None] for x in self._body.rotary_emb(h, positions[None]))
        half = self._size // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # with the sign of the half that it turns
        for i, (layer, attend) in enumerate(zip(self._body.layers, attends), 1):
            given = layer, h, cos, sin, attend, kept if i == len(attends) else None
            if "forward" in vars(layer) and torch.is_grad_enabled():  # see model.recompute_layers
                h = checkpoint(self._layer, *given, use_reentrant=False, preserve_rng_state=False)
            else:
                h = self._layer(*given)
        return _norm(self._body.norm, h)

    def _layer(
        self,
        layer: nn.Module,
        h: Tensor,
        cos: Tensor,
        sin: Tensor,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor],
        kept: Tensor | None = None,
    ) -> Tensor:
        mixer: Any = layer.self_attn
        mlp: Any = layer.mlp
        x = _norm(layer.input_layernorm, h)
        k, v = (f(x).view(len(h), -1, self._size) for f in (mixer.k_proj, mixer.v_proj))
        if hasattr(mixer, "k_norm"):
            k = _norm(mixer.k_norm, k)
        k = _rotate(k, cos, sin)
        if kept is not None:  # all are looked at, these alone look
            h, x, cos, sin = F.embedding(kept, h), F.embedding(kept, x), cos[kept], sin[kept]
        q = mixer.q_proj(x).view(len(h), -1, self._size)
        if hasattr(mixer, "q_norm"):
            q = _norm(mixer.q_norm, q)
        h = h + mixer.o_proj(attend(_rotate(q, cos, sin), k, v))
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
