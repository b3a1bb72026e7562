//! Algorithms from files, as rules name them.

use super::OrderedRecipe;
use crate::recipe::Recipe;
use std::sync::Arc;

/// The most files that rules may name: ours.
const FILES_MAX: usize = 64;

/// A file of MSCCL that a rule of [`Algorithms`](super::Algorithms) names. Two are equal if path and digest are.
#[derive(Clone, Debug)]
pub struct AlgorithmFile {
    /// Its path, as it was written.
    pub path: String,
    /// The digest of its text; empty before it is loaded.
    pub digest: String,
    recipe: Option<Arc<OrderedRecipe>>,
}

impl PartialEq for AlgorithmFile {
    fn eq(&self, other: &AlgorithmFile) -> bool {
        (&self.path, &self.digest) == (&other.path, &other.digest)
    }
}

impl Eq for AlgorithmFile {}

impl AlgorithmFile {
    /// The place of a path among the files; a new one is added.
    pub(super) fn place(path: &str, files: &mut Vec<AlgorithmFile>) -> Result<u16, String> {
        if let Some(at) = files.iter().position(|file| file.path == path) {
            return Ok(at as u16);
        }
        if files.len() >= FILES_MAX {
            return Err(format!("{path:?} is one file too many: name at most {FILES_MAX}"));
        }
        files.push(AlgorithmFile { path: path.to_string(), digest: String::new(), recipe: None });
        Ok(files.len() as u16 - 1)
    }

    /// Its messages; `None` before it is loaded.
    pub fn recipe(&self) -> Option<&OrderedRecipe> {
        self.recipe.as_deref()
    }

    /// Reads and checks it.
    pub(super) fn load(
        &mut self,
        read: &mut impl FnMut(&str) -> Result<(Arc<Recipe>, String), String>,
    ) -> Result<(), String> {
        let path = &self.path;
        let (recipe, digest) = read(path)?;
        if !self.digest.is_empty() && self.digest != digest {
            return Err(format!("{path}: this file differs from rank 0's: copy it to all hosts"));
        }
        recipe.verify().map_err(|fault| {
            let collective = recipe.collective().name();
            format!("{path}: its steps do not compute {collective}: {fault}")
        })?;
        self.digest = digest;
        self.recipe = Some(Arc::new(OrderedRecipe::of_file(recipe)));
        Ok(())
    }
}
