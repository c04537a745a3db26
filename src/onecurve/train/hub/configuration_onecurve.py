"""The configuration of a model that `onecurve` trained, for transformers. It needs nothing but transformers."""

from transformers import PretrainedConfig


class OnecurveConfig(PretrainedConfig):
    """A decoder-only transformer with the forward multipliers of its parameterisation.

    ``branch_multiplier`` multiplies every residual branch, ``attention_scale`` the product of queries and keys,
    ``input_multiplier`` what leaves the embeddings and ``output_multiplier`` what enters the readout.
    """

    model_type = "onecurve"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # noqa: RUF012  (as transformers defines it)

    def __init__(
        self,
        vocab_size=256,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_size=16,
        intermediate_size=256,
        max_position_embeddings=128,
        positions="alibi",
        activation="squared-relu",
        norm="rms",
        norm_gain=False,
        norm_eps=1e-5,
        qk_norm=False,
        tied=False,
        input_multiplier=1.0,
        output_multiplier=1.0,
        branch_multiplier=1.0,
        attention_scale=0.25,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_size = head_size
        self.intermediate_size = intermediate_size
        self.max_position_embeddings = max_position_embeddings
        self.positions = positions
        self.activation = activation
        self.norm = norm
        self.norm_gain = norm_gain
        self.norm_eps = norm_eps
        self.qk_norm = qk_norm
        self.tied = tied
        self.input_multiplier = input_multiplier
        self.output_multiplier = output_multiplier
        self.branch_multiplier = branch_multiplier
        self.attention_scale = attention_scale
        # A tied model has one tensor for both embeddings, so there is nothing for transformers to tie.
        kwargs["tie_word_embeddings"] = False
        super().__init__(**kwargs)
