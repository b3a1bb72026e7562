//! Models: their shapes, and the arithmetic of their parameters and floating-point operations.

use crate::reader::Section;

/// A transformer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    pub(crate) layers: u32,
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    /// Heads of keys and values.
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    /// Width of the feed-forward network, or of one expert if there are experts.
    pub(crate) ffn: u64,
    /// The network has three matrices instead of two.
    pub(crate) gated: bool,
    pub(crate) vocabulary: u64,
    pub(crate) sequence: u64,
    /// Experts of each layer; 0 for a dense model.
    pub(crate) experts: u64,
    /// Experts that each token visits.
    pub(crate) top_k: u64,
    /// Input and output embeddings share one matrix.
    pub(crate) tied: bool,
    /// Experts that every token visits, at the rank that has the token.
    pub(crate) shared_experts: u64,
    /// Multi-head latent attention: keys and values are made from a short vector of each token.
    pub(crate) latent: Option<Latent>,
    /// The first layers that have a dense network of this width, and no experts: `(layers, width)`. They count in the
    /// number of parameters only; runs take them for layers with experts.
    pub(crate) dense_first: (u64, u64),
}

/// The widths of multi-head latent attention (arXiv 2405.04434, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latent {
    /// Of the vector from which queries are made; 0: they are made from the token itself.
    pub(crate) query: u64,
    /// Of the vector from which keys and values are made.
    pub(crate) key_value: u64,
    /// Of the part of a key that has the position, and that all heads share.
    pub(crate) rope: u64,
}

/// Names of the table below.
pub(crate) const NAMES: [&str; 15] = [
    "llama-7b",
    "llama-13b",
    "llama-70b",
    "llama3-8b",
    "llama3-70b",
    "llama3-405b",
    "gpt-22b",
    "gpt-175b",
    "gpt-530b",
    "gpt-1t",
    "mixtral-8x7b",
    "mixtral-8x22b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "deepseek-v3",
];

/// A model of the table. Sources: arXiv 2307.09288 (Llama 2), 2407.21783 (Llama 3), 2104.04473 table 1 and 2205.05198
/// (GPT), 2412.19437 (DeepSeek-V3), the published configurations of Mixtral and Qwen3.
pub(crate) fn named(name: &str) -> Model {
    let llama = |layers, hidden, heads, kv_heads, ffn| Model {
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim: 128,
        ffn,
        gated: true,
        vocabulary: 32_000,
        sequence: 4096,
        experts: 0,
        top_k: 0,
        tied: false,
        shared_experts: 0,
        latent: None,
        dense_first: (0, 0),
    };
    let llama3 = |layers, hidden, heads, ffn| Model {
        vocabulary: 128_256,
        sequence: 8192,
        ..llama(layers, hidden, heads, 8, ffn)
    };
    let gpt = |layers, hidden: u64, heads: u64| Model {
        head_dim: hidden / heads,
        gated: false,
        vocabulary: 51_200,
        sequence: 2048,
        tied: true,
        ..llama(layers, hidden, heads, heads, 4 * hidden)
    };
    let qwen = |layers, hidden, heads, ffn| Model {
        vocabulary: 151_936,
        experts: 128,
        top_k: 8,
        ..llama(layers, hidden, heads, 4, ffn)
    };
    match name {
        "llama-13b" => llama(40, 5120, 40, 40, 13_824),
        "llama-70b" => llama(80, 8192, 64, 8, 28_672),
        "llama3-8b" => llama3(32, 4096, 32, 14_336),
        "llama3-70b" => llama3(80, 8192, 64, 28_672),
        "llama3-405b" => llama3(126, 16_384, 128, 53_248),
        "gpt-22b" => gpt(48, 6144, 64),
        "gpt-175b" => gpt(96, 12_288, 96),
        "gpt-530b" => gpt(105, 20_480, 128),
        "gpt-1t" => gpt(128, 25_600, 160),
        "mixtral-8x7b" => Model { experts: 8, top_k: 2, ..llama(32, 4096, 32, 8, 14_336) },
        "mixtral-8x22b" => Model { experts: 8, top_k: 2, vocabulary: 32_768, ..llama(56, 6144, 48, 8, 16_384) },
        "qwen3-30b-a3b" => qwen(48, 2048, 32, 768),
        "qwen3-235b-a22b" => qwen(94, 4096, 64, 1536),
        "deepseek-v3" => Model {
            vocabulary: 129_280,
            experts: 256,
            top_k: 8,
            shared_experts: 1,
            latent: Some(Latent { query: 1536, key_value: 512, rope: 64 }),
            dense_first: (3, 18_432),
            ..llama(61, 7168, 128, 128, 2048)
        },
        _ => llama(32, 4096, 32, 32, 11_008),
    }
}

