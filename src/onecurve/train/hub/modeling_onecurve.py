"""A model that `onecurve` trained, for transformers. It needs nothing but torch and transformers.

Shapes: B sequences, S new tokens, K keys (those in the cache and the new ones), d width, H heads.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_onecurve import OnecurveConfig

# transformers renamed the cache of keys and values: `past_key_values` was its name up to version 5.
_CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


class OnecurveNorm(nn.Module):
    """RMSNorm or LayerNorm without a bias, with or without a gain."""

    def __init__(self, config):
        super().__init__()
        self.kind, self.eps, self.width = config.norm, config.norm_eps, config.hidden_size
        self.gain = nn.Parameter(torch.ones(config.hidden_size)) if config.norm_gain else None

    def forward(self, x):
        """(B, S, d) to (B, S, d)."""
        if self.kind == "layer":
            return F.layer_norm(x, (self.width,), self.gain, None, self.eps)
        return F.rms_norm(x, (self.width,), self.gain, self.eps)


class OnecurveBlock(nn.Module):
    """Attention and feed-forward, each a branch of the residual stream."""

    def __init__(self, config, layer):
        super().__init__()
        self.layer, self.heads, self.head_size = layer, config.num_attention_heads, config.head_size
        self.activation, self.qk_norm, self.eps = config.activation, config.qk_norm, config.norm_eps
        self.multiplier, self.scale = config.branch_multiplier, config.attention_scale
        width, inner, ffn = config.hidden_size, self.heads * self.head_size, config.intermediate_size
        self.attention_norm = OnecurveNorm(config)
        self.qkv = nn.Linear(width, 3 * inner, bias=False)
        self.attention_out = nn.Linear(inner, width, bias=False)
        self.ffn_norm = OnecurveNorm(config)
        self.ffn_in = nn.Linear(width, ffn * (2 if self.activation == "swiglu" else 1), bias=False)
        self.ffn_out = nn.Linear(ffn, width, bias=False)

    def forward(self, x, bias, cache):
        """(B, S, d) to (B, S, d); ``bias`` (B or 1, H or 1, S, K) is added to the attention logits."""
        b, s, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, s, 3, self.heads, self.head_size).permute(2, 0, 3, 1, 4)
        if self.qk_norm:
            q, k = F.rms_norm(q, (self.head_size,), eps=self.eps), F.rms_norm(k, (self.head_size,), eps=self.eps)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        attended = F.scaled_dot_product_attention(q, k, v, bias, scale=self.scale)
        x = torch.add(x, self.attention_out(attended.transpose(1, 2).reshape(b, s, -1)), alpha=self.multiplier)
        inner = self.ffn_in(self.ffn_norm(x))
        if self.activation == "squared-relu":
            inner = F.relu(inner).square()
        elif self.activation == "gelu":
            inner = F.gelu(inner)
        else:
            gate, value = inner.chunk(2, dim=-1)
            inner = F.silu(gate) * value
        return torch.add(x, self.ffn_out(inner), alpha=self.multiplier)


class OnecurveForCausalLM(PreTrainedModel, GenerationMixin):
    """Token ids to logits."""

    config_class = OnecurveConfig
    base_model_prefix = ""
    _no_split_modules = ["OnecurveBlock"]  # noqa: RUF012  (as transformers defines it)
    _supports_sdpa = True
    _supports_cache_class = True

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size) if learned else None
        self.blocks = nn.ModuleList(OnecurveBlock(config, layer) for layer in range(config.num_hidden_layers))
        self.final_norm = OnecurveNorm(config)
        self.readout = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        """The embedding of tokens."""
        return self.embedding

    def set_input_embeddings(self, value):
        """Replace it."""
        self.embedding = value

    def get_output_embeddings(self):
        """The readout; None where it is the embedding."""
        return self.readout

    def _init_weights(self, module):
        """Weights come from a checkpoint; nothing is drawn."""

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        cache=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        **kwargs,
    ):
        """Logits (B, S, vocabulary) of tokens (B, S), after those whose keys and values are in the cache.

        ``attention_mask`` (B, K) is 0 where there is padding, on either side.
        """
        cache = past_key_values if cache is None else cache
        use_cache = self.config.use_cache if use_cache is None and hasattr(self.config, "use_cache") else use_cache
        if use_cache and cache is None and not self.training:
            cache = DynamicCache()
        x = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        length, past = x.shape[1], 0 if cache is None else cache.get_seq_length()
        keys = past + length
        if cache is not None and getattr(cache, "is_compileable", False):
            keys = max(keys, cache.get_max_cache_shape() or keys)  # a cache of fixed size gives all its places
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(
                f"attention_mask has {attention_mask.dim()} dimensions; give one of tokens, (batch, length)"
            )
        if self.positions is not None:
            if position_ids is None and attention_mask is not None:
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp_min(0)[:, past : past + length]
            elif position_ids is None:
                position_ids = torch.arange(past, past + length, device=x.device)[None]
            if past + length > self.config.max_position_embeddings:
                raise ValueError(
                    f"{past + length} tokens are more than the {self.config.max_position_embeddings} positions "
                    "that this model has learned"
                )
            x = x + self.positions(position_ids)
        if self.config.input_multiplier != 1.0:
            x = x * self.config.input_multiplier
        bias = self._attention_bias(past, length, keys, attention_mask, x)
        for block in self.blocks:
            x = block(x, bias, cache)
        x = self.final_norm(x)
        if not isinstance(logits_to_keep, int):
            x = x[:, logits_to_keep]
        elif logits_to_keep:
            x = x[:, -logits_to_keep:]
        if self.config.output_multiplier != 1.0:
            x = x * self.config.output_multiplier
        logits = F.linear(x, self.embedding.weight if self.readout is None else self.readout.weight)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{_CACHE: cache})

    def _attention_bias(self, past, length, keys, attention_mask, x):
        """What is added to the attention logits: ALiBi (arXiv 2108.12409), and minus infinity where none may look.

        (1, H, S, K) without padding, (B, H, S, K) with it; H is 1 without ALiBi. A padding token sees itself, so that
        no row is empty.
        """
        at, of = torch.arange(past, past + length, device=x.device), torch.arange(keys, device=x.device)
        distance = at[:, None] - of[None, :]
        hidden = (distance < 0)[None, None]
        if attention_mask is not None:
            padding = F.pad(attention_mask == 0, (0, keys - attention_mask.shape[1]), value=False)
            hidden = hidden | (padding[:, None, None, :] & (distance != 0)[None, None])
        if self.config.positions == "alibi":
            heads = self.config.num_attention_heads
            slopes = torch.exp2(-8.0 / heads * torch.arange(1, heads + 1, device=x.device))
            bias = (-slopes[:, None, None] * distance)[None].to(x.dtype)
        else:
            bias = torch.zeros(1, 1, length, keys, device=x.device, dtype=x.dtype)
        return bias.masked_fill(hidden, float("-inf"))
