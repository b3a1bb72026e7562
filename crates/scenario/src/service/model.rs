//! The models that services name: those of jobs.

use crate::job::model as jobs;
use crate::reader::Section;
use strandway_serving::Model;
use strandway_serving::model::{Experts, Latent};

/// A model that jobs name.
fn of_job(model: &jobs::Model) -> Model {
    let experts = (model.experts > 0).then_some(Experts {
        count: model.experts,
        top_k: model.top_k,
        shared: model.shared_experts,
        ffn: model.ffn,
        dense_layers: model.dense_first.0 as u32,
    });
    Model {
        layers: model.layers,
        hidden: model.hidden,
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim,
        ffn: if model.dense_first.0 > 0 { model.dense_first.1 } else { model.ffn },
        gated: model.gated,
        vocabulary: model.vocabulary,
        tied: model.tied,
        experts,
        latent: model.latent.map(|latent| Latent {
            query: latent.query,
            rank: latent.key_value,
            rope: latent.rope,
            nope: model.head_dim,
            value: model.head_dim,
        }),
    }
}

/// Reads the model, and its number of layers if that differs.
pub(super) fn read(section: &Section<'_>) -> (&'static str, Model) {
    let name = section.choice("model", &jobs::NAMES).unwrap_or("llama3-8b");
    let mut model = of_job(&jobs::named(name));
    if let Some(layers) = section.count("layers", 1, 4096) {
        model.layers = layers as u32;
    }
    (name, model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_those_of_the_published_configurations() {
        for (name, bytes, billions) in [
            ("llama3-8b", 131_072, 8.03),
            ("llama3-70b", 327_680, 70.6),
            ("qwen3-30b-a3b", 98_304, 30.5),
            ("qwen3-235b-a22b", 192_512, 235.1),
        ] {
            let model = of_job(&jobs::named(name));
            assert_eq!(model.kv_bytes(2), bytes, "{name}");
            assert!((model.parameters() as f64 / 1e9 / billions - 1.0).abs() < 0.01, "{name}");
        }
        assert_eq!(of_job(&jobs::named("deepseek-v3")), Model::deepseek_v3());
        let active = of_job(&jobs::named("qwen3-235b-a22b"));
        let active = (active.active() + 2 * active.embedding()) as f64 / 1e9;
        assert!((active / 22.0 - 1.0).abs() < 0.03, "{active}");
    }
}