/// No model: a file stands in its place.
pub(crate) fn none() -> Model {
    named("")
}

/// Reads a model: by a name, by its parameters, or by a name and the parameters that differ.
pub(super) fn read(section: &Section<'_>) -> Option<Model> {
    let name = section.choice("model", &NAMES);
    if name.is_none() && section.has("model") {
        return None;
    }
    let mut model = named(name.unwrap_or("llama-7b"));
    let count = |key: &'static str, low: u64, most: u64| section.count(key, low, most);
    if name.is_none() {
        for key in ["layers", "hidden"] {
            if !section.has(key) {
                section.wrong(key, "is missing", "name a model (model = \"llama-7b\"), or write layers and hidden");
            }
        }
    }
    let hidden = count("hidden", 1, 1 << 20);
    if let (None, Some(hidden)) = (name, hidden) {
        // A model without a name has the shape of GPT models by default.
        model.hidden = hidden;
        model.head_dim = hidden.min(128);
        model.heads = hidden / model.head_dim;
        model.kv_heads = model.heads;
        model.ffn = 4 * hidden;
        model.gated = false;
        model.vocabulary = 0;
        model.sequence = 2048;
    }
    model.hidden = hidden.unwrap_or(model.hidden);
    model.layers = count("layers", 1, 4096).map_or(model.layers, |n| n as u32);
    if let Some(heads) = count("heads", 1, 1 << 16) {
        if name.is_none() {
            model.kv_heads = heads;
            model.head_dim = (model.hidden / heads).max(1);
        }
        model.heads = heads;
    }
    model.kv_heads = count("kv_heads", 1, 1 << 16).unwrap_or(model.kv_heads);
    model.head_dim = count("head_dim", 1, 1 << 16).unwrap_or(model.head_dim);
    model.ffn = count("ffn", 1, 1 << 24).unwrap_or(model.ffn);
    model.gated = section.flag("gated").unwrap_or(model.gated);
    model.vocabulary = count("vocabulary", 0, 1 << 24).unwrap_or(model.vocabulary);
    model.sequence = count("sequence", 1, 1 << 24).unwrap_or(model.sequence);
    model.experts = count("experts", 0, 1 << 14).unwrap_or(model.experts);
    model.top_k = count("top_k", 1, 1 << 10).unwrap_or(model.top_k);
    model.shared_experts = count("shared_experts", 0, 1 << 10).unwrap_or(model.shared_experts);
    if model.shared_experts > 0 && model.experts == 0 {
        section.wrong("shared_experts", "needs a model with experts", "write experts and top_k, or name such a model");
    }
    let (key_value, query, rope) =
        (count("kv_rank", 0, 1 << 20), count("q_rank", 0, 1 << 20), count("rope_dim", 0, 1 << 16));
    model.latent = match (model.latent, key_value) {
        (_, Some(0)) => None,
        (known, key_value) => {
            let made = key_value.map(|key_value| Latent { query: 0, key_value, rope: 64 });
            known.map(|known| Latent { key_value: key_value.unwrap_or(known.key_value), ..known }).or(made)
        }
    };
    match &mut model.latent {
        Some(latent) => {
            latent.query = query.unwrap_or(latent.query);
            latent.rope = rope.unwrap_or(latent.rope);
        }
        None => {
            for key in ["q_rank", "rope_dim"].into_iter().filter(|key| section.has(key)) {
                section.wrong(key, "belongs to latent attention", "write kv_rank, too, or remove it");
            }
        }
    }
    if model.experts > 0 && !(1..=model.experts).contains(&model.top_k) {
        section.wrong("top_k", format!("must be 1 to {}, the experts", model.experts), "correct it");
    }
    Some(model)
}

