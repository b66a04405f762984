"""Real architectures, small: of transformers, as they are made by its own configurations."""

import torch
import transformers as tf

S = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
KV = dict(S, num_key_value_heads=2)


def ids(B=3, T=10, V=99):
    return torch.randint(4, V, (B, T), generator=torch.Generator().manual_seed(0))


def lm(B=3, T=10):
    return {"input_ids": ids(B, T), "attention_mask": torch.ones(B, T, dtype=torch.long)}


def img(size=32, samples=2):
    return {"pixel_values": torch.randn(samples, 3, size, size)}


MODELS = {
    "gpt2": (
        lambda: tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
        lm,
    ),
    "gptneo": (
        lambda: tf.GPTNeoForCausalLM(
            tf.GPTNeoConfig(
                vocab_size=99,
                hidden_size=32,
                num_layers=2,
                num_heads=4,
                attention_types=[[["global", "local"], 1]],
                max_position_embeddings=64,
                window_size=4,
            )
        ),
        lm,
    ),
    "gptj": (
        lambda: tf.GPTJForCausalLM(
            tf.GPTJConfig(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4)
        ),
        lm,
    ),
    "gptneox": (lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**S)), lm),
    "llama": (lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**KV)), lm),
    "mistral": (lambda: tf.MistralForCausalLM(tf.MistralConfig(**KV, sliding_window=4)), lm),
    "mixtral": (
        lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**{**KV, "intermediate_size": 64}, num_local_experts=8)),
        lm,
    ),
    "qwen2": (lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**KV)), lm),
    "qwen2moe": (
        lambda: tf.Qwen2MoeForCausalLM(
            tf.Qwen2MoeConfig(
                **KV,
                num_experts=8,
                num_experts_per_tok=2,
                moe_intermediate_size=16,
                shared_expert_intermediate_size=16,
            )
        ),
        lm,
    ),
    "gemma": (lambda: tf.GemmaForCausalLM(tf.GemmaConfig(**KV, head_dim=8)), lm),
    "gemma2": (lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**KV, head_dim=8)), lm),
    "phi": (lambda: tf.PhiForCausalLM(tf.PhiConfig(**S)), lm),
    "opt": (
        lambda: tf.OPTForCausalLM(
            tf.OPTConfig(
                vocab_size=99,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=37,
                max_position_embeddings=64,
                word_embed_proj_dim=32,
            )
        ),
        lm,
    ),
    "bloom": (lambda: tf.BloomForCausalLM(tf.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4)), lm),
    "falcon": (
        lambda: tf.FalconForCausalLM(
            tf.FalconConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        ),
        lm,
    ),
    "mamba": (
        lambda: tf.MambaForCausalLM(
            tf.MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=4)
        ),
        lambda: {"input_ids": ids()},
    ),
    "mambamask": (
        lambda: tf.MambaForCausalLM(
            tf.MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=4)
        ),
        lm,
    ),
    "rwkv": (
        lambda: tf.RwkvForCausalLM(
            tf.RwkvConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, context_length=64)
        ),
        lambda: {"input_ids": ids()},
    ),
    "xglm": (
        lambda: tf.XGLMForCausalLM(
            tf.XGLMConfig(
                vocab_size=99, d_model=32, num_layers=2, attention_heads=4, ffn_dim=37, max_position_embeddings=64
            )
        ),
        lm,
    ),
    "bert": (lambda: tf.BertModel(tf.BertConfig(**S)), lm),
    "bertmlm": (lambda: tf.BertForMaskedLM(tf.BertConfig(**S)), lm),
    "bertcls": (
        lambda: tf.BertForSequenceClassification(tf.BertConfig(**S)),
        lambda: {**lm(), "labels": torch.tensor([0, 1, 0])},
    ),
    "roberta": (lambda: tf.RobertaForTokenClassification(tf.RobertaConfig(**S)), lm),
    "distil": (
        lambda: tf.DistilBertModel(
            tf.DistilBertConfig(
                vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=64
            )
        ),
        lm,
    ),
    "albert": (lambda: tf.AlbertModel(tf.AlbertConfig(**S, embedding_size=16)), lm),
    "electra": (lambda: tf.ElectraForPreTraining(tf.ElectraConfig(**S, embedding_size=16)), lm),
    "deberta": (lambda: tf.DebertaV2Model(tf.DebertaV2Config(**S)), lm),
    "mpnet": (lambda: tf.MPNetModel(tf.MPNetConfig(**S)), lm),
    "xlnet": (
        lambda: tf.XLNetModel(tf.XLNetConfig(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=37)),
        lm,
    ),
    "fnet": (
        lambda: tf.FNetModel(tf.FNetConfig(**{k: v for k, v in S.items() if k != "num_attention_heads"})),
        lambda: {"input_ids": ids()},
    ),
    "longformer": (lambda: tf.LongformerModel(tf.LongformerConfig(**S, attention_window=4)), lm),
    "modernbert": (
        lambda: tf.ModernBertModel(
            tf.ModernBertConfig(
                **{**S, "pad_token_id": 0}, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2
            )
        ),
        lm,
    ),
    "convbert": (lambda: tf.ConvBertModel(tf.ConvBertConfig(**S, embedding_size=16)), lm),
    "t5": (
        lambda: tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
        ),
        lambda: {**lm(), "decoder_input_ids": ids(3, 7)},
    ),
    "bart": (
        lambda: tf.BartForConditionalGeneration(
            tf.BartConfig(
                vocab_size=99,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=37,
                decoder_ffn_dim=37,
                max_position_embeddings=64,
            )
        ),
        lambda: {**lm(), "decoder_input_ids": ids(3, 7)},
    ),
    "bart1": (
        lambda: tf.BartModel(
            tf.BartConfig(
                vocab_size=99,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=37,
                decoder_ffn_dim=37,
                max_position_embeddings=64,
            )
        ),
        lm,
    ),
    "vit": (
        lambda: tf.ViTForImageClassification(
            tf.ViTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                image_size=32,
                patch_size=8,
            )
        ),
        img,
    ),
    "deit": (
        lambda: tf.DeiTModel(
            tf.DeiTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                image_size=32,
                patch_size=8,
            )
        ),
        img,
    ),
    "beit": (
        lambda: tf.BeitModel(
            tf.BeitConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                image_size=32,
                patch_size=8,
            )
        ),
        img,
    ),
    "swin": (
        lambda: tf.SwinModel(
            tf.SwinConfig(
                image_size=32, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 2], window_size=4
            )
        ),
        img,
    ),
    "convnext": (
        lambda: tf.ConvNextModel(tf.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)),
        lambda: img(32),
    ),
    "resnet": (
        lambda: tf.ResNetForImageClassification(
            tf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        ),
        img,
    ),
    "mobilenet": (lambda: tf.MobileNetV2Model(tf.MobileNetV2Config(depth_multiplier=0.25, image_size=32)), img),
    "regnet": (
        lambda: tf.RegNetModel(
            tf.RegNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=8)
        ),
        img,
    ),
    "segformer": (
        lambda: tf.SegformerForSemanticSegmentation(
            tf.SegformerConfig(
                hidden_sizes=[8, 8, 16, 16],
                depths=[1, 1, 1, 1],
                num_attention_heads=[1, 1, 2, 2],
                decoder_hidden_size=16,
            )
        ),
        lambda: img(64),
    ),
    "dinov2": (
        lambda: tf.Dinov2Model(
            tf.Dinov2Config(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
            )
        ),
        img,
    ),
    "vitmae": (
        lambda: tf.ViTMAEForPreTraining(
            tf.ViTMAEConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                image_size=32,
                patch_size=8,
                decoder_hidden_size=16,
                decoder_num_attention_heads=4,
                decoder_num_hidden_layers=1,
                decoder_intermediate_size=16,
            )
        ),
        img,
    ),
    "clip": (
        lambda: tf.CLIPModel(
            tf.CLIPConfig(
                text_config=dict(S, eos_token_id=98),
                vision_config={
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 37,
                    "image_size": 32,
                    "patch_size": 8,
                },
                projection_dim=16,
            )
        ),
        lambda: {**lm(), "pixel_values": torch.randn(3, 3, 32, 32)},
    ),
    "siglip": (
        lambda: tf.SiglipModel(
            tf.SiglipConfig(
                text_config=dict(S, max_position_embeddings=10, pad_token_id=1, bos_token_id=2, eos_token_id=3),
                vision_config={
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 37,
                    "image_size": 32,
                    "patch_size": 8,
                },
            )
        ),
        lambda: {"input_ids": ids(), "pixel_values": torch.randn(3, 3, 32, 32)},
    ),
    "wav2vec2": (
        lambda: tf.Wav2Vec2Model(
            tf.Wav2Vec2Config(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                conv_dim=[16, 16],
                conv_stride=[4, 2],
                conv_kernel=[8, 2],
                num_conv_pos_embeddings=8,
                num_conv_pos_embedding_groups=2,
            )
        ),
        lambda: {"input_values": torch.randn(2, 400)},
    ),
    "hubert": (
        lambda: tf.HubertModel(
            tf.HubertConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                conv_dim=[16, 16],
                conv_stride=[4, 2],
                conv_kernel=[8, 2],
                num_conv_pos_embeddings=8,
                num_conv_pos_embedding_groups=2,
            )
        ),
        lambda: {"input_values": torch.randn(2, 400)},
    ),
    "whisper": (
        lambda: tf.WhisperModel(
            tf.WhisperConfig(
                vocab_size=99,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=37,
                decoder_ffn_dim=37,
                num_mel_bins=8,
                max_source_positions=30,
                max_target_positions=30,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
            )
        ),
        lambda: {"input_features": torch.randn(2, 8, 60), "decoder_input_ids": ids(2, 7)},
    ),
    "reformer": (
        lambda: tf.ReformerModel(
            tf.ReformerConfig(
                vocab_size=99,
                hidden_size=32,
                num_attention_heads=2,
                attention_head_size=16,
                attn_layers=["local", "lsh"],
                axial_pos_embds=False,
                max_position_embeddings=64,
                feed_forward_size=32,
                num_buckets=2,
                lsh_attn_chunk_length=4,
                local_attn_chunk_length=4,
                is_decoder=False,
            )
        ),
        lambda: {"input_ids": ids(2, 16)},
    ),
    "timeseries": (
        lambda: tf.PatchTSTModel(
            tf.PatchTSTConfig(
                num_input_channels=2,
                context_length=32,
                patch_length=4,
                stride=4,
                d_model=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=37,
            )
        ),
        lambda: {"past_values": torch.randn(3, 32, 2)},
    ),
    "dpt": (
        lambda: tf.DPTForDepthEstimation(
            tf.DPTConfig(
                hidden_size=32,
                num_hidden_layers=4,
                num_attention_heads=4,
                intermediate_size=37,
                image_size=32,
                patch_size=8,
                backbone_out_indices=[0, 1, 2, 3],
                neck_hidden_sizes=[8, 8, 8, 8],
                fusion_hidden_size=8,
                is_hybrid=False,
            )
        ),
        img,
    ),
    "decision": (
        lambda: tf.DecisionTransformerModel(
            tf.DecisionTransformerConfig(
                state_dim=5, act_dim=3, hidden_size=32, n_layer=2, n_head=4, max_ep_len=50
            )
        ),
        lambda: {
            "states": torch.randn(2, 6, 5),
            "actions": torch.randn(2, 6, 3),
            "rewards": torch.randn(2, 6, 1),
            "returns_to_go": torch.randn(2, 6, 1),
            "timesteps": torch.arange(6).repeat(2, 1),
            "attention_mask": torch.ones(2, 6, dtype=torch.long),
        },
    ),
}
