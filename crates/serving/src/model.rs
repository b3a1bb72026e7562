//! The shape of a model that is served: parameters, floating-point operations, and the size of its KV cache.

/// A transformer. All counts are those of the model's public configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values; without a meaning with [`Model::latent`].
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Width of the feed-forward network of a layer without experts.
    pub ffn: u64,
    /// The networks have three matrices instead of two.
    pub gated: bool,
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
    /// Input and output embeddings share one matrix.
    pub tied: bool,
    /// Experts, if the model has them.
    pub experts: Option<Experts>,
    /// Latent attention (MLA), if the model has it.
    pub latent: Option<Latent>,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts of a layer.
    pub count: u64,
    /// Experts that each token visits.
    pub top_k: u64,
    /// Experts that every token visits, besides those.
    pub shared: u64,
    /// Width of an expert's network.
    pub ffn: u64,
    /// The first layers that have no experts.
    pub dense_layers: u32,
}

/// Multi-head latent attention: the cache holds one vector per token and layer instead of keys and values per head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Rank of queries.
    pub query: u64,
    /// Rank of keys and values: the part of the cached vector without positions.
    pub rank: u64,
    /// The part of the cached vector with positions.
    pub rope: u64,
    /// Width of a head's keys without positions.
    pub nope: u64,
    /// Width of a head's values.
    pub value: u64,
}

impl Model {
    /// DeepSeek-V3: arXiv 2412.19437, section 4.2, and its published `config.json`. Without the module that predicts
    /// further tokens.
    pub fn deepseek_v3() -> Model {
        Model {
            layers: 61,
            hidden: 7168,
            heads: 128,
            kv_heads: 128,
            head_dim: 128,
            ffn: 18_432,
            gated: true,
            vocabulary: 129_280,
            tied: false,
            experts: Some(Experts { count: 256, top_k: 8, shared: 1, ffn: 2048, dense_layers: 3 }),
            latent: Some(Latent { query: 1536, rank: 512, rope: 64, nope: 128, value: 128 }),
        }
    }

    /// Elements of the KV cache per token and layer.
    pub fn kv_elements(&self) -> u64 {
        match self.latent {
            Some(latent) => latent.rank + latent.rope,
            None => 2 * self.kv_heads * self.head_dim,
        }
    }

    /// Bytes of the KV cache per token, all layers together, with `bytes` bytes per element.
    pub fn kv_bytes(&self, bytes: u64) -> u64 {
        self.kv_elements() * u64::from(self.layers) * bytes
    }

    /// The number of GPUs among which tensor parallelism divides the KV cache; further ones hold copies.
    pub fn kv_split(&self, tp: u32) -> u64 {
        if self.latent.is_some() { 1 } else { u64::from(tp).min(self.kv_heads) }
    }

    /// Parameters of the attention of one layer.
    pub fn attention(&self) -> u64 {
        match self.latent {
            None => 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads),
            Some(l) => {
                let queries = self.hidden * l.query + l.query * self.heads * (l.nope + l.rope);
                let cached = self.hidden * (l.rank + l.rope) + l.rank * self.heads * (l.nope + l.value);
                queries + cached + self.heads * l.value * self.hidden
            }
        }
    }

    fn network(&self, ffn: u64) -> u64 {
        (if self.gated { 3 } else { 2 }) * self.hidden * ffn
    }

    /// Parameters of one expert; zero without experts.
    pub fn expert(&self) -> u64 {
        self.experts.map_or(0, |experts| self.network(experts.ffn))
    }

    /// The layers that have experts.
    pub fn expert_layers(&self) -> u32 {
        self.experts.map_or(0, |experts| self.layers.saturating_sub(experts.dense_layers))
    }

    /// Parameters of one embedding.
    pub fn embedding(&self) -> u64 {
        self.vocabulary * self.hidden
    }

    /// Parameters of all layers that every token uses: attention, networks without experts, routers and shared experts.
    pub fn dense(&self) -> u64 {
        let layers = u64::from(self.layers);
        let with = u64::from(self.expert_layers());
        let shared = self.experts.map_or(0, |e| e.shared * self.network(e.ffn) + self.hidden * e.count);
        layers * self.attention() + (layers - with) * self.network(self.ffn) + with * shared
    }

    /// All parameters.
    pub fn parameters(&self) -> u64 {
        let experts = self.experts.map_or(0, |e| e.count) * self.expert() * u64::from(self.expert_layers());
        self.dense() + experts + (if self.tied { 1 } else { 2 }) * self.embedding()
    }

    /// Parameters that a token uses in all layers, without embeddings.
    pub fn active(&self) -> u64 {
        self.dense() + self.experts.map_or(0, |e| e.top_k) * self.expert() * u64::from(self.expert_layers())
    }

    /// Floating-point operations of the scores and values of one token for one token of its context, all layers
    /// together. Latent attention expands keys and values in prefill, and works on the cached vectors in decode.
    pub fn pair_flops(&self, decode: bool) -> f64 {
        let width = match self.latent {
            None => 2 * self.head_dim,
            Some(l) if decode => 2 * l.rank + l.rope,
            Some(l) => l.nope + l.rope + l.value,
        };
        2.0 * (self.heads * width) as f64 * f64::from(self.layers)
    }

    /// The share of a layer's experts that at least one of `tokens` tokens visits, if all experts are equally likely.
    pub fn visited(&self, tokens: u64) -> f64 {
        let Some(experts) = self.experts else { return 0.0 };
        let missed = 1.0 - experts.top_k as f64 / experts.count as f64;
        1.0 - power(missed, tokens)
    }
}

/// `x` to the power of a whole number, by multiplications only, so that every machine gets the same result.
fn power(mut x: f64, mut n: u64) -> f64 {
    let mut result = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            result *= x;
        }
        x *= x;
        n >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deepseek_has_the_parameters_and_the_cache_of_its_paper() {
        let model = Model::deepseek_v3();
        let billions = |n: u64| n as f64 / 1e9;
        assert!((billions(model.parameters()) / 671.0 - 1.0).abs() < 0.01, "{}", billions(model.parameters()));
        let active = billions(model.active() + 2 * model.embedding());
        assert!((active / 37.0 - 1.0).abs() < 0.03, "{active}");
        // arXiv 2505.09343, table 1: 70.272 KB per token.
        assert_eq!(model.kv_bytes(2), 70_272);
        assert_eq!(model.kv_split(8), 1);
    }

    #[test]
    fn few_tokens_visit_few_experts() {
        let model = Model::deepseek_v3();
        assert_eq!(model.visited(0), 0.0);
        assert!((model.visited(1) - 8.0 / 256.0).abs() < 1e-12);
        assert!(model.visited(1000) > 0.999);
    }
}
