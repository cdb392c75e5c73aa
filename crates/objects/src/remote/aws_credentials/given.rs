//! Credentials from outside of AWS' files: environment, container and machine. `object_store` knows
//! how to get them; each provider is made when it is first needed, as its client reads the
//! certificates of the system.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use object_store::aws::AwsCredentialProvider;

use super::{CredentialError, GivenSource};
use crate::Error;

type Make = dyn Fn(GivenSource) -> Result<AwsCredentialProvider, Error> + Send + Sync;

/// Providers of what there is outside of the files.
#[derive(Clone)]
pub(in crate::remote) struct GivenProviders {
    sources: Vec<(GivenSource, OnceLock<AwsCredentialProvider>)>,
    make: Arc<Make>,
}

impl GivenProviders {
    /// Takes the sources that there are, and how to make the provider of one.
    pub(in crate::remote) fn new(
        sources: impl IntoIterator<Item = GivenSource>,
        make: impl Fn(GivenSource) -> Result<AwsCredentialProvider, Error> + Send + Sync + 'static,
    ) -> Self {
        let sources = sources.into_iter().map(|source| (source, OnceLock::new())).collect();
        Self { sources, make: Arc::new(make) }
    }

    /// Returns whether there is such a source.
    pub(super) fn has(&self, source: GivenSource) -> bool {
        self.sources.iter().any(|(known, _)| *known == source)
    }

    /// Returns the provider of a source; none if there is no such source.
    pub(super) fn get(
        &self,
        source: GivenSource,
    ) -> Result<Option<AwsCredentialProvider>, CredentialError> {
        let Some((_, made)) = self.sources.iter().find(|(known, _)| *known == source) else {
            return Ok(None);
        };
        if let Some(provider) = made.get() {
            return Ok(Some(provider.clone()));
        }
        let provider =
            (self.make)(source).map_err(|error| CredentialError::Settings(error.to_string()))?;
        Ok(Some(made.get_or_init(|| provider).clone()))
    }
}

impl fmt::Debug for GivenProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|(source, _)| source)).finish()
    }
}