impl Model {
    /// Parameters of the attention of a layer: queries, keys, values and output.
    pub(super) fn attention(&self) -> u64 {
        if let Some(Latent { query, key_value, rope }) = self.latent {
            let queries = self.heads * (self.head_dim + rope);
            let queries = if query == 0 { self.hidden * queries } else { (self.hidden + queries) * query };
            let keys = self.hidden * (key_value + rope) + key_value * 2 * self.heads * self.head_dim;
            return queries + keys + self.heads * self.head_dim * self.hidden;
        }
        2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
    }

    /// Parameters of one feed-forward network, or of one expert.
    pub(super) fn network(&self) -> u64 {
        (if self.gated { 3 } else { 2 }) * self.hidden * self.ffn
    }

    /// Parameters of a layer without those of experts. All ranks of a tensor-parallel group share them.
    pub(super) fn dense(&self) -> u64 {
        let moe = self.hidden * self.experts + self.shared_experts * self.network();
        self.attention() + if self.experts == 0 { self.network() } else { moe }
    }

    /// Parameters of an embedding.
    pub(super) fn embedding(&self) -> u64 {
        self.vocabulary * self.hidden
    }

    /// All parameters.
    pub(super) fn parameters(&self) -> u64 {
        let embeddings = if self.tied { 1 } else { 2 };
        let layer = self.dense() + self.experts * self.network();
        let (first, width) = self.dense_first;
        let first = first.min(u64::from(self.layers));
        let dense = self.attention() + self.network() / self.ffn.max(1) * width;
        (u64::from(self.layers) - first) * layer + first * dense + embeddings * self.embedding()
    }

    /// Floating-point operations of the attention of one token, forward: its matrices, and scores and values over the
    /// whole sequence. They are counted as in arXiv 2104.04473 (appendix), without a discount for causal masks.
    pub(super) fn attention_flops(&self) -> f64 {
        2.0 * self.attention() as f64 + self.scores_flops()
    }

    /// The part of these operations for scores and values.
    pub(super) fn scores_flops(&self) -> f64 {
        let rope = self.latent.map_or(0, |latent| latent.rope);
        2.0 * self.sequence as f64 * (self.heads * (2 * self.head_dim + rope)) as f64
    }

    /// Floating-point operations, forward, of the feed-forward networks that a token visits.
    pub(super) fn network_flops(&self) -> f64 {
        2.0 * self.network() as f64 * self.top_k.max(1) as f64
    }

    /// Floating-point operations, forward, of the experts that every token visits.
    pub(super) fn shared_flops(&self) -> f64 {
        2.0 * (self.network() * self.shared_experts) as f64
    }

    /// Floating-point operations, forward, of the output embedding for one token.
    pub(super) fn logits_flops(&self) -> f64 {
        2.0 * self.embedding() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_that_the_models_are_named_for() {
        for (name, billions) in [
            ("llama-7b", 6.74),
            ("llama-13b", 13.0),
            ("llama-70b", 69.0),
            ("llama3-8b", 8.03),
            ("llama3-70b", 70.6),
            ("llama3-405b", 405.8),
            ("gpt-22b", 22.0),
            ("gpt-175b", 174.6),
            ("gpt-530b", 529.6),
            ("gpt-1t", 1008.0),
            ("mixtral-8x7b", 46.7),
            ("mixtral-8x22b", 140.6),
            ("qwen3-30b-a3b", 30.5),
            ("qwen3-235b-a22b", 235.1),
            ("deepseek-v3", 671.0),
        ] {
            let found = named(name).parameters() as f64 / 1e9;
            assert!((found / billions - 1.0).abs() < 0.01, "{name}: {found}");
        }
    }

    /// arXiv 2104.04473, equation 3 without its last term: 72 L h^2 (1 + s / 6h) per token of an iteration, three times
    /// forward.
    #[test]
    fn operations_are_those_of_the_megatron_paper() {
        let gpt = named("gpt-175b");
        let (layers, h, s) = (96.0, 12_288.0, 2048.0);
        let paper = 72.0 * layers * h * h * (1.0 + s / (6.0 * h));
        let ours = 3.0 * layers * (gpt.attention_flops() + gpt.network_flops());
        assert!((ours / paper - 1.0).abs() < 1e-9, "{ours} {paper}");
    }
}
